//! Which revision of the control plane an object belongs to (istiod's `pkg/revisions`,
//! `TagWatcher`): the one in its label `istio.io/rev`, else in the label of its namespace, else the
//! default revision. Tags are aliases of revisions.
//!
//! ```text
//! webhooks, Services, namespaces ──▶ Known ──▶ OwnObjects ──▶ what writes statuses
//! ```

mod tags;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::SelectAll;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::watcher::{Config, Error, Event};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::default_revision::{REVISION, TAG};
use crate::gateways::{SourceEvents, metadata_events, resource};
use crate::mirror::Mirror;
use navarch_kubernetes::{InWords, is_absent, is_denied};
pub(crate) use tags::{Tag, Tags};

/// The webhook configuration whose label is the default revision, unless there is a default tag.
const DEFAULT_VALIDATOR: &str = "istiod-default-validator";

/// Watches which objects belong to a revision.
#[derive(Clone, Debug)]
pub struct RevisionObjects {
    /// The client of the API server.
    pub cluster: Cluster,
    /// The namespace of the control plane, where Services may define tags.
    pub namespace: String,
    /// The revision; empty is `default`.
    pub revision: String,
}

/// The objects that belong to a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnObjects {
    /// The revision and its tags.
    names: BTreeSet<String>,
    /// Whether the revision is the default one.
    is_default: bool,
    /// The revisions or tags in the labels of namespaces.
    namespaces: BTreeMap<Arc<str>, String>,
}

/// Selects the objects whose status is written.
#[derive(Clone, Debug)]
pub enum Responsibility {
    /// All objects: one control plane writes for the mesh.
    All,
    /// The objects of a revision; none before they are known.
    Revision(watch::Receiver<Option<Arc<OwnObjects>>>),
}

/// The sources that determine the revision of an object; only metadata is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevisionSource {
    TagWebhooks,
    TagServices,
    /// The webhook of the default revision.
    DefaultValidator,
    Namespaces,
}

/// The observed state of the cluster.
#[derive(Debug, Default)]
struct Known {
    tags: Tags,
    /// The revisions or tags in the labels of namespaces.
    namespaces: Mirror<String>,
}

impl RevisionObjects {
    /// Sends the objects of the revision to `sender` once they are known and when they change,
    /// until `stop` is cancelled.
    pub async fn run(
        self,
        sender: watch::Sender<Option<Arc<OwnObjects>>>,
        stop: CancellationToken,
    ) {
        let mut events: SelectAll<_> = watches(&self.cluster, &self.namespace, |source| source)
            .into_iter()
            .collect();
        let revision = if self.revision.is_empty() {
            "default"
        } else {
            &self.revision
        };

        let mut known = Known::default();

        loop {
            let (source, event) = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => match event {
                    Some(event) => event,
                    None => return,
                },
            };

            known.hear(source, event);
            let now = known.own(revision).map(Arc::new);
            sender.send_if_modified(|sender| {
                let is_new = now.is_some() && *sender != now;
                if is_new {
                    *sender = now;
                }
                is_new
            });
        }
    }
}

impl OwnObjects {
    /// The own objects according to these objects only; `system_namespace` is the namespace of the
    /// control plane.
    #[must_use]
    pub fn of(
        revision: &str,
        system_namespace: &str,
        objects: impl IntoIterator<Item = DynamicObject>,
    ) -> Self {
        let mut known = Known::default();
        for object in objects {
            if let Some(source) = RevisionSource::of(&object, system_namespace) {
                known.take(source, Event::Apply(object));
            }
        }
        known.current_objects(revision)
    }

    /// Whether an object with this label `istio.io/rev` in a namespace (empty if cluster-scoped)
    /// belongs to the revision.
    #[must_use]
    pub fn has(&self, namespace: &str, label: Option<&str>) -> bool {
        let selected = match label {
            Some(label) => label,
            // A cluster-scoped object without the label belongs to every revision.
            None if namespace.is_empty() => return true,
            None => self
                .namespaces
                .get(namespace)
                .map(String::as_str)
                .unwrap_or_default(),
        };
        if selected.is_empty() {
            self.is_default
        } else {
            self.names.contains(selected)
        }
    }
}

impl RevisionSource {
    fn of(object: &DynamicObject, system_namespace: &str) -> Option<Self> {
        let is_tag = object.labels().contains_key(TAG);
        match object.types.as_ref()?.kind.as_str() {
            "MutatingWebhookConfiguration" if is_tag => Some(Self::TagWebhooks),
            "Service" if is_tag && object.namespace().as_deref() == Some(system_namespace) => {
                Some(Self::TagServices)
            }
            "ValidatingWebhookConfiguration" if object.name_any() == DEFAULT_VALIDATOR => {
                Some(Self::DefaultValidator)
            }
            "Namespace" => Some(Self::Namespaces),
            _ => None,
        }
    }
}

impl Responsibility {
    /// Whether to write the status of an object with this label `istio.io/rev` in a namespace
    /// (empty if cluster-scoped).
    pub(crate) fn has(&self, namespace: &str, label: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Revision(own) => own
                .borrow()
                .as_ref()
                .is_some_and(|own| own.has(namespace, label)),
        }
    }

    /// Waits until the selection changes.
    pub(crate) async fn changed(&mut self) {
        let has_changed = match self {
            Self::All => false,
            Self::Revision(own) => own.changed().await.is_ok(),
        };
        if !has_changed {
            std::future::pending::<()>().await;
        }
    }
}

impl Known {
    /// Applies an event or error of a watch.
    fn hear(&mut self, source: RevisionSource, event: Result<Event<DynamicObject>, Error>) {
        match event {
            Ok(event) => self.take(source, event),
            Err(error) => {
                tracing::warn!(?source, error = %InWords(&error), "failed to watch which objects are of this revision");
                // Without permission to read tags there are no tags; this must not prevent all
                // status writes.
                if is_absent(&error) || is_denied(&error) {
                    self.take(source, Event::Init);
                    self.take(source, Event::InitDone);
                }
            }
        }
    }

    /// Applies an event.
    fn take(&mut self, source: RevisionSource, event: Event<DynamicObject>) {
        let tag = |object: DynamicObject| Some(Tag::of(object.metadata.labels.as_ref()));
        let tags = match source {
            RevisionSource::TagWebhooks => &mut self.tags.webhooks,
            RevisionSource::TagServices => &mut self.tags.services,
            RevisionSource::DefaultValidator => &mut self.tags.validator,
            RevisionSource::Namespaces => {
                let named = |object: DynamicObject| object.metadata.labels?.remove(REVISION);
                _ = self.namespaces.take(event, |object| {
                    named(object).filter(|named| !named.is_empty())
                });
                return;
            }
        };
        _ = tags.take(event, tag);
    }

    /// The objects of a revision; `None` until all sources are read.
    fn own(&self, revision: &str) -> Option<OwnObjects> {
        (self.tags.are_complete() && self.namespaces.is_complete())
            .then(|| self.current_objects(revision))
    }

    /// The objects of a revision according to the current state.
    fn current_objects(&self, revision: &str) -> OwnObjects {
        let namespaces = self
            .namespaces
            .iter()
            .map(|(name, named)| (name.name.clone(), named.clone()));
        OwnObjects {
            names: self.tags.names_of(revision),
            is_default: self.tags.is_of(revision, ""),
            namespaces: namespaces.collect(),
        }
    }
}

/// The watches of the sources, each event with the result of `of` for its source. `beside` is the
/// namespace of the control plane.
pub(crate) fn watches<S: Copy + Send + 'static>(
    cluster: &Cluster,
    beside: &str,
    of: impl Fn(RevisionSource) -> S,
) -> [SourceEvents<S>; 4] {
    let webhook =
        |kind: &str, plural: &str| resource("admissionregistration.k8s.io", "v1", kind, plural);
    let mutating = webhook(
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    );
    let validating = webhook(
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    );

    let namespaces = resource("", "v1", "Namespace", "namespaces");
    let services = resource("", "v1", "Service", "services");
    let tags = || Config::default().labels(TAG);
    let only_validator = Config::default().fields(&format!("metadata.name={DEFAULT_VALIDATOR}"));

    [
        metadata_events(
            cluster,
            of(RevisionSource::TagWebhooks),
            None,
            &mutating,
            tags(),
        ),
        metadata_events(
            cluster,
            of(RevisionSource::TagServices),
            Some(beside),
            &services,
            tags(),
        ),
        metadata_events(
            cluster,
            of(RevisionSource::DefaultValidator),
            None,
            &validating,
            only_validator,
        ),
        metadata_events(
            cluster,
            of(RevisionSource::Namespaces),
            None,
            &namespaces,
            Config::default(),
        ),
    ]
}

#[cfg(test)]
mod tests;

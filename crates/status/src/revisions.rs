//! Which objects are of which revision of the control plane (istiod's `pkg/revisions`, `TagWatcher`): an object says it by the label
//! `istio.io/rev`, else its namespace does, and without either the default revision. Tags are aliases of revisions.
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
use navarch_kubernetes::{InWords, is_absent, is_refused};
pub(crate) use tags::{Tag, Tags};

/// The webhook whose label names the revision of what names none, unless there is such a tag.
const DEFAULT_VALIDATOR: &str = "istiod-default-validator";

/// Follows which objects are of a revision.
#[derive(Clone, Debug)]
pub struct RevisionObjects {
    /// Where the objects are.
    pub cluster: Cluster,
    /// Where the control plane lives: there may be Services that name tags.
    pub namespace: String,
    /// The revision; empty is `default`.
    pub revision: String,
}

/// Which objects are of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnObjects {
    /// The revision, and its tags.
    names: BTreeSet<String>,
    /// Whether what names no revision is of it.
    is_default: bool,
    /// What namespaces name, those that do.
    namespaces: BTreeMap<Arc<str>, String>,
}

/// The objects whose statuses are written.
#[derive(Clone, Debug)]
pub enum Responsibility {
    /// All: one control plane writes for the mesh.
    All,
    /// Those of a revision; none before they are known.
    Revision(watch::Receiver<Option<Arc<OwnObjects>>>),
}

/// What is watched to know which objects are of a revision: metadata alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevisionSource {
    /// Webhooks of tags.
    TagWebhooks,
    /// Services of tags.
    TagServices,
    /// The webhook of the default revision.
    DefaultValidator,
    /// Namespaces.
    Namespaces,
}

/// What is known of the cluster.
#[derive(Debug, Default)]
struct Known {
    tags: Tags,
    /// The revisions or tags that namespaces name.
    namespaces: Mirror<String>,
}

impl RevisionObjects {
    /// Tells which objects are of the revision, once that is known and whenever it changes, until told to stop.
    pub async fn run(self, told: watch::Sender<Option<Arc<OwnObjects>>>, stop: CancellationToken) {
        let mut events: SelectAll<_> = watches(&self.cluster, &self.namespace, |source| source).into_iter().collect();
        let revision = if self.revision.is_empty() { "default" } else { &self.revision };
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
            told.send_if_modified(|told| {
                let is_new = now.is_some() && *told != now;
                if is_new {
                    *told = now;
                }
                is_new
            });
        }
    }
}

impl OwnObjects {
    /// As these objects say, and no others; `system_namespace` is where the control plane lives.
    #[must_use]
    pub fn of(revision: &str, system_namespace: &str, objects: impl IntoIterator<Item = DynamicObject>) -> Self {
        let mut known = Known::default();
        for object in objects {
            if let Some(source) = RevisionSource::of(&object, system_namespace) {
                known.take(source, Event::Apply(object));
            }
        }
        known.own_so_far(revision)
    }

    /// Whether an object of a namespace, empty for none, with this label `istio.io/rev` is of the revision.
    #[must_use]
    pub fn has(&self, namespace: &str, label: Option<&str>) -> bool {
        let selected = match label {
            Some(label) => label,
            // What is outside namespaces and says nothing is every revision's.
            None if namespace.is_empty() => return true,
            None => self.namespaces.get(namespace).map(String::as_str).unwrap_or_default(),
        };
        if selected.is_empty() { self.is_default } else { self.names.contains(selected) }
    }
}

impl RevisionSource {
    /// The source to which an object belongs.
    fn of(object: &DynamicObject, system_namespace: &str) -> Option<Self> {
        let is_tag = object.labels().contains_key(TAG);
        match object.types.as_ref()?.kind.as_str() {
            "MutatingWebhookConfiguration" if is_tag => Some(Self::TagWebhooks),
            "Service" if is_tag && object.namespace().as_deref() == Some(system_namespace) => Some(Self::TagServices),
            "ValidatingWebhookConfiguration" if object.name_any() == DEFAULT_VALIDATOR => Some(Self::DefaultValidator),
            "Namespace" => Some(Self::Namespaces),
            _ => None,
        }
    }
}

impl Responsibility {
    /// Whether the status of an object of a namespace, empty for none, with this label `istio.io/rev` is written.
    pub(crate) fn has(&self, namespace: &str, label: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Revision(own) => own.borrow().as_ref().is_some_and(|own| own.has(namespace, label)),
        }
    }

    /// Waits until the statuses of other objects are written.
    pub(crate) async fn changed(&mut self) {
        let is_told = match self {
            Self::All => false,
            Self::Revision(own) => own.changed().await.is_ok(),
        };
        if !is_told {
            std::future::pending::<()>().await;
        }
    }
}

impl Known {
    /// Takes in what a watch tells.
    fn hear(&mut self, source: RevisionSource, event: Result<Event<DynamicObject>, Error>) {
        match event {
            Ok(event) => self.take(source, event),
            Err(error) => {
                tracing::warn!(?source, error = %InWords(&error), "failed to watch which objects are of this revision");
                // Who may not see tags has none; that must not keep all statuses from being written.
                if is_absent(&error) || is_refused(&error) {
                    self.take(source, Event::Init);
                    self.take(source, Event::InitDone);
                }
            }
        }
    }

    /// Takes an event in.
    fn take(&mut self, source: RevisionSource, event: Event<DynamicObject>) {
        let tag = |object: DynamicObject| Some(Tag::of(object.metadata.labels.as_ref()));
        let tags = match source {
            RevisionSource::TagWebhooks => &mut self.tags.webhooks,
            RevisionSource::TagServices => &mut self.tags.services,
            RevisionSource::DefaultValidator => &mut self.tags.validator,
            RevisionSource::Namespaces => {
                let named = |object: DynamicObject| object.metadata.labels?.remove(REVISION);
                _ = self.namespaces.take(event, |object| named(object).filter(|named| !named.is_empty()));
                return;
            }
        };
        _ = tags.take(event, tag);
    }

    /// The objects of a revision; `None` while not all is known.
    fn own(&self, revision: &str) -> Option<OwnObjects> {
        (self.tags.are_complete() && self.namespaces.is_complete()).then(|| self.own_so_far(revision))
    }

    /// The objects of a revision by what is known.
    fn own_so_far(&self, revision: &str) -> OwnObjects {
        let namespaces = self.namespaces.iter().map(|(name, named)| (name.name.clone(), named.clone()));
        OwnObjects {
            names: self.tags.names_of(revision),
            is_default: self.tags.is_of(revision, ""),
            namespaces: namespaces.collect(),
        }
    }
}

/// What is watched to know which objects are of a revision, each event with what `of` makes of its source. `beside` is where
/// the control plane lives.
pub(crate) fn watches<S: Copy + Send + 'static>(
    cluster: &Cluster,
    beside: &str,
    of: impl Fn(RevisionSource) -> S,
) -> [SourceEvents<S>; 4] {
    let webhook = |kind: &str, plural: &str| resource("admissionregistration.k8s.io", "v1", kind, plural);
    let mutating = webhook("MutatingWebhookConfiguration", "mutatingwebhookconfigurations");
    let validating = webhook("ValidatingWebhookConfiguration", "validatingwebhookconfigurations");
    let namespaces = resource("", "v1", "Namespace", "namespaces");
    let services = resource("", "v1", "Service", "services");
    let tags = || Config::default().labels(TAG);
    let only_validator = Config::default().fields(&format!("metadata.name={DEFAULT_VALIDATOR}"));
    [
        metadata_events(cluster, of(RevisionSource::TagWebhooks), None, &mutating, tags()),
        metadata_events(cluster, of(RevisionSource::TagServices), Some(beside), &services, tags()),
        metadata_events(cluster, of(RevisionSource::DefaultValidator), None, &validating, only_validator),
        metadata_events(cluster, of(RevisionSource::Namespaces), None, &namespaces, Config::default()),
    ]
}

#[cfg(test)]
mod tests;

//! Tags: names of a revision, which operators move from one revision to another.
//!
//! As in istiod's tag watcher, a tag is a MutatingWebhookConfiguration or a Service of the control
//! plane's namespace with the labels `istio.io/tag`, its name, and `istio.io/rev`, the revision
//! that it refers to.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Error, Event, watcher};
use tokio::sync::watch;

use super::scope::{KubernetesScope, Tags};
use navarch_api::revision::{REVISION_LABEL, TAG_LABEL};
use navarch_kubernetes::InWords;

/// The kind of object that declares a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TagSource {
    /// A MutatingWebhookConfiguration.
    Webhook,
    Service,
}

/// The tags of this revision, by the kind of object that declares them.
#[derive(Debug, Default)]
struct TagSet {
    /// Names of tags by kind and name of the object.
    tags: BTreeMap<(TagSource, String), String>,
    /// The tags of an unfinished list.
    listed: BTreeMap<(TagSource, String), String>,
    /// Whether the first list of each kind is complete or failed.
    seen: [bool; 2],
}

impl TagSet {
    fn take(&mut self, place: TagSource, event: Result<Event<ObjectMeta>, Error>) {
        let entry = |meta: ObjectMeta| {
            let tag = meta
                .labels
                .and_then(|mut labels| labels.remove(TAG_LABEL))
                .filter(|tag| !tag.is_empty());
            ((place, meta.name.unwrap_or_default()), tag)
        };

        match event {
            Ok(Event::Init) => self.listed.retain(|(other, _), _| *other != place),
            Ok(Event::InitApply(meta)) => {
                if let (name, Some(tag)) = entry(meta) {
                    self.listed.insert(name, tag);
                }
            }
            Ok(Event::InitDone) => {
                self.tags.retain(|(other, _), _| *other != place);
                self.tags
                    .extend(self.listed.extract_if(.., |(other, _), _| *other == place));
                self.see(place);
            }
            Ok(Event::Apply(meta)) => {
                let (name, tag) = entry(meta);
                match tag {
                    Some(tag) => self.tags.insert(name, tag),
                    None => self.tags.remove(&name),
                };
            }
            Ok(Event::Delete(meta)) => _ = self.tags.remove(&entry(meta).0),
            // Without permission to read tags there are none; other objects must still be read.
            Err(error) => {
                tracing::warn!(?place, error = %InWords(&error), "failed to watch the tags of this revision");
                self.see(place);
            }
        }
    }

    /// Records that the first list of a kind is complete or failed.
    fn see(&mut self, place: TagSource) {
        let [webhooks, services] = &mut self.seen;
        match place {
            TagSource::Webhook => *webhooks = true,
            TagSource::Service => *services = true,
        }
    }

    /// The tags, once the first list of each kind is complete or failed.
    fn tags(&self) -> Option<Tags> {
        (self.seen == [true; 2]).then(|| Arc::new(self.tags.values().cloned().collect()))
    }
}

/// Sends the tags of the revision whenever they change.
pub(super) async fn watch(
    client: kube::Client,
    scope: Arc<KubernetesScope>,
    sender: watch::Sender<Option<Tags>>,
) {
    let config = watcher::Config::default()
        .labels(&format!("{TAG_LABEL},{REVISION_LABEL}={}", scope.revision));
    let webhooks = Api::<PartialObjectMeta<MutatingWebhookConfiguration>>::all(client.clone());
    let services =
        Api::<PartialObjectMeta<Service>>::namespaced(client, scope.system_namespace.as_str());
    let webhooks = watcher(webhooks, config.clone()).default_backoff();
    let webhooks = webhooks.map(|event| {
        (
            TagSource::Webhook,
            event.map(|event| meta(event, |object| object.metadata)),
        )
    });

    let services = watcher(services, config).default_backoff();
    let services = services.map(|event| {
        (
            TagSource::Service,
            event.map(|event| meta(event, |object| object.metadata)),
        )
    });

    let mut events = std::pin::pin!(futures_util::stream::select(webhooks, services));
    let mut known = TagSet::default();

    while let Some((place, event)) = events.next().await {
        known.take(place, event);
        if let Some(tags) = known.tags() {
            sender.send_if_modified(|sender| {
                let is_new = sender.as_ref() != Some(&tags);
                *sender = Some(tags.clone());
                is_new
            });
        }
    }
}

/// An event with the metadata alone.
fn meta<K>(event: Event<K>, of: impl Fn(K) -> ObjectMeta) -> Event<ObjectMeta> {
    match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(of(object)),
        Event::InitApply(object) => Event::InitApply(of(object)),
        Event::Delete(object) => Event::Delete(of(object)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, tag: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(TAG_LABEL.to_owned(), tag.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn tags_are_known_once_both_sources_are_synced_and_follow_changes() {
        let mut known = TagSet::default();
        let tags = |known: &TagSet| {
            known
                .tags()
                .map(|tags| tags.iter().cloned().collect::<Vec<_>>().join(" "))
        };
        known.take(TagSource::Webhook, Ok(Event::Init));
        known.take(
            TagSource::Webhook,
            Ok(Event::InitApply(object("w", "prod"))),
        );

        known.take(TagSource::Service, Ok(Event::Init));
        known.take(TagSource::Webhook, Ok(Event::InitDone));
        assert_eq!(tags(&known), None);
        known.take(
            TagSource::Service,
            Ok(Event::InitApply(object("s", "canary"))),
        );
        known.take(TagSource::Service, Ok(Event::InitDone));

        assert_eq!(tags(&known).as_deref(), Some("canary prod"));
        known.take(TagSource::Webhook, Ok(Event::Delete(object("w", "prod"))));
        known.take(TagSource::Service, Ok(Event::Apply(object("s", "next"))));
        assert_eq!(tags(&known).as_deref(), Some("next"));
        known.take(TagSource::Service, Ok(Event::Init));
        known.take(TagSource::Service, Ok(Event::InitDone));
        assert_eq!(tags(&known).as_deref(), Some(""));
        let mut blind = TagSet::default();
        blind.take(TagSource::Webhook, Err(Error::NoResourceVersion));

        blind.take(TagSource::Service, Err(Error::NoResourceVersion));
        assert_eq!(
            tags(&blind).as_deref(),
            Some(""),
            "what may not be seen keeps nothing back"
        );
    }
}

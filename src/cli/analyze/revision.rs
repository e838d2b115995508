//! The objects of a revision: those labelled with it or one of its tags, as its control plane
//! selects them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{ListParams, ObjectMeta};
use navarch_kubernetes::InWords;

const REVISION_LABEL: &str = "istio.io/rev";
/// The label of webhooks and Services that define a tag.
const TAG_LABEL: &str = "istio.io/tag";

#[derive(Debug, Default)]
pub(super) struct Revision {
    pub(super) name: String,
    /// The label values that select its objects.
    words: BTreeSet<String>,
    /// Why tags are unknown.
    pub(super) unknown: Option<String>,
}

impl Revision {
    /// The revision of this name, or that of the tag of this name.
    pub(super) async fn find(client: &kube::Client, system: &str, name: &str) -> Self {
        let parameters = ListParams::default().labels(&format!("{TAG_LABEL},{REVISION_LABEL}"));
        let webhooks = Api::<MutatingWebhookConfiguration>::all(client.clone());
        let services = Api::<Service>::namespaced(client.clone(), system);
        let (webhooks, services) = tokio::join!(
            webhooks.list_metadata(&parameters),
            services.list_metadata(&parameters)
        );
        let mut unknown = None;
        let mut tags = BTreeMap::new();

        // If both define a tag, the Service takes precedence, as in istiod.
        for (kind, listed) in [
            (
                "MutatingWebhookConfigurations",
                webhooks.map(|list| metadata(list.items)),
            ),
            ("Services", services.map(|list| metadata(list.items))),
        ] {
            match listed {
                Ok(listed) => tags.extend(listed.into_iter().filter_map(tag)),
                Err(error) => unknown = Some(format!("failed to read {kind}: {}", InWords(&error))),
            }
        }

        Self {
            unknown,
            ..Self::of(name, &tags)
        }
    }

    /// The revision of a name, given the revisions of tags.
    fn of(name: &str, tags: &BTreeMap<String, String>) -> Self {
        let revision = tags.get(name).map_or(name, String::as_str);
        let stand = tags
            .iter()
            .filter(|(_, of)| *of == revision)
            .map(|(tag, _)| tag.as_str());
        let words = [name, revision]
            .into_iter()
            .chain(stand)
            .map(str::to_owned)
            .collect();
        Self {
            name: revision.to_owned(),
            words,
            unknown: None,
        }
    }

    /// Whether an object with this label value belongs to it. All objects belong to a revision
    /// without a name.
    pub(super) fn is_named(&self, word: &str) -> bool {
        self.name.is_empty() || self.words.contains(word)
    }
}

/// The metadata of listed objects.
fn metadata<K>(items: Vec<kube::core::PartialObjectMeta<K>>) -> Vec<ObjectMeta> {
    items.into_iter().map(|object| object.metadata).collect()
}

/// The tag that an object defines, and its revision.
fn tag(object: ObjectMeta) -> Option<(String, String)> {
    let mut labels = object.labels?;
    Some((labels.remove(TAG_LABEL)?, labels.remove(REVISION_LABEL)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_revisions_resolve_in_both_directions() {
        let tags = [
            ("prod", "canary"),
            ("next", "canary"),
            ("default", "stable"),
        ];
        let tags: BTreeMap<_, _> = tags.map(|(tag, of)| (tag.to_owned(), of.to_owned())).into();

        for (requested, name, words) in [
            ("canary", "canary", vec!["canary", "next", "prod"]),
            ("prod", "canary", vec!["canary", "next", "prod"]),
            ("default", "stable", vec!["default", "stable"]),
            ("other", "other", vec!["other"]),
        ] {
            let revision = Revision::of(requested, &tags);
            assert_eq!(
                (
                    revision.name.as_str(),
                    revision.words.iter().map(String::as_str).collect()
                ),
                (name, words)
            );
        }

        assert!(!Revision::of("other", &tags).is_named("prod"));
    }
}

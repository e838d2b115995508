//! The tags of a revision (istiod's `pkg/revisions`, `TagWatcher`).

use std::collections::{BTreeMap, BTreeSet};

use crate::default_revision::{DEFAULT_TAG, REVISION, TAG};
use crate::mirror::Mirror;

/// The tag for objects without a revision.
const DEFAULT: &str = "default";

/// A tag and its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    revision: String,
    tag: String,
}

impl Tag {
    /// The tag in labels; missing labels are empty.
    pub(crate) fn of(labels: Option<&BTreeMap<String, String>>) -> Self {
        let label = |name: &str| {
            labels
                .and_then(|labels| labels.get(name))
                .cloned()
                .unwrap_or_default()
        };
        Self {
            revision: label(REVISION),
            tag: label(TAG),
        }
    }
}

/// The tags of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    pub(crate) webhooks: Mirror<Tag>,
    /// Tags of Services in the control plane's namespace.
    pub(crate) services: Mirror<Tag>,
    /// The webhook of the default revision.
    pub(crate) validator: Mirror<Tag>,
}

impl Tags {
    /// Whether all tags are read.
    pub(crate) fn are_complete(&self) -> bool {
        self.webhooks.is_complete() && self.services.is_complete() && self.validator.is_complete()
    }

    pub(super) fn names_of(&self, revision: &str) -> BTreeSet<String> {
        let tags = self.webhooks.values().chain(self.services.values());
        let own = tags
            .filter(|tag| tag.revision == revision)
            .map(|tag| tag.tag.clone());
        own.chain([revision.to_owned()]).collect()
    }

    /// Whether an object with this revision or tag, empty for none, belongs to a revision.
    pub(crate) fn is_of(&self, revision: &str, selected: &str) -> bool {
        let stands_for = |name: &str| {
            let mut tags = self.webhooks.values().chain(self.services.values());
            revision == name || tags.any(|tag| tag.revision == revision && tag.tag == name)
        };
        if !selected.is_empty() {
            return stands_for(selected);
        }
        let elsewhere = self.webhooks.keys().any(|key| &*key.name == DEFAULT_TAG);
        let is_default = self
            .validator
            .values()
            .any(|validator| validator.revision == revision);
        stands_for(DEFAULT) || (is_default && !elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::super::DEFAULT_VALIDATOR;
    use super::*;

    /// Puts an object with these labels.
    fn put(mirror: &mut Mirror<Tag>, name: &str, revision: &str, tag: &str) {
        let object =
            json!({ "metadata": { "name": name, "labels": { REVISION: revision, TAG: tag } } });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        _ = mirror.take(Event::Apply(object), |object| {
            Some(Tag::of(object.metadata.labels.as_ref()))
        });
    }

    #[test]
    fn tags_and_the_default_resolve_to_revisions() {
        let mut tags = Tags::default();
        assert!(
            tags.is_of("default", "") && tags.is_of("default", "default") && tags.is_of("a", "a")
        );
        assert!(!tags.is_of("a", "") && !tags.is_of("a", "b"));
        put(&mut tags.validator, DEFAULT_VALIDATOR, "a", "");
        assert!(tags.is_of("a", ""));
        put(&mut tags.webhooks, "istio-revision-tag-prod", "a", "prod");
        put(&mut tags.services, "istiod-revision-tag-next", "b", "next");
        assert!(tags.is_of("a", "prod") && !tags.is_of("b", "prod") && tags.is_of("b", "next"));
        put(&mut tags.webhooks, DEFAULT_TAG, "b", "default");
        assert!(!tags.is_of("a", "") && tags.is_of("b", "") && tags.is_of("b", "default"));
    }
}

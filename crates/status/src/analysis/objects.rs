//! The objects for the analyzers, from watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;

use crate::default_revision::{REVISION, TAG};
use crate::namespaces::NamespaceScope;
use navarch_analysis::{Context, Key, Kind, Mesh, Reader, Resource, live};
use navarch_api::text_map::TextMap;
use navarch_kubernetes::{InWords, is_absent, is_denied};

/// A watched object.
#[derive(Clone, Debug)]
pub(super) struct TrackedObject {
    pub(super) resource: Arc<Resource>,
    /// `metadata.resourceVersion`.
    pub(super) version: String,
    /// `metadata.generation`.
    pub(super) generation: i64,
    /// The revision or tag that selects the control plane, if there is one.
    revision: Option<String>,
}

/// The coverage of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coverage {
    /// All its objects are known, or the cluster does not have the kind.
    Whole,
    /// This control plane may not read it.
    Denied,
}

/// The objects of all kinds.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    known: BTreeMap<Key, TrackedObject>,
    kinds: BTreeMap<Kind, Coverage>,
    /// The objects of an unfinished list.
    listed: BTreeMap<Kind, BTreeSet<Key>>,
    changed: BTreeSet<Kind>,
    /// The revision of this control plane; if it is empty, all objects are its own.
    revision: String,
    /// The namespace of the control plane.
    system_namespace: String,
    /// The tags of the revision.
    tags: BTreeSet<String>,
}

impl Objects {
    /// No objects, for a control plane of this revision and namespace.
    pub(super) fn new(revision: &str, system_namespace: &str) -> Self {
        Self {
            revision: revision.to_owned(),
            system_namespace: system_namespace.to_owned(),
            ..Self::default()
        }
    }

    /// Applies an event of a watch; returns whether something has changed.
    pub(super) fn take(
        &mut self,
        kind: Kind,
        event: Result<Event<DynamicObject>, watcher::Error>,
    ) -> bool {
        let is_changed = match event {
            Ok(Event::Init) => {
                self.listed.insert(kind, BTreeSet::new());
                false
            }
            Ok(Event::InitApply(object)) => {
                self.listed
                    .entry(kind)
                    .or_default()
                    .insert(key(kind, &object));
                self.put(kind, object)
            }
            Ok(Event::InitDone) => {
                let listed = self.listed.remove(&kind).unwrap_or_default();
                let is_fewer = self.keep(kind, &listed);
                self.settle(kind, Coverage::Whole) || is_fewer
            }
            Ok(Event::Apply(object)) => self.put(kind, object),
            Ok(Event::Delete(object)) => {
                let gone = self.known.remove(&key(kind, &object));
                gone.is_some_and(|known| self.is_ours(&known))
            }
            Err(error) if is_absent(&error) => {
                let is_fewer = self.keep(kind, &BTreeSet::new());
                self.settle(kind, Coverage::Whole) || is_fewer
            }
            Err(error) if is_denied(&error) => {
                let is_new = self.settle(kind, Coverage::Denied);
                if is_new {
                    self.keep(kind, &BTreeSet::new());
                    let error = InWords(&error);
                    tracing::warn!(kind = kind.plural(), %error, "not authorized to read a kind; its analyzers are skipped");
                }

                is_new
            }
            Err(error) => {
                tracing::debug!(kind = kind.plural(), error = %InWords(&error), "failed to watch objects for analysis");
                false
            }
        };

        if is_changed {
            self.changed.insert(kind);
            if matches!(kind, Kind::MutatingWebhookConfiguration | Kind::Service) {
                self.follow_tags();
            }
        }

        is_changed
    }

    /// Finds the tags of the revision, as istiod's tag watcher does: of webhooks, and of Services
    /// beside the control plane.
    fn follow_tags(&mut self) {
        let webhooks = self.in_namespace(Kind::MutatingWebhookConfiguration, "");
        let all = webhooks.chain(self.in_namespace(Kind::Service, &self.system_namespace));
        let labels = all.map(|known| &known.resource.labels);
        let ours = labels.filter(|labels| {
            labels
                .get(REVISION)
                .is_some_and(|revision| **revision == *self.revision)
        });
        let tags: BTreeSet<String> = ours
            .filter_map(|labels| labels.get(TAG))
            .map(|tag| tag.to_string())
            .collect();
        let before = std::mem::replace(&mut self.tags, tags);
        let moved: BTreeSet<&String> = before.symmetric_difference(&self.tags).collect();

        if !moved.is_empty() {
            let named = self
                .known
                .iter()
                .filter(|(_, known)| known.revision.as_ref().is_some_and(|of| moved.contains(of)));
            self.changed.extend(named.map(|(key, _)| key.kind));
        }
    }

    fn in_namespace<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a TrackedObject> {
        let first = Key {
            kind,
            namespace: namespace.to_owned(),
            name: String::new(),
            cluster: None,
        };
        let all = self.known.range(first..);
        all.take_while(move |(key, _)| key.kind == kind && key.namespace == namespace)
            .map(|(_, known)| known)
    }

    /// Whether an object belongs to this revision, or to all.
    fn is_ours(&self, known: &TrackedObject) -> bool {
        let is_mine = |of: &String| {
            self.revision.is_empty() || *of == self.revision || self.tags.contains(of)
        };
        known.revision.as_ref().is_none_or(is_mine)
    }

    /// Adds or updates an object; returns whether something has changed.
    fn put(&mut self, kind: Kind, mut object: DynamicObject) -> bool {
        let key = key(kind, &object);
        let version = object.resource_version().unwrap_or_default();
        let before = self.known.get(&key);
        if before.is_some_and(|known| known.version == version) {
            return false;
        }

        let was_ours = before.is_some_and(|known| self.is_ours(known));
        object.metadata.managed_fields = None;
        let generation = object.metadata.generation.unwrap_or_default();
        let mut value = serde_json::to_value(&object).unwrap_or_default();
        let mut revision = None;

        // Tags move: objects of other revisions are kept, as they may become ours.
        if !live::is_analyzed(kind, &value, |named| {
            revision = Some(named.to_owned());
            true
        }) {
            self.known.remove(&key);
            return was_ours;
        }

        if let Some(members) = value.as_object_mut() {
            members.insert("apiVersion".to_owned(), Value::from(kind.api_version()));
            members.insert("kind".to_owned(), Value::from(kind.as_str()));
        }

        let resource = Arc::new(Resource::of_cluster(kind, None, value));
        let known = TrackedObject {
            resource,
            version,
            generation,
            revision,
        };

        let is_ours = self.is_ours(&known);
        self.known.insert(key, known);
        was_ours || is_ours
    }

    /// Removes the objects of a kind that are not in a list; returns whether there were any.
    fn keep(&mut self, kind: Kind, listed: &BTreeSet<Key>) -> bool {
        let before = self.known.len();
        self.known
            .retain(|key, _| key.kind != kind || listed.contains(key));
        self.known.len() < before
    }

    /// Records the coverage of a kind; returns whether it has changed.
    fn settle(&mut self, kind: Kind, coverage: Coverage) -> bool {
        self.kinds.insert(kind, coverage) != Some(coverage)
    }

    /// Records a change of the mesh settings.
    pub(super) fn note_settings(&mut self) {
        self.changed.insert(Kind::MeshNetworks);
    }

    /// Whether every kind has a coverage.
    pub(super) fn is_complete(&self) -> bool {
        live::kinds().all(|kind| self.kinds.contains_key(&kind))
    }

    /// The kinds with objects that have changed since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<Kind> {
        std::mem::take(&mut self.changed)
    }

    /// This revision's cluster-scoped objects, and those of namespaces in the scope.
    pub(super) fn within<'a>(
        &'a self,
        scope: &'a NamespaceScope,
    ) -> impl Iterator<Item = &'a TrackedObject> {
        let namespaces = self
            .known
            .iter()
            .filter(|(key, _)| key.kind == Kind::Namespace);
        let counts: BTreeSet<&str> = namespaces
            .filter(|(_, known)| {
                let labels = known.resource.labels.iter();
                let labels: TextMap = labels
                    .map(|(key, value)| (Arc::from(&**key), Arc::from(&**value)))
                    .collect();
                scope.includes(&known.resource.name, Some(&labels))
            })
            .map(|(key, _)| key.name.as_str())
            .collect();

        // Without selectors, the labels of a namespace are not needed.
        let is_in = move |name: &str| {
            name.is_empty() || counts.contains(name) || scope.includes(name, None)
        };
        let all = self
            .known
            .iter()
            .filter(move |(key, known)| self.is_ours(known) && is_in(&key.namespace));

        all.map(|(_, known)| known)
    }

    /// The input of the analyzers.
    pub(super) fn context(&self, mesh: Mesh, scope: &NamespaceScope) -> Context {
        let mut reader = Reader::default();
        for known in self.within(scope) {
            reader.add(Arc::clone(&known.resource));
        }
        let denied = self
            .kinds
            .iter()
            .filter(|(_, coverage)| **coverage == Coverage::Denied);
        Context::new(reader, mesh, denied.map(|(kind, _)| *kind).collect())
    }
}

/// The key of a watched object.
fn key(kind: Kind, object: &DynamicObject) -> Key {
    Key {
        kind,
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        cluster: None,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use navarch_api::mesh::LabelSelector;
    use serde_json::json;

    use super::*;

    fn object(namespace: &str, name: &str, version: &str, revision: Option<&str>) -> DynamicObject {
        let labels = revision.map(|revision| json!({ "istio.io/rev": revision }));
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": namespace, "resourceVersion": version, "generation": 2, "labels": labels },
            "spec": { "hosts": ["a"] },
        }))
        .unwrap()
    }

    fn names(objects: &Objects, scope: &NamespaceScope) -> Vec<String> {
        objects
            .within(scope)
            .map(|known| known.resource.full_name())
            .collect()
    }

    #[test]
    fn objects_missing_from_a_relist_are_deleted_and_equal_ones_unchanged() {
        let mut objects = Objects::default();
        let all = NamespaceScope::default();
        let kind = Kind::VirtualService;
        let list = |objects: &mut Objects, listed: Vec<DynamicObject>| {
            objects.take(kind, Ok(Event::Init));
            for object in listed {
                objects.take(kind, Ok(Event::InitApply(object)));
            }
            objects.take(kind, Ok(Event::InitDone));
            !objects.take_changed().is_empty()
        };

        let object = |name, version| object("shop", name, version, None);
        assert!(list(&mut objects, vec![object("a", "1"), object("b", "2")]));
        assert!(!list(
            &mut objects,
            vec![object("a", "1"), object("b", "2")]
        ));
        assert!(list(&mut objects, vec![object("b", "2")]));
        assert_eq!(names(&objects, &all), ["shop/b"]);

        assert!(objects.take(kind, Ok(Event::Apply(object("c", "3")))));
        assert!(objects.take(kind, Ok(Event::Delete(object("b", "4")))));
        assert_eq!(names(&objects, &all), ["shop/c"]);
    }

    #[test]
    fn an_object_that_moves_to_another_revision_is_released() {
        let mut objects = Objects::new("blue", "istio-system");
        let kind = Kind::Sidecar;
        assert!(objects.take(
            kind,
            Ok(Event::Apply(object("shop", "a", "1", Some("blue"))))
        ));
        assert!(objects.take(
            kind,
            Ok(Event::Apply(object("shop", "a", "2", Some("green"))))
        ));
        assert!(!objects.take(
            kind,
            Ok(Event::Apply(object("shop", "a", "3", Some("green"))))
        ));
        assert_eq!(names(&objects, &NamespaceScope::default()), [""; 0]);
    }

    #[test]
    fn tags_say_whose_objects_are_and_move() {
        let mut objects = Objects::new("blue", "istio-system");
        let all = NamespaceScope::default();
        let tag = |namespace: &str, name: &str, version: &str, revision: &str| -> DynamicObject {
            let labels = json!({ "istio.io/tag": name, "istio.io/rev": revision });
            let metadata = json!({ "name": name, "namespace": namespace, "resourceVersion": version, "labels": labels });
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let webhook = Kind::MutatingWebhookConfiguration;

        let service = Kind::Service;
        assert!(!objects.take(
            Kind::Sidecar,
            Ok(Event::Apply(object("shop", "a", "1", Some("prod"))))
        ));
        assert!(!objects.take(
            Kind::Gateway,
            Ok(Event::Apply(object("shop", "b", "1", Some("next"))))
        ));

        let _ = objects.take_changed();
        assert!(objects.take(webhook, Ok(Event::Apply(tag("", "prod", "1", "blue")))));
        assert!(
            objects.take_changed().contains(&Kind::Sidecar),
            "other analyzers look at it, too"
        );
        assert_eq!(
            BTreeSet::from_iter(names(&objects, &all)),
            ["prod", "shop/a"].map(str::to_owned).into()
        );

        // Services of other namespaces do not count.
        objects.take(service, Ok(Event::Apply(tag("shop", "next", "2", "blue"))));
        assert!(!objects.take_changed().contains(&Kind::Gateway));
        objects.take(
            service,
            Ok(Event::Apply(tag("istio-system", "next", "3", "blue"))),
        );
        assert!(objects.take_changed().contains(&Kind::Gateway));

        assert!(objects.take(webhook, Ok(Event::Apply(tag("", "prod", "4", "green")))));
        assert!(objects.take_changed().contains(&Kind::Sidecar));
        let left = names(&objects, &all);
        assert!(
            left.contains(&"shop/b".to_owned()) && !left.contains(&"shop/a".to_owned()),
            "{left:?}"
        );
    }

    #[test]
    fn a_kind_that_may_not_be_read_is_missing_and_one_that_is_not_there_has_no_objects() {
        let mut objects = Objects::default();
        let failed = |code| {
            let status = Status {
                code,
                ..Status::default()
            };
            Err(watcher::Error::InitialListFailed(kube::Error::Api(
                status.boxed(),
            )))
        };

        for kind in live::kinds() {
            assert!(!objects.is_complete());
            let code = if kind == Kind::Secret { 403 } else { 404 };
            assert!(!objects.take(kind, failed(503)));
            assert!(objects.take(kind, failed(code)));
            assert!(
                !objects.take(kind, failed(code)),
                "it is the same as before"
            );
        }

        assert!(objects.is_complete());
        let context = objects.context(Mesh::default(), &NamespaceScope::default());
        let skipped = navarch_analysis::analyzer::analyze(
            &context,
            &[],
            &navarch_analysis::Filter::default(),
        )
        .skipped;

        assert!(
            skipped.contains(&"gateway.SecretAnalyzer")
                && !skipped.contains(&"service.PortNameAnalyzer")
        );
    }

    #[test]
    fn namespaces_that_are_not_selected_do_not_count() {
        let mut objects = Objects::default();
        let namespace = |name: &str, label: &str| -> DynamicObject {
            let labels = json!({ "mesh": label });
            serde_json::from_value(
                json!({ "metadata": { "name": name, "resourceVersion": "1", "labels": labels } }),
            )
            .unwrap()
        };

        for (name, label) in [("shop", "yes"), ("other", "no")] {
            objects.take(Kind::Namespace, Ok(Event::Apply(namespace(name, label))));
            objects.take(
                Kind::Gateway,
                Ok(Event::Apply(object(name, "a", "1", None))),
            );
        }

        let selector: LabelSelector =
            serde_json::from_value(json!({ "matchLabels": { "mesh": "yes" } })).unwrap();
        let scope = NamespaceScope {
            selectors: vec![selector],
            only: None,
        };
        assert_eq!(names(&objects, &scope), ["other", "shop", "shop/a"]);
        let only = NamespaceScope {
            selectors: Vec::new(),
            only: Some("other".to_owned()),
        };
        assert_eq!(names(&objects, &only), ["other", "shop", "other/a"]);
    }
}

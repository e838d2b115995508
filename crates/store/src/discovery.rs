//! Discovery of namespaces: all, or those that mesh config selects (`discoverySelectors`).
//!
//! As in Istio, the filter applies to the Kubernetes API: configuration from files is not filtered.
//! Objects of other namespaces are kept separately, since a changed label may add their namespace
//! at any time.

use std::collections::BTreeSet;

use super::Objects;
use navarch_api::any_object::AnyObject;
use navarch_api::mesh::LabelSelector;
use navarch_api::names::Namespace;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};

/// The kinds of objects that selectors filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiscoveryScope {
    /// Kubernetes' own kinds: mesh configuration is not filtered.
    #[default]
    Workloads,
    /// All kinds.
    Everything,
}

/// All objects, separated by whether their namespace is discovered. Cluster-scoped objects always
/// are.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// The filtered kinds.
    scope: DiscoveryScope,
    /// The selectors; an empty list selects all.
    selectors: Vec<LabelSelector>,
    /// Objects of discovered namespaces, and of kinds that are not filtered.
    seen: Objects,
    /// All other objects.
    unseen: Objects,
}

impl DiscoveryScope {
    /// Whether objects of this kind are filtered.
    #[must_use]
    pub(super) fn covers(self, kind: Kind) -> bool {
        let configures = kind.group().ends_with(".istio.io");
        !kind.is_cluster_scoped() && (self == Self::Everything || !configures)
    }
}

impl Discovery {
    /// No objects yet; all namespaces are discovered.
    #[must_use]
    pub fn new(scope: DiscoveryScope) -> Self {
        Self {
            scope,
            ..Self::default()
        }
    }

    /// The objects of discovered namespaces, and of kinds that are not filtered.
    #[must_use]
    pub fn seen(&self) -> &Objects {
        &self.seen
    }

    /// Adds or replaces an object. Adds the objects that differ in [`Self::seen`] to `changed`.
    pub fn put(&mut self, object: AnyObject, changed: &mut BTreeSet<ObjectRef>) {
        let name = object.object_ref();
        if self.scope.covers(name.kind) && !self.discovers(&name.name.namespace) {
            self.unseen.put_any(object);
        } else if self.change(&name, changed, |seen| seen.put_any(object)) {
            changed.insert(name);
        }
    }

    /// Removes an object. Adds the objects that differ in [`Self::seen`] to `changed`.
    pub fn remove(&mut self, name: &ObjectRef, changed: &mut BTreeSet<ObjectRef>) {
        if self.change(name, changed, |seen| seen.remove_ref(name.kind, &name.name)) {
            changed.insert(name.clone());
        } else {
            self.unseen.remove_ref(name.kind, &name.name);
        }
    }

    /// Sets the selectors. Adds the objects that differ in [`Self::seen`] to `changed`.
    pub fn select(&mut self, selectors: &[LabelSelector], changed: &mut BTreeSet<ObjectRef>) {
        if self.selectors == selectors {
            return;
        }
        let namespaces = self
            .seen
            .inhabited_namespaces()
            .into_iter()
            .chain(self.unseen.inhabited_namespaces());
        let before: BTreeSet<(Namespace, bool)> = namespaces
            .map(|name| (name.clone(), self.discovers(&name)))
            .collect();
        self.selectors = selectors.to_vec();
        for (namespace, discovered) in before {
            self.settle(&namespace, discovered, changed);
        }
    }

    /// Changes an object in `seen`. If it is a namespace, all objects in it may move.
    fn change(
        &mut self,
        name: &ObjectRef,
        changed: &mut BTreeSet<ObjectRef>,
        change: impl FnOnce(&mut Objects) -> bool,
    ) -> bool {
        if name.kind != Kind::Namespace {
            return change(&mut self.seen);
        }
        let namespace = Namespace::new(&name.name.name);
        let discovered = self.discovers(&namespace);
        let differs = change(&mut self.seen);
        self.settle(&namespace, discovered, changed);
        differs
    }

    /// Moves the objects of a namespace after a change of its discovery.
    fn settle(
        &mut self,
        namespace: &Namespace,
        discovered: bool,
        changed: &mut BTreeSet<ObjectRef>,
    ) {
        let (from, to) = match (discovered, self.discovers(namespace)) {
            (true, false) => (&mut self.seen, &mut self.unseen),
            (false, true) => (&mut self.unseen, &mut self.seen),
            (true, true) | (false, false) => return,
        };
        changed.extend(from.move_namespace(namespace, self.scope, to));
    }

    /// Whether an object of this name is, or would be, in [`Self::seen`].
    #[must_use]
    pub fn counts(&self, name: &ObjectRef) -> bool {
        !self.scope.covers(name.kind) || self.discovers(&name.name.namespace)
    }

    /// Whether a namespace is discovered. With selectors, a namespace that does not exist is not.
    fn discovers(&self, namespace: &Namespace) -> bool {
        if self.selectors.is_empty() {
            return true;
        }
        let known = self
            .seen
            .namespaces
            .get(&NamespacedName::new("", namespace.as_str()));
        known.is_some_and(|known| {
            self.selectors
                .iter()
                .any(|selector| selector.selects(&known.meta.labels))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use navarch_api::testing::object;

    fn namespace(name: &str, team: &str) -> AnyObject {
        object(&format!(
            "{{ apiVersion: v1, kind: Namespace, metadata: {{ name: {name}, labels: {{ team: {team} }} }} }}"
        ))
    }

    fn secret(namespace: &str) -> AnyObject {
        object(&format!(
            "{{ apiVersion: v1, kind: Secret, metadata: {{ name: s, namespace: {namespace} }} }}"
        ))
    }

    /// What is noted by a step.
    fn noted(step: impl FnOnce(&mut BTreeSet<ObjectRef>)) -> Vec<String> {
        let mut changed = BTreeSet::new();
        step(&mut changed);
        changed.iter().map(ToString::to_string).collect()
    }

    fn team(name: &str) -> LabelSelector {
        LabelSelector {
            match_labels: BTreeMap::from([("team".into(), name.into())]),
            match_expressions: vec![],
        }
    }

    #[test]
    fn selecting_a_namespace_selects_its_objects() {
        let mut all = Discovery::default();

        for object in [
            namespace("shop", "a"),
            secret("shop"),
            secret("bank"),
            namespace("bank", "b"),
        ] {
            all.put(object, &mut BTreeSet::new());
        }

        assert_eq!(
            noted(|changed| all.select(&[team("a")], changed)),
            ["Secret bank/s"]
        );
        assert_eq!(
            noted(|changed| all.put(secret("bank"), changed)),
            Vec::<String>::new()
        );

        assert_eq!(all.seen().secrets.len(), 1);
        assert_eq!(
            noted(|changed| all.put(namespace("bank", "a"), changed)),
            ["Namespace bank", "Secret bank/s"]
        );
        assert_eq!(
            noted(|changed| all.select(&[team("b")], changed)),
            ["Secret bank/s", "Secret shop/s"]
        );

        assert_eq!(
            noted(|changed| all.remove(&secret("shop").object_ref(), changed)),
            Vec::<String>::new()
        );
        assert_eq!(noted(|changed| all.select(&[], changed)), ["Secret bank/s"]);
    }

    #[test]
    fn discovery_selectors_hide_configuration_only_in_scope_everything() {
        let sidecar = || {
            object(
                "{ apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: { name: s, namespace: shop } }",
            )
        };
        for (scope, hidden) in [
            (DiscoveryScope::Workloads, vec![]),
            (DiscoveryScope::Everything, vec!["Sidecar shop/s"]),
        ] {
            let mut all = Discovery::new(scope);
            all.put(sidecar(), &mut BTreeSet::new());
            assert_eq!(noted(|changed| all.select(&[team("a")], changed)), hidden);
        }
    }

    #[test]
    fn objects_of_a_deleted_namespace_are_hidden() {
        let mut all = Discovery::default();
        all.select(&[team("a")], &mut BTreeSet::new());
        all.put(namespace("shop", "a"), &mut BTreeSet::new());
        assert_eq!(
            noted(|changed| all.put(secret("shop"), changed)),
            ["Secret shop/s"]
        );
        let name = namespace("shop", "a").object_ref();
        assert_eq!(
            noted(|changed| all.remove(&name, changed)),
            ["Namespace shop", "Secret shop/s"]
        );
        assert_eq!(all.seen().secrets.len(), 0);
    }
}

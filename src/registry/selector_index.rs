//! Who selects a workload, and which workloads are selected, without looking at everyone.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::model::Labels;
use super::multimap::Multimap;
use crate::api::names::Namespace;
use crate::api::object::NamespacedName;

/// Whether labels have all that a selector asks for; an empty selector asks for nothing.
#[must_use]
pub fn selects(selector: &Labels, labels: &Labels) -> bool {
    selector.len() <= labels.len() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// One label within a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LabelKey {
    /// The namespace.
    namespace: Namespace,
    /// Key and value; `None` stands for every workload.
    label: Option<(Arc<str>, Arc<str>)>,
}

impl LabelKey {
    /// This label.
    fn of(namespace: &Namespace, (key, value): (&Arc<str>, &Arc<str>)) -> Self {
        Self { namespace: namespace.clone(), label: Some((key.clone(), value.clone())) }
    }

    /// Every workload of the namespace.
    fn every(namespace: &Namespace) -> Self {
        Self { namespace: namespace.clone(), label: None }
    }
}

/// Selectors by the first label that each asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct SelectorIndex {
    /// By whose they are.
    selectors: FxHashMap<NamespacedName, Labels>,
    /// Whose they are, by their first label.
    by_label: Multimap<LabelKey, NamespacedName>,
}

impl SelectorIndex {
    /// Puts the selector of an object, or takes it away. Gives the former one.
    pub(super) fn put(&mut self, owner: &NamespacedName, selector: Option<Labels>) -> Option<Labels> {
        let old = self.selectors.remove(owner);
        if let Some(old) = &old {
            self.by_label.remove(&anchor(&owner.namespace, old), owner);
        }
        if let Some(selector) = selector {
            self.by_label.insert(anchor(&owner.namespace, &selector), owner.clone());
            self.selectors.insert(owner.clone(), selector);
        }
        old
    }

    /// The objects of a namespace whose selector selects these labels, by name.
    #[must_use]
    pub(super) fn selecting(&self, namespace: &Namespace, labels: &Labels) -> BTreeSet<NamespacedName> {
        let anchors = labels.iter().map(|label| LabelKey::of(namespace, label)).chain([LabelKey::every(namespace)]);
        let mut found = BTreeSet::new();
        for anchor in anchors {
            let candidates = self.by_label.get(&anchor);
            found.extend(
                candidates.filter(|owner| self.selectors.get(*owner).is_some_and(|s| selects(s, labels))).cloned(),
            );
        }
        found
    }
}

/// Under which label a selector is found.
fn anchor(namespace: &Namespace, selector: &Labels) -> LabelKey {
    selector.iter().next().map_or_else(|| LabelKey::every(namespace), |label| LabelKey::of(namespace, label))
}

/// Things with labels, by label.
#[derive(Clone, Debug)]
pub(super) struct LabelIndex<T> {
    /// Things by each of their labels.
    by_label: Multimap<LabelKey, T>,
}

impl<T> Default for LabelIndex<T> {
    fn default() -> Self {
        Self { by_label: Multimap::default() }
    }
}

impl<T: Clone + Ord + Hash> LabelIndex<T> {
    /// Adds something with these labels.
    pub(super) fn insert(&mut self, namespace: &Namespace, labels: &Labels, item: &T) {
        for label in labels {
            self.by_label.insert(LabelKey::of(namespace, label), item.clone());
        }
        self.by_label.insert(LabelKey::every(namespace), item.clone());
    }

    /// Takes something that had these labels away.
    pub(super) fn remove(&mut self, namespace: &Namespace, labels: &Labels, item: &T) {
        for label in labels {
            self.by_label.remove(&LabelKey::of(namespace, label), item);
        }
        self.by_label.remove(&LabelKey::every(namespace), item);
    }

    /// What may be selected: all that have the rarest of the labels that the selector asks for. To be looked at closely.
    pub(super) fn candidates(&self, namespace: &Namespace, selector: &Labels) -> impl Iterator<Item = &T> {
        let keys = selector.iter().map(|label| LabelKey::of(namespace, label));
        let rarest = keys.min_by_key(|key| self.by_label.count(key));
        self.by_label.get(&rarest.unwrap_or_else(|| LabelKey::every(namespace))).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn selectors_find_those_who_have_all_labels_in_their_namespace() {
        let mut index = SelectorIndex::default();
        let name = |name: &str| NamespacedName::new("shop", name);
        index.put(&name("web"), Some(labels(&[("app", "web"), ("tier", "1")])));
        index.put(&name("every"), Some(Labels::new()));
        index.put(&NamespacedName::new("bank", "web"), Some(labels(&[("app", "web")])));
        let found = |index: &SelectorIndex, pairs: &[(&str, &str)]| {
            let found = index.selecting(&Namespace::new("shop"), &labels(pairs));
            found.iter().map(|name| name.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(found(&index, &[("app", "web"), ("tier", "1"), ("x", "y")]), ["every", "web"]);
        assert_eq!(found(&index, &[("app", "web")]), ["every"]);
        assert_eq!(index.put(&name("every"), None), Some(Labels::new()));
        assert_eq!(found(&index, &[]), Vec::<String>::new());
    }

    #[test]
    fn candidates_have_the_rarest_label() {
        let mut index = LabelIndex::default();
        let shop = Namespace::new("shop");
        for number in 0..5 {
            index.insert(&shop, &labels(&[("app", "web"), ("id", &number.to_string())]), &number);
        }
        let found = |index: &LabelIndex<i32>, pairs: &[(&str, &str)]| {
            index.candidates(&shop, &labels(pairs)).copied().collect::<Vec<_>>()
        };
        assert_eq!(found(&index, &[("app", "web"), ("id", "3")]), [3]);
        assert_eq!(found(&index, &[("app", "bank"), ("id", "3")]), Vec::<i32>::new());
        index.remove(&shop, &labels(&[("app", "web"), ("id", "3")]), &3);
        assert_eq!(found(&index, &[]), [0, 1, 2, 4]);
    }
}

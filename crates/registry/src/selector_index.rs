//! Indexes of selectors and of labelled objects, to find matches without checking every object.

use std::sync::Arc;

use super::model::Labels;
use super::workload_labels::WorkloadLabels;
use navarch_api::names::Namespace;
use navarch_tables::hash_index::HashIndex;

/// Whether labels contain all labels of a selector. An empty selector matches everything.
#[must_use]
pub fn selects<'a>(selector: &Labels, labels: impl Into<WorkloadLabels<'a>>) -> bool {
    let labels = labels.into();
    selector.len() <= labels.max_len()
        && selector
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
}

/// The key of one label within a namespace. `None` is the key of empty selectors, which match every
/// workload.
fn key<'a>(
    namespace: &'a Namespace,
    label: Option<(&'a Arc<str>, &'a Arc<str>)>,
) -> impl std::hash::Hash + 'a {
    (
        namespace.as_str(),
        label.map(|(key, value)| (&**key, &**value)),
    )
}

/// The numbers of objects with a selector, each by the first label of its selector.
#[derive(Clone, Debug, Default)]
pub(super) struct SelectorIndex {
    by_label: HashIndex,
}

impl SelectorIndex {
    /// Adds the selector of an object.
    pub(super) fn insert(&mut self, namespace: &Namespace, selector: &Labels, number: u32) {
        self.by_label
            .insert(&key(namespace, selector.iter().next()), number);
    }

    /// Removes the selector of an object.
    pub(super) fn remove(&mut self, namespace: &Namespace, selector: &Labels, number: u32) {
        self.by_label
            .remove(&key(namespace, selector.iter().next()), number);
    }

    /// The objects whose selectors may match these labels in a namespace. The caller must check
    /// each.
    #[must_use]
    pub(super) fn candidates<'a>(
        &self,
        namespace: &Namespace,
        labels: impl Into<WorkloadLabels<'a>>,
    ) -> Vec<u32> {
        // Each pod asks for ServiceEntries that select it, and most meshes have none.
        if self.by_label.is_empty() {
            return Vec::new();
        }

        let labels = labels.into().iter().map(Some).chain([None]);
        let mut found: Vec<u32> = labels
            .flat_map(|label| self.by_label.get(&key(namespace, label)))
            .copied()
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The numbers of objects with labels, by label.
#[derive(Clone, Debug, Default)]
pub(super) struct LabelIndex {
    /// By each label, and by `None` for empty selectors.
    by_label: HashIndex,
}

impl LabelIndex {
    /// Adds an object with these labels.
    pub(super) fn insert<'a>(
        &mut self,
        namespace: &Namespace,
        labels: impl Into<WorkloadLabels<'a>>,
        number: u32,
    ) {
        for label in labels.into().iter().map(Some).chain([None]) {
            self.by_label.insert(&key(namespace, label), number);
        }
    }

    /// Removes an object that had these labels.
    pub(super) fn remove<'a>(
        &mut self,
        namespace: &Namespace,
        labels: impl Into<WorkloadLabels<'a>>,
        number: u32,
    ) {
        for label in labels.into().iter().map(Some).chain([None]) {
            self.by_label.remove(&key(namespace, label), number);
        }
    }

    /// The objects that a selector may match: all that have the rarest of its labels. The caller
    /// must check each.
    #[must_use]
    pub(super) fn candidates(&self, namespace: &Namespace, selector: &Labels) -> &[u32] {
        let of = |label| self.by_label.get(&key(namespace, label));
        selector
            .iter()
            .map(|label| of(Some(label)))
            .min_by_key(|found| found.len())
            .unwrap_or_else(|| of(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect()
    }

    #[test]
    fn selectors_are_found_by_their_first_label_in_their_namespace() {
        let mut index = SelectorIndex::default();
        let shop = Namespace::new("shop");
        index.insert(&shop, &labels(&[("app", "web"), ("tier", "1")]), 1);
        index.insert(&shop, &Labels::new(), 2);
        index.insert(&Namespace::new("bank"), &labels(&[("app", "web")]), 3);
        let found =
            |index: &SelectorIndex, pairs: &[(&str, &str)]| index.candidates(&shop, &labels(pairs));
        assert_eq!(found(&index, &[("app", "web"), ("x", "y")]), [1, 2]);
        assert_eq!(found(&index, &[("tier", "1")]), [2]);
        index.remove(&shop, &Labels::new(), 2);
        assert_eq!(found(&index, &[]), [] as [u32; 0]);
    }

    #[test]
    fn candidates_have_the_rarest_label() {
        let mut index = LabelIndex::default();
        let shop = Namespace::new("shop");

        for number in 0..5 {
            index.insert(
                &shop,
                &labels(&[("app", "web"), ("id", &number.to_string())]),
                number,
            );
        }

        let found = |index: &LabelIndex, pairs: &[(&str, &str)]| {
            index.candidates(&shop, &labels(pairs)).to_vec()
        };
        assert_eq!(found(&index, &[("app", "web"), ("id", "3")]), [3]);
        assert_eq!(
            found(&index, &[("app", "bank"), ("id", "3")]),
            [] as [u32; 0]
        );

        index.remove(&shop, &labels(&[("app", "web"), ("id", "3")]), 3);
        assert_eq!(found(&index, &[]), [0, 1, 2, 4]);
    }
}

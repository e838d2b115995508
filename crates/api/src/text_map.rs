//! Small maps of text, such as labels: one allocation for all entries, shared by all copies.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Index;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::shared_texts::{HasTexts, SharedTexts};

/// Texts by text, in the order of the keys.
///
/// Most objects have up to five labels, and every object has its own map: nodes and buckets would
/// take several times the size of the content. A clone increments a reference count, a lookup in a
/// large map is a binary search, a change copies all entries.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextMap(Arc<[TextPair]>);

/// Maps up to this size are searched from the start.
const MAX_SCANNED: usize = 16;

/// A key and its value.
type TextPair = (Arc<str>, Arc<str>);

impl TextMap {
    /// An empty map, which allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A map of entries in the order of their keys, each key once.
    pub(super) fn of_sorted(entries: impl Iterator<Item = TextPair>) -> Self {
        let map = Self(entries.collect());
        debug_assert!(map.0.is_sorted_by(|(one, _), (other, _)| one < other));
        map
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &(impl Borrow<str> + ?Sized)) -> Option<&Arc<str>> {
        let at = self.position(key.borrow())?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Whether the map contains a key.
    #[must_use]
    pub fn contains_key(&self, key: &(impl Borrow<str> + ?Sized)) -> bool {
        self.position(key.borrow()).is_some()
    }

    /// The entries in the order of their keys.
    pub fn iter(&self) -> Iter<'_> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|(key, _)| key)
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Inserts the value of a key, or replaces it. Copies all entries.
    pub fn insert(&mut self, key: Arc<str>, value: Arc<str>) {
        self.extend([(key, value)]);
    }

    /// The entries, to be replaced by equal ones; empty once the map was cloned.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut TextPair> {
        Arc::get_mut(&mut self.0).into_iter().flatten()
    }

    /// The index of a key.
    fn position(&self, key: &str) -> Option<usize> {
        // Most keys differ in length, and lengths are beside each other.
        if self.0.len() <= MAX_SCANNED {
            return self.0.iter().position(|(other, _)| **other == *key);
        }

        self.0
            .binary_search_by(|(other, _)| (**other).cmp(key))
            .ok()
    }
}

/// Iterates over entries.
pub type Iter<'a> = std::iter::Map<
    std::slice::Iter<'a, TextPair>,
    fn(&'a TextPair) -> (&'a Arc<str>, &'a Arc<str>),
>;

impl HasTexts for TextMap {
    fn share(&mut self, texts: &mut SharedTexts) {
        texts.share_map(self);
    }
}

impl fmt::Debug for TextMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for TextMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl FromIterator<TextPair> for TextMap {
    /// Of entries with the same key, the last is used.
    fn from_iter<I: IntoIterator<Item = TextPair>>(entries: I) -> Self {
        // Uses a map only if the entries are not in the order of their keys, which is rare.
        let entries: Vec<TextPair> = entries.into_iter().collect();
        if entries.is_sorted_by(|(one, _), (other, _)| one < other) {
            return if entries.is_empty() {
                Self::default()
            } else {
                Self(entries.into())
            };
        }
        Self(
            entries
                .into_iter()
                .collect::<BTreeMap<_, _>>()
                .into_iter()
                .collect(),
        )
    }
}

impl Extend<TextPair> for TextMap {
    fn extend<I: IntoIterator<Item = TextPair>>(&mut self, entries: I) {
        let mut entries = entries.into_iter().peekable();
        if entries.peek().is_some() {
            *self = self.0.iter().cloned().chain(entries).collect();
        }
    }
}

impl<const N: usize> From<[TextPair; N]> for TextMap {
    fn from(entries: [TextPair; N]) -> Self {
        entries.into_iter().collect()
    }
}

impl From<BTreeMap<Arc<str>, Arc<str>>> for TextMap {
    fn from(entries: BTreeMap<Arc<str>, Arc<str>>) -> Self {
        entries.into_iter().collect()
    }
}

impl<'a> IntoIterator for &'a TextMap {
    type Item = (&'a Arc<str>, &'a Arc<str>);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl Index<&str> for TextMap {
    type Output = Arc<str>;

    /// The value of a key that the map must contain.
    fn index(&self, key: &str) -> &Arc<str> {
        self.get(key)
            .expect("callers index only with existing keys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> TextMap {
        entries
            .iter()
            .map(|(key, value)| (Arc::from(*key), Arc::from(*value)))
            .collect()
    }

    #[test]
    fn entries_are_found_whatever_order_they_came_in() {
        let one = map(&[("b", "2"), ("a", "1"), ("c", "3"), ("a", "last")]);
        assert_eq!(one, map(&[("a", "last"), ("b", "2"), ("c", "3")]));
        assert_eq!(one.get("a").map(|value| &**value), Some("last"));
        assert!(one.contains_key("c") && !one.contains_key("") && !one.contains_key("d"));
        assert_eq!(format!("{one:?}"), r#"{"a": "last", "b": "2", "c": "3"}"#);
        assert_eq!(
            serde_json::to_string(&one).unwrap(),
            r#"{"a":"last","b":"2","c":"3"}"#
        );
    }

    #[test]
    fn entries_of_a_large_map_are_found() {
        let keys: Vec<String> = (0..3 * MAX_SCANNED).map(|key| key.to_string()).collect();
        let pairs: Vec<(&str, &str)> = keys.iter().map(|key| (&**key, &**key)).collect();
        let large = map(&pairs);

        for (key, value) in pairs {
            assert_eq!(large.get(key).map(|value| &**value), Some(value));
        }
        assert!(!large.contains_key("") && !large.contains_key("x"));
    }

    #[test]
    fn a_copy_stays_when_the_original_changes() {
        let mut one = map(&[("a", "1")]);
        let copy = one.clone();
        one.insert("0".into(), "0".into());
        one.extend([]);
        assert_eq!(one, map(&[("0", "0"), ("a", "1")]));
        assert_eq!(copy, map(&[("a", "1")]));
    }

    #[test]
    fn shared_texts_are_one() {
        let mut texts = SharedTexts::default();
        // One text in all: of two, the later may take the place of the other.
        let mut one = map(&[("app", "")]);
        let mut other = map(&[("app", "app")]);
        one.share(&mut texts);
        other.share(&mut texts);
        let key = |map: &TextMap| map.keys().next().cloned().unwrap();
        assert!(Arc::ptr_eq(&key(&one), &key(&other)));
        assert_eq!(other, map(&[("app", "app")]));
    }
}

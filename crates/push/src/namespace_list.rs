//! Lists of namespaces in which those of proxies are looked up.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use navarch_api::names::Namespace;
use navarch_tables::hash::keyed_hash;

/// Namespaces, sorted, each once.
///
/// It is a part of [`Attr::NamespaceAmong`](super::attr::Attr), by which results are found: for each
/// proxy or namespace it is copied, hashed and compared, and it may have all namespaces of the mesh.
/// Copies share the names, and the hash is computed once.
#[derive(Clone)]
pub struct NamespaceList {
    names: Arc<[Namespace]>,
    hash: u64,
}

impl NamespaceList {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn contains(&self, namespace: &Namespace) -> bool {
        self.names.binary_search(namespace).is_ok()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.names.iter()
    }
}

impl FromIterator<Namespace> for NamespaceList {
    fn from_iter<I: IntoIterator<Item = Namespace>>(namespaces: I) -> Self {
        let mut names: Vec<Namespace> = namespaces.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        Self {
            hash: keyed_hash(&names),
            names: names.into(),
        }
    }
}

impl Default for NamespaceList {
    fn default() -> Self {
        Self::from_iter([])
    }
}

impl PartialEq for NamespaceList {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.names, &other.names)
            || self.hash == other.hash && self.names == other.names
    }
}

impl Eq for NamespaceList {}

impl Hash for NamespaceList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for NamespaceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> NamespaceList {
        names.iter().map(Namespace::new).collect()
    }

    #[test]
    fn equal_lists_are_equal_keys_in_whatever_order_they_were_made() {
        let one = list(&["shop", "bank", "shop"]);
        let other = list(&["bank", "shop"]);
        assert_eq!(one, other);
        assert_eq!(keyed_hash(&one), keyed_hash(&other));
        assert_ne!(one, list(&["bank"]));
        assert_eq!(NamespaceList::default(), list(&[]));
    }

    #[test]
    fn namespaces_are_found_in_sorted_lists() {
        let list = list(&["shop", "bank"]);
        assert!(list.contains(&Namespace::new("bank")));
        assert!(!list.contains(&Namespace::new("zoo")));
        let names: Vec<&str> = list.iter().map(Namespace::as_str).collect();
        assert_eq!(names, ["bank", "shop"]);
    }
}

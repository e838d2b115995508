//! Hash tables with a random key. Hashes without one are predictable: an attacker can choose names
//! that collide, and each insertion then costs time linear in the size of the table.
//!
//! All tables of Navarch, except `BTreeMap`, are of these types or of std's; a test in
//! `tests/house/main.rs` rejects other hashers. These types are about as fast as hashers without a key,
//! std's are several times slower.

use std::hash::Hash;
use std::sync::LazyLock;

use ahash::RandomState;

/// A map with a random key of its own.
pub type KeyedMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// A set with a random key of its own.
pub type KeyedSet<T> = std::collections::HashSet<T, RandomState>;

/// The key of hashes that are compared with each other.
static PROCESS_KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The hash of a value: equal for equal values within the process, different in another process.
#[must_use]
pub fn keyed_hash(value: &(impl Hash + ?Sized)) -> u64 {
    PROCESS_KEY.hash_one(value)
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use rustc_hash::FxBuildHasher;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri takes minutes to find such names")]
    fn names_that_collide_without_a_key_do_not_with_one() {
        let names = crate::colliding_names::colliding_names(1000);
        let without: std::collections::BTreeSet<u64> = names
            .iter()
            .map(|name| FxBuildHasher.hash_one(name))
            .collect();
        let with: std::collections::BTreeSet<u64> = names.iter().map(keyed_hash).collect();
        assert_eq!((without.len(), with.len()), (1, names.len()));
    }

    #[test]
    fn str_and_string_have_equal_hashes() {
        assert_eq!(keyed_hash("name"), keyed_hash(&String::from("name")));
        assert_ne!(keyed_hash("name"), keyed_hash("eman"));
    }
}

//! Hash tables with a random key. Hashes without one can be foreseen: whoever chooses names chooses ones that collide, and
//! each insertion then costs as much as the table is long.
//!
//! All tables of the crate that are no `BTreeMap` are of these types or of std's; a test in `tests/house.rs` keeps other
//! hashers out. They cost about as much as ones without a key, std's several times as much.

use std::hash::Hash;
use std::sync::LazyLock;

use ahash::RandomState;

/// A map with a random key of its own.
pub type KeyedMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// A set with a random key of its own.
pub type KeyedSet<T> = std::collections::HashSet<T, RandomState>;

/// The key of hashes that are compared with each other.
static PROCESS_KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The hash of a value: equal for equal values within the process, another in the next.
#[must_use]
pub fn keyed_hash(value: &(impl Hash + ?Sized)) -> u64 {
    PROCESS_KEY.hash_one(value)
}

/// Names that hashes without a key put into one place.
#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "a hash folds its upper half onto its lower")]
pub(crate) mod flood {
    /// The seed and the factor of rustc-hash.
    const SEED: u64 = 0x243f_6a88_85a3_08d3;
    const FACTOR: u64 = 0xa409_3822_299f_31d0;

    /// What rustc-hash makes of the first 16 bytes of a text.
    fn folded(first: &[u8; 16]) -> u64 {
        let half = |at: usize| u64::from_le_bytes(first[at..at + 8].try_into().unwrap());
        let product = u128::from(SEED ^ half(0)) * u128::from(FACTOR ^ half(8));
        (product as u64) ^ (product >> 64) as u64
    }

    /// Names of clusters with one hash in rustc-hash: what follows on its intermediate result cancels that, so that what comes
    /// next, a number, is multiplied by zero.
    pub(crate) fn colliding_names(count: u32) -> Vec<String> {
        let letters = || (b'a'..=b'z').chain(b'A'..=b'Z').chain(b'0'..=b'9');
        let mut firsts = letters().flat_map(|a| letters().flat_map(move |b| letters().map(move |c| [a, b, c])));
        let is_printable = |result: &u64| result.to_le_bytes().iter().all(|byte| (0x21..0x7f).contains(byte));
        let (first, result) = firsts
            .find_map(|end| {
                let first: [u8; 16] = [b"outbound|80||".as_slice(), &end].concat().try_into().unwrap();
                Some((first, folded(&first))).filter(|(_, result)| is_printable(result))
            })
            .unwrap();
        let head = [&first[..], &[b'a'; 16], &result.to_le_bytes()].concat();
        let head = String::from_utf8(head).unwrap();
        (0..count).map(|number| format!("{head}{number:08x}svc.cluster.local")).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use rustc_hash::FxBuildHasher;

    use super::*;

    #[test]
    fn names_that_collide_without_a_key_do_not_with_one() {
        let names = flood::colliding_names(1000);
        let without: std::collections::BTreeSet<u64> = names.iter().map(|name| FxBuildHasher.hash_one(name)).collect();
        let with: std::collections::BTreeSet<u64> = names.iter().map(keyed_hash).collect();
        assert_eq!((without.len(), with.len()), (1, names.len()));
    }

    #[test]
    fn texts_and_what_they_are_borrowed_from_have_one_hash() {
        assert_eq!(keyed_hash("name"), keyed_hash(&String::from("name")));
        assert_ne!(keyed_hash("name"), keyed_hash("eman"));
    }
}

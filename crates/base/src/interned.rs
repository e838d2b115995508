//! One copy of values that many objects repeat, as long as one of them is in use.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use navarch_tables::hash::KeyedMap;

/// Values in use. Clones share them.
#[derive(Clone)]
pub struct Interned<T>(Arc<Mutex<Known<T>>>);

struct Known<T> {
    /// By hash. Of two values with one hash the first is kept.
    values: KeyedMap<u64, T>,
    /// The number of values at which those that are not in use are dropped.
    limit: usize,
}

const FIRST_LIMIT: usize = 64;

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Known {
            values: KeyedMap::default(),
            limit: FIRST_LIMIT,
        })))
    }
}

impl<T> fmt::Debug for Interned<T> {
    /// Other objects contain the values: they are not shown here.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interned")
    }
}

impl<T> PartialEq for Interned<T> {
    /// They save memory and have no meaning: all are equal.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T: Clone> Interned<T> {
    /// The kept value of this hash if `is_it` returns true for it, else a new one, which is kept
    /// from then on. `is_used` returns whether a kept value has other copies.
    pub fn get_or_insert(
        &self,
        hash: u64,
        is_it: impl Fn(&T) -> bool,
        is_used: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> T {
        let mut known = self.0.lock();
        if let Some(kept) = known.values.get(&hash) {
            return if is_it(kept) { kept.clone() } else { make() };
        }
        if known.values.len() >= known.limit {
            known.values.retain(|_, value| is_used(value));
            known.limit = FIRST_LIMIT.max(known.values.len() * 3 / 2);
            let limit = known.limit;
            known.values.shrink_to(limit);
        }
        let new = make();
        known.values.insert(hash, new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_tables::hash::keyed_hash;

    #[test]
    fn values_in_use_are_one_and_others_are_dropped() {
        let interned: Interned<Arc<str>> = Interned::default();
        let get = |text: &str| {
            let is_used = |kept: &Arc<str>| Arc::strong_count(kept) > 1;
            interned.get_or_insert(
                keyed_hash(text),
                |kept| **kept == *text,
                is_used,
                || text.into(),
            )
        };
        let first = get("web");
        for number in 0..10 * FIRST_LIMIT {
            assert_eq!(*get(&number.to_string()), *number.to_string());
        }
        assert!(interned.0.lock().values.len() <= FIRST_LIMIT);
        assert!(Arc::ptr_eq(&first, &get("web")));
    }

    #[test]
    fn values_with_equal_hashes_are_distinguished() {
        let interned: Interned<Arc<str>> = Interned::default();
        let get = |text: &str| {
            interned.get_or_insert(7, |kept| **kept == *text, |_| true, || text.into())
        };
        assert_eq!(
            [get("a"), get("b"), get("a")].map(|text| text.to_string()),
            ["a", "b", "a"]
        );
    }
}

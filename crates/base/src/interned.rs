//! One copy of values that many objects repeat, as long as one of them is in use.

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use navarch_tables::hash::{KeyedMap, keyed_hash};

/// Values in use. Clones share them.
pub struct Interned<T>(Arc<Mutex<Known<T>>>);

struct Known<T> {
    /// By hash. Of two values with one hash the first is kept, and the other is not shared, which
    /// costs memory but is correct.
    values: KeyedMap<u64, Weak<T>>,
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

impl<T> Clone for Interned<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
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

impl<T: Hash + Eq> Interned<T> {
    /// The copy of this value that is in use, else `value` itself, which is shared from then on.
    /// Costs a hash of it.
    #[must_use]
    pub fn intern(&self, value: &Arc<T>) -> Arc<T> {
        let hash = keyed_hash(&**value);
        self.get_or_insert(hash, |known| *known == **value, || value.clone())
    }
}

impl<T> Interned<T> {
    /// The value of this hash that is in use if `is_it` returns true for it, else a new one, which
    /// is shared from then on.
    pub fn get_or_insert(
        &self,
        hash: u64,
        is_it: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Arc<T>,
    ) -> Arc<T> {
        let mut known = self.0.lock();
        if known.values.len() >= known.limit {
            known.drop_unused();
        }

        let place = known.values.entry(hash).or_default();
        match place.upgrade() {
            Some(used) if is_it(&used) => used,
            Some(_) => make(),
            None => {
                let new = make();
                *place = Arc::downgrade(&new);
                new
            }
        }
    }
}

impl<T> Known<T> {
    fn drop_unused(&mut self) {
        self.values.retain(|_, value| value.strong_count() > 0);
        self.limit = FIRST_LIMIT.max(self.values.len() * 3 / 2);
        self.values.shrink_to(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_use_are_one_and_others_are_dropped() {
        let interned = Interned::default();
        let get = |text: &str| interned.intern(&Arc::new(text.to_owned()));

        let first = get("web");
        for number in 0..10 * FIRST_LIMIT {
            assert_eq!(*get(&number.to_string()), number.to_string());
        }

        assert!(interned.0.lock().values.len() <= FIRST_LIMIT);
        assert!(Arc::ptr_eq(&first, &get("web")));
    }

    #[test]
    fn values_with_equal_hashes_are_distinguished() {
        let interned = Interned::default();
        let get = |text: &str| {
            let make = || Arc::new(text.to_owned());
            interned.get_or_insert(7, |known: &String| known == text, make)
        };

        let first = get("a");
        assert_eq!(*get("b"), "b");
        assert!(Arc::ptr_eq(&first, &get("a")));
    }
}

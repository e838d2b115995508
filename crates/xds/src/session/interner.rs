//! One copy of equal values: a thousand identical proxies subscribe to the same thousand names.

use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use navarch_tables::hash::{KeyedMap, keyed_hash};

/// Returns the same allocation for equal values, as long as it is in use.
#[derive(Debug)]
pub(crate) struct Interner<T> {
    /// The copies by hash.
    known: Mutex<KeyedMap<u64, Weak<T>>>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
        }
    }
}

impl<T: Hash + Eq> Interner<T> {
    /// Returns the shared copy of `value`, or `value` itself if there was none. Costs a hash of it.
    pub(crate) fn intern(&self, value: Arc<T>) -> Arc<T> {
        let hash = keyed_hash(&*value);
        let mut known = self.known.lock();
        if let Some(found) = known.get(&hash).and_then(Weak::upgrade) {
            // If two values have the same hash, the later one is not shared, which costs memory but
            // is correct.
            return if *found == *value { found } else { value };
        }
        if known.len() == known.capacity() {
            known.retain(|_, value| value.strong_count() > 0);
        }
        known.insert(hash, Arc::downgrade(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_shared_and_unused_ones_freed() {
        let interner = Interner::default();
        let one = interner.intern(Arc::new("a".to_owned()));
        let other = interner.intern(Arc::new("a".to_owned()));
        assert!(Arc::ptr_eq(&one, &other));
        for number in 0..10_000 {
            interner.intern(Arc::new(number.to_string()));
        }
        assert!(interner.known.lock().len() < 1000);
        assert!(Arc::ptr_eq(
            &one,
            &interner.intern(Arc::new("a".to_owned()))
        ));
    }
}

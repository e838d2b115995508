//! Values that are queued in any order, and taken in order, each once.

use std::mem;

/// The least number of values that are sorted before they are taken.
const FIRST_LIMIT: usize = 1024;

/// A set that is filled first, then taken as a whole. Thousands of names are queued at once when a
/// cluster is read: to sort them at the end costs a few comparisons each, and next to none if they
/// were queued in order, where a `BTreeSet` compares each with a path of its tree.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    /// May contain a value several times.
    values: Vec<T>,
    /// The number of values at which those that are queued several times are dropped.
    limit: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            limit: FIRST_LIMIT,
        }
    }
}

impl<T: Ord> Queue<T> {
    /// Adds a value. The memory is proportional to the number of different values.
    pub(super) fn insert(&mut self, value: T) {
        // The same value is mostly queued several times in a row.
        if self.values.last() == Some(&value) {
            return;
        }

        self.values.push(value);

        if self.values.len() >= self.limit {
            self.sort();
            self.limit = FIRST_LIMIT.max(2 * self.values.len());
        }
    }

    /// Takes the values, in order; the queue is empty then.
    pub(super) fn take(&mut self) -> Vec<T> {
        self.sort();
        mem::take(self).values
    }

    fn sort(&mut self) {
        self.values.sort();
        self.values.dedup();
    }
}

impl<T: Ord> Extend<T> for Queue<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.insert(value));
    }
}

impl<T: Ord> FromIterator<T> for Queue<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut queue = Self::default();
        queue.extend(values);
        queue
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn values_are_taken_in_order_and_once() {
        let mut queue = Queue::from_iter([3, 1, 3, 3, 2, 1]);
        queue.extend([0, 5]);
        assert_eq!(queue.take(), [0, 1, 2, 3, 5]);
        assert_eq!(queue.take(), [] as [i32; 0]);
    }

    #[test]
    fn values_that_are_queued_again_and_again_take_no_memory() {
        let mut queue = Queue::default();
        let numbers = (0..100 * FIRST_LIMIT).map(|number| number * 7919 % 1500);
        queue.extend(numbers.clone());
        assert!(queue.values.len() < 2 * 1500);
        assert!(
            queue
                .take()
                .into_iter()
                .eq(numbers.collect::<BTreeSet<_>>())
        );
    }
}

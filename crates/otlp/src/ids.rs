//! Ids of traces and spans.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// The id of a trace; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceId([u8; 16]);

/// The id of a span; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanId([u8; 8]);

/// Where ids come from: numbers, hashed with a key that the operating system chose at random.
#[derive(Debug, Default)]
pub struct Ids {
    key: RandomState,
    count: AtomicU64,
}

impl Ids {
    /// The next trace's.
    pub fn trace(&self) -> TraceId {
        let mut id = [0; 16];
        let halves = id.chunks_exact_mut(8);
        halves.for_each(|half| half.copy_from_slice(&self.next().to_be_bytes()));
        TraceId(id)
    }

    /// The next span's.
    pub fn span(&self) -> SpanId {
        SpanId(self.next().to_be_bytes())
    }

    /// A number that none can foretell who does not know the key.
    fn next(&self) -> u64 {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        self.key.hash_one(number).max(1)
    }
}

impl TraceId {
    /// As it is sent.
    #[must_use]
    pub fn bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }

    /// Its lower half, by which a share of traces is taken.
    pub(crate) fn lower(self) -> u64 {
        let lower = self.0.iter().skip(8);
        lower.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

impl SpanId {
    /// As it is sent.
    #[must_use]
    pub fn bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_ids_are_the_same_in_one_process_or_two() {
        let one = Ids::default();
        let other = Ids::default();
        let spans: BTreeSet<_> = (0..1000).flat_map(|_| [one.span(), other.span()]).collect();
        let traces: BTreeSet<_> = (0..1000)
            .flat_map(|_| [one.trace(), other.trace()])
            .collect();
        assert_eq!((spans.len(), traces.len()), (2000, 2000));
        assert_eq!(
            TraceId([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 1, 2]).lower(),
            0x102
        );
    }
}

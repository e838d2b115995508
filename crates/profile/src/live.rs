//! The sampled blocks of memory, and the stack that allocated each: a table of fixed size, without
//! locks.
//!
//! The thread that allocates a block adds it, and the thread that frees it removes it, so two
//! threads never change the entry of one block at once.

use std::sync::atomic::{AtomicU64, Ordering};

/// The alignment of sampled blocks, by which a free recognizes most other blocks without a lookup.
/// Each sampled block wastes at most as much, 0.2% of all allocated memory.
pub(crate) const ALIGNMENT: usize = 1024;
/// A bucket is one cache line. With 64 KiB words, about 16 GB in use can be tracked; allocations
/// that find the table full are not sampled.
const BUCKETS: usize = 4096;
const ADDRESS_BITS: u32 = 48;

#[repr(align(64))]
struct Bucket([AtomicU64; 8]);

static TABLE: [Bucket; BUCKETS] = [const { Bucket([const { AtomicU64::new(0) }; 8]) }; BUCKETS];

/// The address without the low bits, which are zero; it has 48 bits, and 0 is no address.
fn key(address: usize) -> Option<u64> {
    let key = (address / ALIGNMENT) as u64;
    (address.is_multiple_of(ALIGNMENT) && key > 0 && key >> ADDRESS_BITS == 0).then_some(key)
}

fn bucket(key: u64) -> &'static [AtomicU64; 8] {
    let place = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - BUCKETS.ilog2());
    let bucket = usize::try_from(place)
        .ok()
        .and_then(|place| TABLE.get(place));
    &bucket.expect("as many bits as there are buckets").0
}

/// Records that `stack` allocated the block at an address. Returns false if its bucket is full.
pub(crate) fn insert(address: usize, stack: u16) -> bool {
    let Some(key) = key(address) else {
        return false;
    };
    let word = key | u64::from(stack) << ADDRESS_BITS;
    bucket(key).iter().any(|slot| {
        slot.load(Ordering::Relaxed) == 0
            && slot
                .compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    })
}

/// The entry of a block with its stack, if it is sampled.
fn find(address: usize) -> Option<(&'static AtomicU64, u16)> {
    let key = key(address)?;
    bucket(key).iter().find_map(|slot| {
        let word = slot.load(Ordering::Relaxed);
        let stack = u16::try_from(word >> ADDRESS_BITS).unwrap_or_default();
        (word & ((1 << ADDRESS_BITS) - 1) == key).then_some((slot, stack))
    })
}

/// Whether the block at an address is sampled.
pub(crate) fn contains(address: usize) -> bool {
    find(address).is_some()
}

/// Removes the block at an address, if it is sampled, and returns the stack that allocated it.
pub(crate) fn remove(address: usize) -> Option<u16> {
    let (slot, stack) = find(address)?;
    slot.store(0, Ordering::Relaxed);
    Some(stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_until_they_are_removed() {
        let stack = |block: usize| u16::try_from(block % 60_000).unwrap();
        let blocks: Vec<usize> = (1..=2000).map(|block| block * 7 * ALIGNMENT).collect();
        let taken: Vec<usize> = blocks
            .into_iter()
            .filter(|block| insert(*block, stack(*block)))
            .collect();
        assert!(taken.len() > 1990, "{}", taken.len());
        assert!(!contains(taken[0] + 16) && !contains(ALIGNMENT * 3) && !contains(0));
        for block in &taken {
            assert!(contains(*block));
            assert_eq!(remove(*block), Some(stack(*block)));
            assert!(!contains(*block) && remove(*block).is_none());
        }
    }

    #[test]
    fn unrepresentable_addresses_are_not_recorded() {
        assert!(
            !insert(0, 1) && !insert(ALIGNMENT + 8, 1) && !insert(usize::MAX - ALIGNMENT + 1, 1)
        );
    }
}

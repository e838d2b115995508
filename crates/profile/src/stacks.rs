//! The stacks of sampled allocations, with their sums: a table of fixed size, without locks or
//! allocation. Entries are never removed; a page of the table takes memory when it is first used.

use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Maximum number of distinct stacks. Allocations of further stacks count for the first entry,
/// which has no frames.
const MAX_STACKS: usize = 8192;
/// The maximum number of frames of all stacks together.
const MAX_FRAMES: usize = 512 * 1024;
const INDEX: usize = 2 * MAX_STACKS;
/// The maximum distance of a stack from its slot in the index.
const PROBES: usize = 32;

/// The allocations of a stack, as [`Weight`]s, since the process began.
struct StackEntry {
    /// `first_frame << 8 | frame_count`.
    frames: AtomicU64,
    allocated: Sum,
    freed: Sum,
}

struct Sum {
    objects: AtomicU64,
    bytes: AtomicU64,
}

/// The weight of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// In 256ths.
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

/// A stack with the sums of its allocations.
#[derive(Debug)]
pub(crate) struct StackSample {
    /// Without frames that lie too far from the program's own code.
    pub(crate) frames: Vec<usize>,
    pub(crate) allocated: Weight,
    pub(crate) in_use: Weight,
}

impl Weight {
    fn sum(self, other: Self) -> Self {
        Self {
            objects: self.objects + other.objects,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl StackEntry {
    /// The allocated weight, and the part of it that is in use.
    fn sums(&self) -> (Weight, Weight) {
        // Read the freed weight first, or a concurrent free could make it larger than the allocated
        // weight.
        let freed = self.freed.get();
        let allocated = self.allocated.get();
        let in_use = Weight {
            objects: allocated.objects.saturating_sub(freed.objects),
            bytes: allocated.bytes.saturating_sub(freed.bytes),
        };
        (allocated, in_use)
    }
}

impl Sum {
    const fn new() -> Self {
        Self {
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn add(&self, weight: Weight) {
        self.objects.fetch_add(weight.objects, Ordering::Relaxed);
        self.bytes.fetch_add(weight.bytes, Ordering::Relaxed);
    }

    fn get(&self) -> Weight {
        Weight {
            objects: self.objects.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

/// Index by hash: 48 bits of the hash, and the id of the stack. Two stacks with the same hash share
/// an id, which is unlikely among at most 8192.
static BY_HASH: [AtomicU64; INDEX] = [const { AtomicU64::new(0) }; INDEX];
static ENTRIES: [StackEntry; MAX_STACKS] = [const {
    StackEntry {
        frames: AtomicU64::new(0),
        allocated: Sum::new(),
        freed: Sum::new(),
    }
}; MAX_STACKS];
/// The number of entries. The first entry is for all stacks that find the table full.
static ENTRY_COUNT: AtomicUsize = AtomicUsize::new(1);
/// Frames, as distances from [`anchor`]: within the program a distance fits 32 bits.
static FRAMES: [AtomicI32; MAX_FRAMES] = [const { AtomicI32::new(0) }; MAX_FRAMES];
static FRAME_COUNT: AtomicUsize = AtomicUsize::new(0);

/// An address within the program.
fn anchor() -> usize {
    (&raw const FRAME_COUNT).addr()
}

/// Returns the stack's id; 0 if the table is full.
pub(crate) fn intern(frames: &[usize]) -> u16 {
    let hash = hash(frames);
    let mut own = None;

    for probe in 0..PROBES {
        // There is always a slot. An allocator must not panic, so that neither does this.
        let Some(slot) = usize::try_from(hash)
            .ok()
            .and_then(|hash| BY_HASH.get((hash + probe) % INDEX))
        else {
            break;
        };

        let word = slot.load(Ordering::Acquire);
        if word >> 16 == hash {
            return number(word);
        }

        if word != 0 {
            continue;
        }

        let Some(stack) = own.or_else(|| claim(frames)) else {
            break;
        };

        own = Some(stack);

        match slot.compare_exchange(
            0,
            hash << 16 | u64::from(stack),
            Ordering::Release,
            Ordering::Acquire,
        ) {
            Ok(_) => return stack,
            // Another thread was faster. If it added the same stack, the entry claimed here stays
            // empty.
            Err(word) if word >> 16 == hash => return number(word),
            Err(_) => {}
        }
    }

    0
}

fn number(word: u64) -> u16 {
    u16::try_from(word & 0xFFFF).unwrap_or_default()
}

/// A hash of 48 bits, one of them always set, so that it is never 0.
fn hash(frames: &[usize]) -> u64 {
    let mixed = frames.iter().fold(0_u64, |sum, frame| {
        (sum.rotate_left(29) ^ *frame as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    });
    ((mixed ^ mixed >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16) | 1
}

/// Claims a new entry with these frames; `None` if the table is full.
fn claim(frames: &[usize]) -> Option<u16> {
    let distance = |frame: &usize| i32::try_from(frame.wrapping_sub(anchor()).cast_signed()).ok();
    let count = frames.iter().filter_map(distance).count();
    let take = |counter: &AtomicUsize, more: usize, max: usize| {
        let grown = |now: usize| now.checked_add(more).filter(|grown| *grown <= max);
        counter
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
            .ok()
    };

    let first = take(&FRAME_COUNT, count, MAX_FRAMES)?;
    let stack = take(&ENTRY_COUNT, 1, MAX_STACKS)?;

    for (place, frame) in FRAMES
        .get(first..first + count)?
        .iter()
        .zip(frames.iter().filter_map(distance))
    {
        place.store(frame, Ordering::Relaxed);
    }
    ENTRIES.get(stack)?.frames.store(
        (first as u64) << 8 | count.min(255) as u64,
        Ordering::Release,
    );

    u16::try_from(stack).ok()
}

pub(crate) fn allocated(stack: u16, weight: Weight) {
    if let Some(entry) = ENTRIES.get(usize::from(stack)) {
        entry.allocated.add(weight);
    }
}

pub(crate) fn freed(stack: u16, weight: Weight) {
    if let Some(entry) = ENTRIES.get(usize::from(stack)) {
        entry.freed.add(weight);
    }
}

/// The sums of all stacks: allocated, and in use.
pub(crate) fn totals() -> (Weight, Weight) {
    let count = ENTRY_COUNT.load(Ordering::Relaxed);
    let sums = ENTRIES.iter().take(count).map(StackEntry::sums);
    sums.fold(
        Default::default(),
        |(allocated, in_use), (more, more_in_use)| {
            (
                Weight::sum(allocated, more),
                Weight::sum(in_use, more_in_use),
            )
        },
    )
}

/// All stacks with their sums.
pub(crate) fn all() -> Vec<StackSample> {
    let count = ENTRY_COUNT.load(Ordering::Relaxed);
    let seen = ENTRIES.iter().take(count).map(|entry| {
        let packed = entry.frames.load(Ordering::Acquire);
        let first = usize::try_from(packed >> 8).unwrap_or_default();
        let count = packed & 0xFF;
        let frames = FRAMES
            .iter()
            .skip(first)
            .take(usize::try_from(count).unwrap_or_default());
        let frames = frames.map(|frame| {
            anchor().wrapping_add_signed(
                isize::try_from(frame.load(Ordering::Relaxed)).unwrap_or_default(),
            )
        });

        let (allocated, in_use) = entry.sums();
        StackSample {
            frames: frames.collect(),
            allocated,
            in_use,
        }
    });

    seen.filter(|seen| seen.allocated != Weight::default())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stack_has_one_number_and_its_own_sums() {
        let base = anchor();
        let far_away = base.wrapping_add(1 << 40);
        let frames = [base + 10, base - 20, far_away];
        let stack = intern(&frames);
        assert!(stack > 0);
        assert_eq!(intern(&frames), stack);
        assert_ne!(intern(&frames[..1]), stack);
        allocated(
            stack,
            Weight {
                objects: 512,
                bytes: 100,
            },
        );

        freed(
            stack,
            Weight {
                objects: 256,
                bytes: 40,
            },
        );

        let seen = all()
            .into_iter()
            .find(|seen| seen.frames == [base + 10, base - 20])
            .expect("the frames within the program are kept");
        assert_eq!(
            seen.allocated,
            Weight {
                objects: 512,
                bytes: 100
            }
        );

        assert_eq!(
            seen.in_use,
            Weight {
                objects: 256,
                bytes: 60
            }
        );

        let (allocated, in_use) = totals();
        assert!(
            allocated.objects >= 512
                && allocated.bytes >= 100
                && in_use.objects >= 256
                && in_use.bytes >= 60
        );
    }

    #[test]
    fn threads_that_meet_a_stack_at_once_agree_on_its_number() {
        let base = anchor();
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(move || {
                    (0..500)
                        .map(|n| intern(&[base + n, base + 3]))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let numbers: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        assert!(numbers.windows(2).all(|pair| pair[0] == pair[1]));
        assert!(!numbers[0].contains(&0));
    }
}

//! Heap profiles: an allocator around another one, which samples the stack of an allocation about
//! every 512 KiB.
//!
//! Each thread counts down allocated bytes from a random number whose mean is [`RATE`]; the
//! allocation that crosses zero is sampled. Each byte then has the same chance, and a sample of a
//! small object is weighted by its size, as in Go. Sampled blocks have an alignment that few other
//! blocks have by chance, so a free recognizes most unsampled blocks by their address. The code
//! neither locks nor allocates, and its thread-local values have no destructor, so it may run at
//! any time in a thread's life.
//!
//! A pair of allocation and free takes (mimalloc alone, and with this around it): 2.8 and 2.9 ns
//! for 16 bytes, 3.2 and 4.5 ns for 256 bytes, 5.3 and 6.7 ns for 1 KiB, 14 and 24 ns for 64 KiB,
//! where every ninth block is sampled. So it is always on.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::report::{self, Counted, Kind};
use crate::stacks::{self, Weight};
use crate::{live, stack};

/// The mean of bytes between two samples, as in Go.
pub const RATE: usize = 512 * 1024;
#[expect(clippy::cast_precision_loss, reason = "a power of two")]
const MEAN: f64 = RATE as f64;

const TYPES: &[(&str, &str)] = &[
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// The sample type that `go tool pprof` shows first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultSampleType {
    /// What is in use, as `heap`.
    InUse,
    /// What was allocated since the process began, as `allocs`.
    Allocated,
}

thread_local! {
    /// The bytes until the next sample.
    static LEFT: Cell<usize> = const { Cell::new(0) };
    /// The state of the thread's random numbers; 0 until it allocates for the first time.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// An allocator that samples the allocations of `A`.
#[derive(Debug)]
pub struct Profiled<A>(A);

impl<A> Profiled<A> {
    /// Samples the allocations of `inner`.
    pub const fn new(inner: A) -> Self {
        Self(inner)
    }
}

/// Allocations of the process, estimated from the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Blocks allocated since the process began.
    pub allocated_objects: u64,
    /// Bytes of these blocks, also of those that were freed since; never decreases.
    pub allocated_bytes: u64,
    /// Bytes of the blocks that are not freed yet.
    pub in_use_bytes: u64,
}

/// The totals so far. A call takes some microseconds, and does not slow allocations.
#[must_use]
pub fn totals() -> Totals {
    let (allocated, in_use) = stacks::totals();
    Totals {
        allocated_objects: objects(allocated),
        allocated_bytes: allocated.bytes,
        in_use_bytes: in_use.bytes,
    }
}

/// The whole number of a sum of weights.
fn objects(weight: Weight) -> u64 {
    (weight.objects + 128) / 256
}

/// The heap profile, compressed for `go tool pprof`. `time` is now, in nanoseconds since 1970.
///
/// # Errors
/// If the table of memory mappings cannot be read.
pub fn snapshot(shown: DefaultSampleType, time: i64) -> io::Result<Vec<u8>> {
    let kind = Kind {
        types: TYPES,
        period_type: ("space", "bytes"),
        period: i64::try_from(RATE).unwrap_or(i64::MAX),
        default_type: match shown {
            DefaultSampleType::InUse => "inuse_space",
            DefaultSampleType::Allocated => "alloc_space",
        },
        skipped: &[
            "navarch_profile::",
            "<navarch_profile::",
            "__rustc::",
            "alloc::alloc::",
            "<alloc::alloc::",
        ],
    };

    let value = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let counted = |seen: stacks::StackSample| Counted {
        values: vec![
            value(objects(seen.allocated)),
            value(seen.allocated.bytes),
            value(objects(seen.in_use)),
            value(seen.in_use.bytes),
        ],
        frames: seen.frames,
    };

    report::encode(
        kind,
        (time, 0),
        stacks::all().into_iter().map(counted).collect(),
        0,
    )
}

/// Counts down by the size of an allocation. Returns true if it crossed zero, and [`is_due`] must
/// decide.
#[inline(always)]
fn count(bytes: usize) -> bool {
    LEFT.with(|left| match left.get().checked_sub(bytes) {
        Some(rest) => {
            left.set(rest);
            false
        }
        None => true,
    })
}

/// Whether an allocation that crossed zero is sampled. It is not if the thread had no counter yet,
/// and the allocation is within its first interval.
fn is_due(bytes: usize) -> bool {
    let first = RANDOM.get() == 0;
    if first {
        stack::learn();
        static SEEDS: AtomicU64 = AtomicU64::new(1);
        RANDOM.set(SEEDS.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed) | 1);
    }
    LEFT.set(distance());
    !first || count(bytes)
}

/// The bytes to the next sample: exponentially distributed, so that each byte has the same chance,
/// independent of earlier samples.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "53 random bits; the result is positive and at most 37 times the mean"
)]
fn distance() -> usize {
    // xorshift64*, whose upper bits are good.
    let mut state = RANDOM.get();
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    RANDOM.set(state);
    let chance =
        ((state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    (-chance.ln() * MEAN) as usize
}

/// The weight of a sample of `bytes` bytes: the inverse of its sampling probability.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "sizes of allocations, at most 512 Ki times for the smallest"
)]
fn weight(bytes: usize) -> Weight {
    let bytes = bytes.max(1) as f64;
    let chance = -(-bytes / MEAN).exp_m1();
    Weight {
        objects: (256.0 / chance).round() as u64,
        bytes: (bytes / chance).round() as u64,
    }
}

/// The layout that marks a block of this layout as sampled, by its alignment.
fn marked(layout: Layout) -> Option<Layout> {
    layout.align_to(live::ALIGNMENT).ok()
}

/// Records the current stack for the block at an address. Returns false if the table is full.
#[inline(never)]
fn record(address: usize, bytes: usize) -> bool {
    let mut frames = [0; stack::MAX_FRAMES];
    let frame = stack::frame_pointer();
    // SAFETY: this function's own frame is within the used part of the stack.
    let count = unsafe { stack::callers(frame, frame, &mut frames) };
    let stack = stacks::intern(frames.get(..count).unwrap_or_default());
    let taken = live::insert(address, stack);
    if taken {
        stacks::allocated(stack, weight(bytes));
    }
    taken
}

impl<A: GlobalAlloc> Profiled<A> {
    /// Allocates a block whose counter has crossed zero.
    ///
    /// # Safety
    /// As [`GlobalAlloc::alloc`].
    #[cold]
    #[inline(never)]
    unsafe fn allocate_slowly(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        // SAFETY: the caller's layout has a size above zero, and another alignment does not change
        // that.
        let allocate = |layout| unsafe {
            if zeroed {
                self.0.alloc_zeroed(layout)
            } else {
                self.0.alloc(layout)
            }
        };

        let Some(marked) = marked(layout).filter(|_| is_due(layout.size())) else {
            return allocate(layout);
        };

        let block = allocate(marked);
        if block.is_null() {
            return allocate(layout);
        }

        if !record(block.addr(), layout.size()) {
            // SAFETY: the block was allocated with this layout just above.
            unsafe { self.0.dealloc(block, marked) };
            return allocate(layout);
        }

        block
    }

    /// Frees a block whose address has the alignment of sampled blocks.
    ///
    /// # Safety
    /// As [`GlobalAlloc::dealloc`].
    #[inline(never)]
    unsafe fn free_slowly(&self, block: *mut u8, layout: Layout) {
        let stack = live::remove(block.addr());
        if let Some(stack) = stack {
            stacks::freed(stack, weight(layout.size()));
        }
        let layout = stack.and_then(|_| marked(layout)).unwrap_or(layout);
        // SAFETY: the layout equals that of the allocation: a block was allocated with the marked
        // layout if and only if it is in the table.
        unsafe { self.0.dealloc(block, layout) };
    }

    /// Resizes a block that is sampled, or is to be.
    ///
    /// # Safety
    /// As [`GlobalAlloc::realloc`].
    #[cold]
    #[inline(never)]
    unsafe fn reallocate_slowly(
        &self,
        block: *mut u8,
        layout: Layout,
        size: usize,
        counted: bool,
    ) -> *mut u8 {
        // SAFETY: the caller guarantees that the size, rounded up, does not overflow.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };

        // SAFETY: the size is not zero; a block that is due is counted already.
        let grown = unsafe {
            if counted {
                self.allocate_slowly(new, false)
            } else {
                self.alloc(new)
            }
        };

        if !grown.is_null() {
            // SAFETY: both have this many bytes, and the blocks do not overlap; the old one is this
            // allocator's own.
            unsafe {
                ptr::copy_nonoverlapping(block, grown, size.min(layout.size()));
                self.dealloc(block, layout);
            }
        }

        grown
    }
}

/// Whether a block may be sampled, judged by its address.
#[inline(always)]
fn may_be_sampled(block: *mut u8) -> bool {
    block.addr().is_multiple_of(live::ALIGNMENT)
}

// SAFETY: all blocks come from the inner allocator, which allocates and frees each with the same
// layout; see each function.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Profiled<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantees.
        unsafe {
            if count(layout.size()) {
                self.allocate_slowly(layout, false)
            } else {
                self.0.alloc(layout)
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantees.
        unsafe {
            if count(layout.size()) {
                self.allocate_slowly(layout, true)
            } else {
                self.0.alloc_zeroed(layout)
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees; a block at another address is not sampled.
        unsafe {
            if may_be_sampled(block) {
                self.free_slowly(block, layout)
            } else {
                self.0.dealloc(block, layout)
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if may_be_sampled(block) && live::contains(block.addr()) {
            // SAFETY: the caller's guarantees.
            return unsafe { self.reallocate_slowly(block, layout, size, false) };
        }
        // SAFETY: the caller's guarantees; a block that is not sampled was allocated with the
        // caller's layout.
        unsafe {
            if count(size) {
                self.reallocate_slowly(block, layout, size, true)
            } else {
                self.0.realloc(block, layout, size)
            }
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_types,
    reason = "the crate has no dependencies, and its tests may fail loudly"
)]
mod tests {
    use std::alloc::System;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;

    /// An allocator that panics if a block is freed with another layout than it was allocated with.
    struct Strict(Mutex<BTreeMap<usize, Layout>>);

    impl Strict {
        fn take(&self, block: *mut u8, layout: Layout) -> *mut u8 {
            self.0.lock().unwrap().insert(block.addr(), layout);
            block
        }
    }

    // SAFETY: all calls go to the system's allocator.
    unsafe impl GlobalAlloc for Strict {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's.
            self.take(unsafe { System.alloc(layout) }, layout)
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's.
            self.take(unsafe { System.alloc_zeroed(layout) }, layout)
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            let allocated = self.0.lock().unwrap().remove(&block.addr());
            assert_eq!(allocated, Some(layout));
            // SAFETY: the caller's.
            unsafe { System.dealloc(block, layout) };
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            let allocated = self.0.lock().unwrap().remove(&block.addr());
            assert_eq!(allocated, Some(layout));
            let grown = Layout::from_size_align(size, layout.align()).unwrap();
            // SAFETY: the caller's.
            self.take(unsafe { System.realloc(block, layout, size) }, grown)
        }
    }

    /// Whether the next allocation of this thread is sampled.
    fn sample_next(is_sampled: bool) {
        LEFT.set(if is_sampled { 0 } else { usize::MAX });
    }

    /// What is written into a block at an index.
    fn byte(index: usize) -> u8 {
        u8::try_from(index % 251).unwrap()
    }

    /// Allocates a block, resizes it, and frees it; returns whether each of both was sampled.
    fn resize(from: Layout, to: usize, samples: [bool; 2], is_zeroed: bool) -> [bool; 2] {
        let allocator = Profiled::new(Strict(Mutex::default()));
        let kept = from.size().min(to);
        sample_next(samples[0]);
        // SAFETY: the sizes are not zero, the bytes are within the blocks, and each block is freed
        // once, with its layout.
        unsafe {
            let block = if is_zeroed {
                allocator.alloc_zeroed(from)
            } else {
                allocator.alloc(from)
            };
            assert!(block.addr().is_multiple_of(from.align()));
            let was_sampled = live::contains(block.addr());
            for index in 0..from.size() {
                assert!(!is_zeroed || block.add(index).read() == 0);
                block.add(index).write(byte(index));
            }

            sample_next(samples[1]);
            let resized = allocator.realloc(block, from, to);
            let is_sampled = live::contains(resized.addr());
            assert!(resized.addr().is_multiple_of(from.align()));
            let is_kept = |index: usize| resized.add(index).read() == byte(index);
            assert!((0..kept).all(is_kept));

            let to = Layout::from_size_align(to, from.align()).unwrap();
            allocator.dealloc(resized, to);
            assert!(!live::contains(resized.addr()));
            assert!(allocator.0.0.lock().unwrap().is_empty());
            [was_sampled, is_sampled]
        }
    }

    #[test]
    fn blocks_are_freed_as_they_were_allocated_and_keep_their_bytes() {
        // The first allocation of a thread is not sampled.
        assert!(!is_due(1));
        for align in [1, 16, 4096] {
            for (from, to) in [(1, 900), (900, 1), (64, 64), (3000, 5000)] {
                let from = Layout::from_size_align(from, align).unwrap();
                for samples in [[false, false], [false, true], [true, false], [true, true]] {
                    for is_zeroed in [false, true] {
                        let sampled = resize(from, to, samples, is_zeroed);
                        assert_eq!(sampled, samples, "{from:?} to {to}");
                    }
                }
            }
        }
    }
}

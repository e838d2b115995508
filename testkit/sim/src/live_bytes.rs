//! The bytes that are allocated and not freed: memory must be back to its start once objects that
//! came have gone. Blocks can be recorded with the code that allocated them (`recorded`).

mod recorded;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use recorded::{record, recorded};

/// Live bytes of the process, if [`CountingAllocator`] is its allocator.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// The allocator of the system, which counts live bytes.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

/// Counts a block that was allocated. What the record itself takes does not count.
fn allocated(block: *mut u8, size: usize) {
    if !recorded::is_recording_this_thread() {
        LIVE.fetch_add(size, Ordering::Relaxed);
        recorded::allocated(block.addr(), size);
    }
}

/// Counts a block that is freed next: afterwards another thread may get its address.
fn freed(block: *mut u8, size: usize) {
    if !recorded::is_recording_this_thread() {
        LIVE.fetch_sub(size, Ordering::Relaxed);
        recorded::freed(block.addr());
    }
}

// SAFETY: all calls go to the system's allocator with the caller's arguments, and its results are
// returned as they are.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let block = unsafe { System.alloc(layout) };
        allocated(block, layout.size());
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let block = unsafe { System.alloc_zeroed(layout) };
        allocated(block, layout.size());
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        freed(block, layout.size());
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        freed(block, layout.size());
        // SAFETY: the caller's.
        let grown = unsafe { System.realloc(block, layout, size) };
        allocated(grown, size);
        grown
    }
}

/// The live bytes; 0 with another allocator.
#[must_use]
pub fn live_bytes() -> usize {
    LIVE.load(Ordering::Relaxed)
}

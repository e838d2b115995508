//! Which code allocated the blocks that are left of a time: each block of it is recorded with its
//! stack until it is freed.

#![allow(
    clippy::disallowed_types,
    reason = "a mutex of parking_lot allocates when threads wait for it, here within the allocator"
)]

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use navarch_profile::{current_stack, names};

/// The frames of a recorded stack: futures poll each other, so that it is deep.
const MAX_FRAMES: usize = 64;
/// The frames of a stack that are shown, and by which blocks belong together.
const SHOWN_FRAMES: usize = 10;
/// How much of a name is shown: those of nested futures fill pages.
const MAX_NAME: usize = 150;

/// Functions that are not shown: they allocate, or poll, for others.
const PASSED: [&str; 14] = [
    "navarch_sim::live_bytes",
    "<navarch_sim::live_bytes",
    "navarch_profile::",
    "__rustc",
    "alloc::",
    "<alloc::",
    "core::",
    "<core::",
    "std::",
    "<std::",
    "hashbrown::",
    "<hashbrown::",
    "tokio::runtime::",
    "<tokio::runtime::",
];

/// Whether blocks that are allocated are recorded.
static RECORDS: AtomicBool = AtomicBool::new(false);
/// Whether any were.
static HAS_RECORDED: AtomicBool = AtomicBool::new(false);
static BLOCKS: Mutex<Blocks> = Mutex::new(Blocks {
    live: BTreeMap::new(),
    stacks: BTreeMap::new(),
});

thread_local! {
    /// Whether this thread is inside of the record, which allocates in turn.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

struct Blocks {
    /// The recorded blocks that were not freed, by address.
    live: BTreeMap<usize, Block>,
    /// The numbers of stacks.
    stacks: BTreeMap<Vec<usize>, usize>,
}

#[derive(Clone, Copy)]
struct Block {
    size: usize,
    stack: usize,
}

/// Records while it exists.
#[derive(Debug)]
pub(crate) struct Recording(());

/// Blocks that one path through the code allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) bytes: usize,
    pub(crate) blocks: usize,
    /// The functions, the innermost first.
    pub(crate) functions: Vec<String>,
}

/// The record, while this thread is inside of it.
struct Inside(MutexGuard<'static, Blocks>);

impl Inside {
    fn enter() -> Self {
        IS_INSIDE.set(true);
        // A panic inside would leave a record that is only shown.
        Self(BLOCKS.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}

/// Whether this thread allocates for the record.
pub(super) fn is_recording_this_thread() -> bool {
    IS_INSIDE.get()
}

/// Records a block.
pub(super) fn allocated(address: usize, size: usize) {
    if !RECORDS.load(Ordering::Relaxed) || address == 0 {
        return;
    }
    let mut frames = [0; MAX_FRAMES];
    let count = current_stack(&mut frames);
    let frames = frames.get(..count).unwrap_or_default();

    let mut inside = Inside::enter();
    let blocks = &mut *inside.0;
    let stack = match blocks.stacks.get(frames) {
        Some(stack) => *stack,
        None => {
            let stack = blocks.stacks.len();
            blocks.stacks.insert(frames.to_vec(), stack);
            stack
        }
    };
    blocks.live.insert(address, Block { size, stack });
}

/// Forgets a block.
pub(super) fn freed(address: usize) {
    if HAS_RECORDED.load(Ordering::Relaxed) {
        Inside::enter().0.live.remove(&address);
    }
}

/// Records all blocks that are allocated from now on.
pub(crate) fn record() -> Recording {
    HAS_RECORDED.store(true, Ordering::Relaxed);
    RECORDS.store(true, Ordering::Relaxed);
    Recording(())
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDS.store(false, Ordering::Relaxed);
    }
}

/// The recorded blocks that are not freed, by the code that allocated them, the largest first.
pub(crate) fn recorded() -> Vec<Recorded> {
    let inside = Inside::enter();
    let paths = inside.0.paths();
    drop(inside);

    // What is allocated inside is freed inside, as it does not count.
    let copies = paths.clone();
    let inside = Inside::enter();
    drop(paths);
    drop(inside);
    copies
}

impl Blocks {
    fn paths(&self) -> Vec<Recorded> {
        let mut sums: BTreeMap<usize, Recorded> = BTreeMap::new();
        for block in self.live.values() {
            let sum = sums.entry(block.stack).or_default();
            sum.bytes += block.size;
            sum.blocks += 1;
        }

        let is_used = |(_, stack): &(&Vec<usize>, &usize)| sums.contains_key(stack);
        let stacks: Vec<_> = self.stacks.iter().filter(is_used).collect();
        let frames = stacks.iter().flat_map(|(frames, _)| frames.iter());
        // Without a symbol table all blocks are on one path, which has no functions.
        let names = names(frames.map(|frame| *frame as u64)).unwrap_or_default();

        let mut paths: BTreeMap<Vec<String>, Recorded> = BTreeMap::new();
        for (frames, stack) in stacks {
            let functions = shown(frames, &names);
            let path = paths.entry(functions.clone()).or_default();
            path.functions = functions;
            if let Some(sum) = sums.get(stack) {
                path.bytes += sum.bytes;
                path.blocks += sum.blocks;
            }
        }
        let mut paths: Vec<Recorded> = paths.into_values().collect();
        paths.sort_by_key(|path| Reverse(path.bytes));
        paths
    }
}

/// The functions of a stack that are shown.
fn shown(frames: &[usize], names: &BTreeMap<u64, Arc<str>>) -> Vec<String> {
    let is_passed = |name: &Arc<str>| PASSED.iter().any(|passed| name.starts_with(passed));
    let cut = |name: &Arc<str>| {
        let end = name.floor_char_boundary(MAX_NAME);
        name.get(..end).unwrap_or_default().to_owned()
    };
    let mut functions: Vec<String> = frames
        .iter()
        .filter_map(|frame| names.get(&(*frame as u64)))
        .filter(|name| !is_passed(name))
        .map(cut)
        .collect();
    functions.dedup();
    functions.truncate(SHOWN_FRAMES);
    functions
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes in {} blocks", self.bytes, self.blocks)?;
        for function in &self.functions {
            write!(f, "\n      {function}")?;
        }
        Ok(())
    }
}

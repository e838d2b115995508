//! CPU and heap profiles of the running process, in the format of `go tool pprof`.
//!
//! Stacks are walked by frame pointers (`.cargo/config.toml` makes the compiler keep them), within
//! the bounds of the thread's stack, so that a walk reads mapped memory only. Unwind tables are not
//! used: reading them in a signal handler may wait for a lock that the interrupted code holds, and
//! they take tens of megabytes. Names come from the program's symbol table, read when a profile is
//! made and freed with it; `go tool pprof PROGRAM URL` adds lines from the program's own debug
//! information.
//!
//! The crate `pprof` (0.15) was rejected: per frame it makes two system calls in the signal handler
//! to check whether an address can be read, its one timer for the whole process loses signals as
//! more processors are busy, it resolves names through DWARF (it took 283 MB for this program), and
//! has no heap profile.
//!
//! No other crate contains `unsafe`; each use has a comment on why it is sound.

mod cpu;
mod free_memory;
mod heap;
mod live;
mod maps;
mod proto;
mod report;
mod ring;
mod stack;
mod stacks;
mod symbols;

pub use cpu::{CpuError, CpuProfiler, PERIOD};
pub use free_memory::{give_back_all_free_memory, give_back_free_memory};
pub use heap::{DefaultSampleType, Profiled, RATE, Totals, snapshot, totals};
pub use proto::{Function, Line, Location, Mapping, Profile, Sample, ValueType};
pub use stack::current_stack;
pub use symbols::{NoSymbols, names};

//! The clock and the random numbers of the process, replaced while a simulation runs.
//!
//! Product code reads `SystemTime`, `Instant`, `jiff::Timestamp` and the keys of hash maps. All of
//! them reach two functions of the C library, `clock_gettime` and `getrandom`, which this module
//! defines: the linker prefers its definitions. While no simulation runs they ask the kernel.
//!
//! On the thread of the simulation the time is that of tokio's paused clock, which moves only when
//! all tasks wait. Other threads, those of `spawn_blocking`, read the same time as it last was.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use libc::{c_int, c_long, c_uint, clockid_t, size_t, ssize_t, timespec};

use crate::random::splitmix;

/// The wall clock at the start of a simulation: 2026-01-01T00:00:00Z.
const EPOCH_SECONDS: u64 = 1_767_225_600;
/// The monotonic clock at the start: not zero, as code subtracts from it.
const UPTIME_SECONDS: u64 = 1_000_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Whether a simulation runs in this process.
static RUNS: AtomicBool = AtomicBool::new(false);
/// Nanoseconds since its start, as last read by its thread.
static NOW: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The state of this thread's random numbers.
    static RANDOM: Cell<u64> = const { Cell::new(0x5eed) };
    /// Whether this is the thread of the simulation, inside of its runtime.
    static LEADS: Cell<bool> = const { Cell::new(false) };
    /// Whether the clock is being read: tokio's clock may read it in turn.
    static IS_READING: Cell<bool> = const { Cell::new(false) };
    /// The paused clock at the start.
    static BASE: Cell<Option<std::time::Instant>> = const { Cell::new(None) };
}

/// Replaces clock and random numbers. To be called once in a process, on the thread of the
/// simulation, before its runtime is built.
pub(crate) fn begin(seed: u64) {
    RANDOM.set(seed ^ 0x9e37_79b9_7f4a_7c15);
    RUNS.store(true, Ordering::SeqCst);
}

/// Follows the paused clock of the runtime in which this is called.
pub(crate) fn follow_runtime() {
    BASE.set(Some(tokio::time::Instant::now().into_std()));
    LEADS.set(true);
}

/// Makes the kernel load later programs of this process at fixed addresses. Returns true if it did
/// not do so before, and does now.
#[must_use]
pub fn stop_randomizing_addresses() -> bool {
    const QUERY: libc::c_ulong = 0xffff_ffff;
    // SAFETY: the call has no pointers; it changes how the next program is loaded.
    let current = unsafe { libc::personality(QUERY) };
    if current < 0 || current & libc::ADDR_NO_RANDOMIZE != 0 {
        return false;
    }
    let Ok(wanted) = libc::c_ulong::try_from(current | libc::ADDR_NO_RANDOMIZE) else {
        return false;
    };
    // SAFETY: as above.
    unsafe { libc::personality(wanted) >= 0 }
}

/// Nanoseconds since the start.
fn now() -> u64 {
    if LEADS.get() && !IS_READING.replace(true) {
        let now = tokio::time::Instant::now().into_std();
        if let Some(base) = BASE.get() {
            let elapsed = now.saturating_duration_since(base).as_nanos();
            NOW.store(
                u64::try_from(elapsed).unwrap_or(u64::MAX),
                Ordering::Relaxed,
            );
        }
        IS_READING.set(false);
    }
    NOW.load(Ordering::Relaxed)
}

/// The C library's function.
///
/// # Safety
/// As of the C library: `time` is null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    if !RUNS.load(Ordering::Relaxed) || time.is_null() {
        // SAFETY: the arguments are those of the caller, for the same function of the kernel.
        let outcome = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
        return if outcome == 0 { 0 } else { -1 };
    }

    let now = now();
    let start = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => EPOCH_SECONDS,
        _ => UPTIME_SECONDS,
    };
    let reading = timespec {
        tv_sec: c_long::try_from(start + now / NANOS_PER_SECOND).unwrap_or(c_long::MAX),
        tv_nsec: c_long::try_from(now % NANOS_PER_SECOND).unwrap_or(0),
    };
    // SAFETY: the caller's pointer is not null, and valid for a write.
    unsafe { time.write(reading) };
    0
}

/// The C library's function.
///
/// # Safety
/// As of the C library: `buffer` is valid for writes of `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: size_t, flags: c_uint) -> ssize_t {
    if !RUNS.load(Ordering::Relaxed) || buffer.is_null() {
        // SAFETY: the arguments are those of the caller, for the same function of the kernel.
        let filled = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return ssize_t::try_from(filled).unwrap_or(-1);
    }

    // SAFETY: the caller's buffer has that many bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    for chunk in bytes.chunks_mut(8) {
        let mut state = RANDOM.get();
        let word = splitmix(&mut state).to_le_bytes();
        RANDOM.set(state);
        for (byte, random) in chunk.iter_mut().zip(word) {
            *byte = random;
        }
    }
    ssize_t::try_from(length).unwrap_or(ssize_t::MAX)
}

/// The simulated wall clock.
#[expect(
    clippy::disallowed_methods,
    reason = "it is the clock, which this module simulates"
)]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

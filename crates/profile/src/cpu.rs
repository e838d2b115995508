//! CPU profiles: each thread has a timer of its own CPU time, which interrupts it a hundred times a
//! second.
//!
//! One timer for the whole process would be simpler, but loses signals as soon as several
//! processors are busy: a signal that is pending is not sent once more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;
use std::{io, ptr};

use crate::report::{self, Counted, Kind};
use crate::ring::Ring;
use crate::stack::{self, MAX_FRAMES};

/// How much CPU time a thread takes between two samples of it, as in Go.
pub const PERIOD: Duration = Duration::from_millis(10);
const PERIOD_NANOS: i64 = 10_000_000;
/// Maximum number of distinct stacks; samples with further stacks are counted as lost.
const MAX_STACKS: usize = 16_384;

const KIND: Kind = Kind {
    types: &[("samples", "count"), ("cpu", "nanoseconds")],
    period_type: ("cpu", "nanoseconds"),
    period: PERIOD_NANOS,
    default_type: "cpu",
    skipped: &[],
};

/// Whether a profile is being taken: there is at most one at a time.
static RUNNING: AtomicBool = AtomicBool::new(false);
/// Where handlers write samples: null, or the ring of the running profile.
static RING: AtomicPtr<Ring> = AtomicPtr::new(ptr::null_mut());
/// The number of signal handlers that may be using the ring.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Why a CPU profile could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// Another profile is being taken; in Go's words.
    #[error("cpu profiling already in use")]
    InUse,
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// A running CPU profile. Dropping it stops the sampling.
#[derive(Debug)]
pub struct CpuProfiler {
    timers: BTreeMap<libc::pid_t, sys::ThreadTimer>,
    counts: BTreeMap<Box<[usize]>, i64>,
    lost: u64,
    ring: *mut Ring,
}

impl CpuProfiler {
    /// How often to call [`tick`](Self::tick): a new thread is sampled from the next call on.
    pub const TICK: Duration = Duration::from_millis(50);

    /// Starts a profile.
    ///
    /// # Errors
    /// If another one is running, or a system call fails.
    pub fn start() -> Result<Self, CpuError> {
        let mut profiler = Self::begin()?;
        sys::handle_signals()?;
        profiler.tick()?;
        Ok(profiler)
    }

    /// A profile that takes samples, and of no thread yet.
    fn begin() -> Result<Self, CpuError> {
        if RUNNING.swap(true, Ordering::SeqCst) {
            return Err(CpuError::InUse);
        }
        let ring = Box::into_raw(Box::new(Ring::new()));
        RING.store(ring, Ordering::SeqCst);
        Ok(Self {
            timers: BTreeMap::new(),
            counts: BTreeMap::new(),
            lost: 0,
            ring,
        })
    }

    /// Counts the waiting samples, and looks for threads that have begun or ended.
    ///
    /// # Errors
    /// If no thread can be sampled.
    pub fn tick(&mut self) -> Result<(), CpuError> {
        self.count();
        let threads = sys::threads()?;
        self.timers.retain(|thread, _| threads.contains(thread));
        for thread in threads {
            if self.timers.contains_key(&thread) {
                continue;
            }
            match sys::ThreadTimer::start(thread) {
                Ok(timer) => _ = self.timers.insert(thread, timer),
                // A thread may end meanwhile. If no thread at all can be sampled, the profile
                // fails.
                Err(error) if self.timers.is_empty() => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn count(&mut self) {
        // SAFETY: the ring is this profile's and is freed when it is dropped.
        let ring = unsafe { &*self.ring };
        let counts = &mut self.counts;
        let lost = &mut self.lost;
        ring.drain(|frames| {
            if let Some(count) = counts.get_mut(frames) {
                *count += 1;
            } else if counts.len() < MAX_STACKS {
                counts.insert(frames.into(), 1);
            } else {
                *lost += 1;
            }
        });
    }

    /// Stops the profile and encodes it for `go tool pprof`. `started` is when it began, in
    /// nanoseconds since 1970.
    ///
    /// # Errors
    /// If the table of memory mappings cannot be read.
    pub fn finish(mut self, started: i64, took: Duration) -> Result<Vec<u8>, CpuError> {
        self.timers.clear();
        self.count();
        // SAFETY: as in `count`.
        let lost = self.lost + unsafe { &*self.ring }.lost();
        let counts = std::mem::take(&mut self.counts);
        drop(self);
        let counted = |(frames, count): (Box<[usize]>, i64)| Counted {
            frames: frames.into_vec(),
            values: vec![count, count.saturating_mul(PERIOD_NANOS)],
        };
        let took = i64::try_from(took.as_nanos()).unwrap_or(i64::MAX);
        Ok(report::encode(
            KIND,
            (started, took),
            counts.into_iter().map(counted).collect(),
            lost,
        )?)
    }
}

// SAFETY: handlers share the ring through atomics alone, and only the thread that owns the profile
// drains it.
unsafe impl Send for CpuProfiler {}

impl Drop for CpuProfiler {
    fn drop(&mut self) {
        self.timers.clear();
        RING.store(ptr::null_mut(), Ordering::SeqCst);
        // A handler increments `INSIDE` before it loads the ring, so only handlers counted here can
        // still use it. They take microseconds.
        while INSIDE.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        // SAFETY: it came from a box; `RING` no longer points to it, and no handler is inside.
        drop(unsafe { Box::from_raw(self.ring) });
        RUNNING.store(false, Ordering::SeqCst);
    }
}

/// Records a sample from the interrupted code's address, stack pointer and frame pointer.
fn sample(place: usize, stack: usize, frame: usize) {
    INSIDE.fetch_add(1, Ordering::SeqCst);
    // SAFETY: a ring that is loaded while this handler counts as inside is not freed.
    if let Some(ring) = unsafe { RING.load(Ordering::SeqCst).as_ref() } {
        let mut frames = [0; MAX_FRAMES];
        if let Some((first, callers)) = frames.split_first_mut() {
            *first = place;
            // SAFETY: the stack pointer is that of the code that the signal interrupted.
            let count = unsafe { stack::callers(stack, frame, callers) };
            ring.push(frames.get(..=count).unwrap_or_default());
        }
    }
    INSIDE.fetch_sub(1, Ordering::SeqCst);
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod sys {
    use std::collections::BTreeSet;
    use std::{io, mem, ptr};

    use super::PERIOD_NANOS;

    /// The timer of a thread's CPU time. Dropping it deletes the timer.
    #[derive(Debug)]
    pub(super) struct ThreadTimer(libc::timer_t);

    // SAFETY: a timer id of the kernel, which any thread may use.
    unsafe impl Send for ThreadTimer {}

    impl ThreadTimer {
        pub(super) fn start(thread: libc::pid_t) -> io::Result<Self> {
            // How Linux numbers the clock of a thread's CPU time
            // (`CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED`).
            let clock: libc::clockid_t = (!thread << 3) | 6;

            // SAFETY: zero is a value of each of its fields.
            let mut event: libc::sigevent = unsafe { mem::zeroed() };
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGPROF;
            event.sigev_notify_thread_id = thread;
            let mut timer = ptr::null_mut();

            // SAFETY: both pointers are valid during the call.
            if unsafe { libc::timer_create(clock, &raw mut event, &raw mut timer) } != 0 {
                return Err(io::Error::last_os_error());
            }

            let timer = Self(timer);
            let time = |nanos| libc::timespec {
                tv_sec: 0,
                tv_nsec: nanos,
            };

            // Spread out the first ticks, so that threads which work side by side are not sampled
            // at the same moment.
            let first = 1 + i64::from(thread).wrapping_mul(7_919_999) % PERIOD_NANOS;
            let times = libc::itimerspec {
                it_interval: time(PERIOD_NANOS),
                it_value: time(first),
            };

            // SAFETY: the timer exists, and the times are only read during the call.
            if unsafe { libc::timer_settime(timer.0, 0, &raw const times, ptr::null_mut()) } != 0 {
                return Err(io::Error::last_os_error());
            }

            Ok(timer)
        }
    }

    impl Drop for ThreadTimer {
        fn drop(&mut self) {
            // SAFETY: the timer exists until this call.
            unsafe { libc::timer_delete(self.0) };
        }
    }

    pub(super) fn threads() -> io::Result<BTreeSet<libc::pid_t>> {
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir("/proc/self/task")? {
            found.extend(
                entry?
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse::<libc::pid_t>().ok()),
            );
        }
        Ok(found)
    }

    /// Installs the signal handler for the rest of the process' life: a late signal without a
    /// handler would end the process.
    pub(super) fn handle_signals() -> io::Result<()> {
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            on_signal;
        // SAFETY: zero is a value of each of its fields.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = (handler as *const ()).addr();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the handler does only what a signal handler may: it neither allocates nor locks,
        // makes no system call, and touches mapped memory only; see `sample`.
        match unsafe { libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "registers contain addresses; their C type is an integer"
    )]
    extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel hands a handler with SA_SIGINFO the context that it interrupted.
        let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        #[cfg(target_arch = "x86_64")]
        {
            let register = |number: libc::c_int| {
                machine
                    .gregs
                    .get(number as usize)
                    .map_or(0, |value| *value as usize)
            };
            super::sample(
                register(libc::REG_RIP),
                register(libc::REG_RSP),
                register(libc::REG_RBP),
            );
        }

        #[cfg(target_arch = "aarch64")]
        super::sample(
            machine.pc as usize,
            machine.sp as usize,
            machine.regs[29] as usize,
        );
    }
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod sys {
    use std::collections::BTreeSet;
    use std::io;

    #[derive(Debug)]
    pub(super) struct ThreadTimer;

    impl ThreadTimer {
        pub(super) fn start(_: libc::pid_t) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    pub(super) fn threads() -> io::Result<BTreeSet<libc::pid_t>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn handle_signals() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_not_freed_while_a_handler_uses_it() {
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    sample(1, 0, 0);
                    // Handlers are rare; the end of a profile waits until none runs.
                    std::thread::yield_now();
                }
            });

            for _ in 0..5 {
                let mut profiler = CpuProfiler::begin().unwrap();
                assert!(matches!(CpuProfiler::begin(), Err(CpuError::InUse)));
                while profiler.counts.is_empty() {
                    profiler.count();
                    std::thread::yield_now();
                }
                assert!(profiler.counts.keys().all(|frames| frames.len() == 1));
            }
            end.store(true, Ordering::Relaxed);
        });
    }
}

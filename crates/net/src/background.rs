//! Threads for long work that must not block others, such as large requests and plans: they use the
//! CPU time that the runtime and the push thread leave.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;

/// The lowest nice value of such a thread (`setpriority(2)`, 0 to 19): at 10 Linux gives it a tenth
/// of a CPU that another thread uses as well, and all of an idle CPU.
const NICENESS: i32 = 10;

/// Whether the work runs on the calling thread instead: see [`run_inline`].
static RUNS_INLINE: AtomicBool = AtomicBool::new(false);

/// Runs all later work of this process on the thread that requests it, before the request returns.
/// For simulations, in which the order of all work must be determined; its caller's stack must be
/// large enough.
pub fn run_inline() {
    RUNS_INLINE.store(true, Ordering::Relaxed);
}

/// Starts a thread of normal priority with a stack of `stack_size` bytes.
///
/// # Errors
/// If the system cannot start a thread.
pub fn spawn_normal(
    name: &str,
    stack_size: usize,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    if RUNS_INLINE.load(Ordering::Relaxed) {
        work();
        return Ok(());
    }

    Builder::new()
        .name(name.to_owned())
        .stack_size(stack_size)
        .spawn(work)
        .map(drop)
}

/// Starts a thread of low priority with a stack of `stack_size` bytes.
///
/// # Errors
/// If the system cannot start a thread.
pub fn spawn(
    name: &str,
    stack_size: usize,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    if RUNS_INLINE.load(Ordering::Relaxed) {
        work();
        return Ok(());
    }

    let run = move || {
        // On Linux this applies to the calling thread only. A sandbox may forbid it; then the work
        // competes with other threads.
        if let Err(error) = lower_priority() {
            tracing::debug!(%error, "failed to lower the priority of a background thread");
        }
        work();
    };
    Builder::new()
        .name(name.to_owned())
        .stack_size(stack_size)
        .spawn(run)
        .map(drop)
}

/// Sets the nice value of the calling thread. A process that was started with a higher one keeps
/// it: root could set the lower one, which would raise the priority.
fn lower_priority() -> rustix::io::Result<()> {
    if rustix::process::getpriority_process(None)? < NICENESS {
        rustix::process::setpriority_process(None, NICENESS)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_new_thread_has_the_lower_priority() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let own = niceness();
        let (sender, receiver) = std::sync::mpsc::channel();
        spawn("background", 64 << 10, move || {
            sender.send(niceness()).unwrap()
        })
        .unwrap();
        assert_eq!(receiver.recv().unwrap(), NICENESS.max(own));
        assert_eq!(niceness(), own);
    }
}

//! Threads for long work that must not block others, such as large requests and plans: they use the
//! CPU time that the runtime and the push thread leave.

use std::io;
use std::thread::Builder;

use navarch_base::blocking::runs_inline;

/// The lowest nice value of such a thread (`setpriority(2)`, 0 to 19): at 10 Linux gives it a tenth
/// of a CPU that another thread uses as well, and all of an idle CPU.
const NICENESS: i32 = 10;

/// Starts a thread of normal priority with a stack of `stack_size` bytes. Runs the work before it
/// returns if all work runs inline.
///
/// # Errors
/// If the system cannot start a thread.
pub fn spawn_normal(
    name: &str,
    stack_size: usize,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    if runs_inline() {
        work();
        return Ok(());
    }

    Builder::new()
        .name(name.to_owned())
        .stack_size(stack_size)
        .spawn(work)
        .map(drop)
}

/// Like [`spawn_normal`], with a thread of low priority.
///
/// # Errors
/// If the system cannot start a thread.
pub fn spawn(
    name: &str,
    stack_size: usize,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    spawn_normal(name, stack_size, move || {
        // The priority of the thread that requests the work must not change.
        if !runs_inline() {
            lower_own_priority();
        }
        work();
    })
}

/// Lowers the priority of the calling thread, as far as permitted: on Linux it has its own.
fn lower_own_priority() {
    // A sandbox may forbid it; then the work competes with other threads.
    if let Err(error) = lower_priority() {
        tracing::debug!(%error, "failed to lower the priority of a background thread");
    }
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

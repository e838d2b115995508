//! Call stacks by frame pointers, within the bounds of the thread's stack.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most frames of a stack that are kept, from the innermost on; as many as Go keeps.
pub(crate) const MAX_FRAMES: usize = 128;

// Neither has a destructor, so both can be read at any time of a thread's life, also in a signal
// handler.
thread_local! {
    /// The lowest address of the thread's stack.
    static LOW: AtomicUsize = const { AtomicUsize::new(0) };
    /// The address behind the highest; 0 until both are known.
    static HIGH: AtomicUsize = const { AtomicUsize::new(0) };
}

/// Finds the bounds of this thread's stack, once in its life. Allocates by C's `malloc` at most.
pub(crate) fn learn() {
    let Some((low, high)) = bounds() else { return };
    LOW.with(|place| place.store(low, Ordering::Relaxed));
    // A signal may come between the two.
    HIGH.with(|place| place.store(high, Ordering::Release));
}

#[cfg(target_os = "linux")]
fn bounds() -> Option<(usize, usize)> {
    let mut base = ptr::null_mut();
    let mut size = 0;
    let mut attributes = std::mem::MaybeUninit::uninit();

    // SAFETY: the calls fill in what they are given, and `attributes` is used only where the first
    // says that it did.
    let found = unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let mut attributes = attributes.assume_init();
        let found =
            libc::pthread_attr_getstack(&raw const attributes, &raw mut base, &raw mut size);
        libc::pthread_attr_destroy(&raw mut attributes);
        found
    };

    let low = base.addr();
    let high = base.addr().checked_add(size)?;
    (found == 0).then(|| {
        (
            if is_main() {
                lowest_of_main(low, high)
            } else {
                low
            },
            high,
        )
    })
}

#[cfg(not(target_os = "linux"))]
fn bounds() -> Option<(usize, usize)> {
    None
}

/// Whether this is the thread that runs `main`.
#[cfg(target_os = "linux")]
fn is_main() -> bool {
    // SAFETY: neither takes anything, nor can fail.
    unsafe { libc::getpid() == libc::gettid() }
}

/// The main thread's stack grows, and musl tells how far it has: down to its limit no other mapping
/// may lie.
#[cfg(target_os = "linux")]
fn lowest_of_main(low: usize, high: usize) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call fills in what it is given.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    // The kernel keeps at least this much free, whatever the limit is.
    const KEPT_FREE: usize = 128 << 20;
    let size = if known {
        usize::try_from(limit.rlim_cur)
            .unwrap_or(usize::MAX)
            .min(KEPT_FREE)
    } else {
        0
    };
    low.min(high.saturating_sub(size))
}

/// The frame pointer of the function into which this is inlined.
#[inline(always)]
pub(crate) fn frame_pointer() -> usize {
    let pointer: usize;
    // SAFETY: a register is copied.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("mov {}, rbp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    // SAFETY: a register is copied.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("mov {}, x29", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        pointer = 0;
    }
    pointer
}

/// Where the callers called, from the frame at `frame` outward; how many those are. Nothing where
/// `stack` is not on this thread's own stack, as when code has switched to one of its own.
///
/// # Safety
/// `stack` is an address within or below the innermost live frame of this thread, and not below the
/// part of its stack that is in use: its stack pointer, or that of the code which a signal
/// interrupted.
pub(crate) unsafe fn callers(stack: usize, frame: usize, found: &mut [usize]) -> usize {
    const RECORD: usize = 2 * size_of::<usize>();
    let high = HIGH.with(|place| place.load(Ordering::Acquire));
    let low = LOW.with(|place| place.load(Ordering::Relaxed));
    if stack < low || stack >= high {
        return 0;
    }

    let mut floor = stack;
    let mut frame = frame;
    let mut count = 0;

    for caller in found {
        // Code without frame pointers may have left anything in the register: only what lies
        // outward on this stack is read.
        if frame < floor
            || frame > high.saturating_sub(RECORD)
            || !frame.is_multiple_of(size_of::<usize>())
        {
            break;
        }

        // SAFETY: it lies between the stack pointer and the end of this thread's stack, all of
        // which is mapped; any bytes are numbers.
        let [next, returns_to] =
            unsafe { ptr::with_exposed_provenance::<[usize; 2]>(frame).read_volatile() };

        // The first page is never mapped: an outermost frame has 0.
        if returns_to < 4096 {
            break;
        }

        // The instruction behind a call may belong to another line, or to another function.
        *caller = returns_to - 1;
        count += 1;
        floor = frame + RECORD;
        frame = next;
    }

    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn here() -> Vec<usize> {
        let mut found = vec![0; MAX_FRAMES];
        let frame = frame_pointer();
        // SAFETY: this function's own frame.
        let count = unsafe { callers(frame, frame, &mut found) };
        found.truncate(count);
        found
    }

    #[inline(never)]
    fn deeper(levels: usize) -> Vec<usize> {
        let mut found = if levels == 0 {
            here()
        } else {
            deeper(levels - 1)
        };
        // What follows keeps the call from being the function's last, which may be made without a
        // frame.
        found.push(levels);
        found.pop();
        found
    }

    #[test]
    fn each_call_is_a_frame() {
        let walk = |levels| {
            std::thread::spawn(move || (learn(), deeper(levels)).1)
                .join()
                .unwrap()
        };
        let shallow = walk(0);
        let deep = walk(20);
        assert!(shallow.len() > 3, "{shallow:x?}");
        assert_eq!(deep.len(), shallow.len() + 20);
        assert_eq!(walk(500).len(), MAX_FRAMES);
    }

    #[test]
    fn nothing_outside_of_the_stack_is_read() {
        let outcome = std::thread::spawn(|| {
            let mut found = [0; 4];
            let frame = frame_pointer();

            // SAFETY: the stack pointer is this function's frame; the frame pointers are what they
            // must not believe.
            let mut count = |stack, frame| unsafe { callers(stack, frame, &mut found) };
            assert_eq!(count(frame, frame), 0, "the bounds are not known yet");
            learn();
            assert!(count(frame, frame) > 0);

            for wrong in [
                0,
                8,
                frame + 1,
                frame - 16,
                usize::MAX,
                usize::MAX - 7,
                1 << 40,
            ] {
                assert_eq!(count(frame, wrong), 0, "{wrong:x}");
            }

            assert_eq!(count(usize::MAX, frame), 0);
            assert_eq!(count(4096, frame), 0);
        });

        outcome.join().unwrap();
    }
}

//! Walks call stacks by frame pointers, within the bounds of the thread's stack.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The maximum number of frames of a stack, counted from the innermost; the same as Go's.
pub(crate) const MAX_FRAMES: usize = 128;

// Neither has a destructor, so both can be read at any time of a thread's life, also in a signal
// handler.
thread_local! {
    /// The lowest address of the thread's stack.
    static LOW: AtomicUsize = const { AtomicUsize::new(0) };
    /// The address behind the highest; 0 until both bounds are set.
    static HIGH: AtomicUsize = const { AtomicUsize::new(0) };
}

/// Finds the bounds of this thread's stack, once per thread. Allocates by C's `malloc` at most.
pub(crate) fn learn() {
    let Some((low, high)) = bounds() else { return };
    LOW.with(|place| place.store(low, Ordering::Relaxed));
    // A signal may arrive between the two stores, so `HIGH`, which enables the walk, comes last.
    HIGH.with(|place| place.store(high, Ordering::Release));
}

#[cfg(all(target_os = "linux", not(miri)))]
fn bounds() -> Option<(usize, usize)> {
    let mut base = ptr::null_mut();
    let mut size = 0;
    let mut attributes = std::mem::MaybeUninit::uninit();

    // SAFETY: the calls write to valid pointers, and `attributes` is used only if the first call
    // succeeded.
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

/// Miri has no stack in memory.
#[cfg(any(not(target_os = "linux"), miri))]
fn bounds() -> Option<(usize, usize)> {
    None
}

/// Whether this is the thread that runs `main`.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_main() -> bool {
    // SAFETY: neither call has arguments or can fail.
    unsafe { libc::getpid() == libc::gettid() }
}

/// The lowest address of the main thread's stack. The stack grows, and musl returns its current
/// size: down to the stack's limit no other mapping may lie.
#[cfg(all(target_os = "linux", not(miri)))]
fn lowest_of_main(low: usize, high: usize) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call writes to a valid pointer.
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
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::asm!("mov {}, rbp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    // SAFETY: a register is copied.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        std::arch::asm!("mov {}, x29", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    {
        pointer = 0;
    }
    pointer
}

/// Writes the return addresses of the functions that are being called into `found`, from the caller
/// outward, and returns their number: for allocators that record who allocates. It neither locks nor
/// allocates by Rust's allocator. The number is 0 on a stack whose bounds are not known.
#[inline(never)]
pub fn current_stack(found: &mut [usize]) -> usize {
    if HIGH.with(|place| place.load(Ordering::Relaxed)) == 0 {
        learn();
    }
    let frame = frame_pointer();
    // SAFETY: this function's own frame is within the used part of the stack.
    unsafe { callers(frame, frame, found) }
}

/// Writes the return addresses of the callers into `found`, from the frame at `frame` outward, and
/// returns their number. It is 0 if `stack` is not on this thread's own stack, for example after
/// code has switched to a stack of its own.
///
/// # Safety
/// `stack` is an address within or below the innermost live frame of this thread, and not below the
/// used part of its stack: its stack pointer, or that of the code that a signal interrupted.
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
        // Code without frame pointers may have left any number in the register, so frames are read
        // only if they lie further outward on this stack.
        if frame < floor
            || frame > high.saturating_sub(RECORD)
            || !frame.is_multiple_of(size_of::<usize>())
        {
            break;
        }

        // SAFETY: it lies between the stack pointer and the end of this thread's stack, which is
        // mapped; any bytes form valid numbers.
        let [next, returns_to] =
            unsafe { ptr::with_exposed_provenance::<[usize; 2]>(frame).read_volatile() };

        // The outermost frame has the return address 0; the first page is never mapped.
        if returns_to < 4096 {
            break;
        }

        // The instruction after a call may belong to another line, or to another function.
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
        let count = current_stack(&mut found);
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
        // The push after the call keeps it from being a tail call, which would have no frame.
        found.push(levels);
        found.pop();
        found
    }

    #[test]
    fn frames_are_read_within_the_bounds_alone() {
        const WORD: usize = size_of::<usize>();
        let stack = [const { AtomicUsize::new(0) }; 8];
        let low = stack.as_ptr().expose_provenance();
        let high = low + 8 * WORD;
        let frame_at = |index: usize, next: usize, returns_to: usize| {
            stack[index].store(next, Ordering::Relaxed);
            stack[index + 1].store(returns_to, Ordering::Relaxed);
        };
        frame_at(0, low + 3 * WORD, 0x5001);
        frame_at(3, low + 6 * WORD, 0x6001);
        frame_at(6, high, 0x7001);
        LOW.with(|place| place.store(low, Ordering::Relaxed));
        HIGH.with(|place| place.store(high, Ordering::Relaxed));

        let mut found = [0; 8];
        // SAFETY: the bounds are those of the array, which lives until the end of the test.
        let mut count = |frame| unsafe { callers(low, frame, &mut found) };
        assert_eq!(count(low + 7 * WORD), 0, "it would end outside");
        assert_eq!(count(low + 3 * WORD), 2);
        assert_eq!(count(low), 3);
        assert_eq!(found, [0x5000, 0x6000, 0x7000, 0, 0, 0, 0, 0]);
        HIGH.with(|place| place.store(0, Ordering::Relaxed));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no stack in memory")]
    fn each_call_is_a_frame() {
        let walk = |levels| std::thread::spawn(move || deeper(levels)).join().unwrap();
        let shallow = walk(0);
        let deep = walk(20);
        assert!(shallow.len() > 3, "{shallow:x?}");
        assert_eq!(deep.len(), shallow.len() + 20);
        assert_eq!(walk(500).len(), MAX_FRAMES);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no stack in memory")]
    fn nothing_outside_of_the_stack_is_read() {
        let outcome = std::thread::spawn(|| {
            let mut found = [0; 4];
            let frame = frame_pointer();

            // SAFETY: the stack pointer is this function's frame. The frame pointers are wrong on
            // purpose: the walk must reject them.
            let mut count = |stack, frame| unsafe { callers(stack, frame, &mut found) };
            assert_eq!(count(frame, frame), 0, "the bounds are not set yet");
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

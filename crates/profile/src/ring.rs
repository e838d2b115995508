//! Passes samples from signal handlers to the one thread that counts them. Neither side waits or
//! allocates.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::stack::MAX_FRAMES;

/// The maximum number of waiting samples: at 100 per second on 64 busy processors, those of a sixth
/// of a second. Miri interprets each word of each slot: with 1024 the test of a profile and a handler
/// takes more than two minutes of CPU time, with eight all tests of this crate take 73 s.
const SLOTS: usize = if cfg!(miri) { 8 } else { 1024 };
const EMPTY: usize = 0;
const TAKEN: usize = usize::MAX;

#[derive(Debug)]
pub(crate) struct Ring {
    slots: Box<[Slot]>,
    next: AtomicUsize,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Slot {
    /// [`EMPTY`], [`TAKEN`] by a handler, or the number of frames.
    state: AtomicUsize,
    frames: [AtomicUsize; MAX_FRAMES],
}

impl Ring {
    pub(crate) fn new() -> Self {
        let slot = |_| Slot {
            state: AtomicUsize::new(EMPTY),
            frames: [const { AtomicUsize::new(0) }; MAX_FRAMES],
        };
        Self {
            slots: (0..SLOTS).map(slot).collect(),
            next: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Adds a stack, or counts it as lost if the ring is full.
    pub(crate) fn push(&self, frames: &[usize]) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % SLOTS;
        let room = self.slots.get(turn).filter(|slot| {
            slot.state
                .compare_exchange(EMPTY, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        });
        let Some(slot) = room.filter(|_| !frames.is_empty()) else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        for (place, frame) in slot.frames.iter().zip(frames) {
            place.store(*frame, Ordering::Relaxed);
        }
        slot.state
            .store(frames.len().min(MAX_FRAMES), Ordering::Release);
    }

    /// Removes all completely written stacks.
    pub(crate) fn drain(&self, mut each: impl FnMut(&[usize])) {
        let mut frames = [0; MAX_FRAMES];
        for slot in &self.slots {
            let count = slot.state.load(Ordering::Acquire);
            if matches!(count, EMPTY | TAKEN) {
                continue;
            }
            for (frame, place) in frames.iter_mut().zip(&slot.frames) {
                *frame = place.load(Ordering::Relaxed);
            }
            slot.state.store(EMPTY, Ordering::Release);
            each(frames.get(..count).unwrap_or_default());
        }
    }

    /// The number of samples that found the ring full.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushed_samples_are_drained_once_and_overflow_is_counted() {
        let ring = Ring::new();
        for frame in 1..=SLOTS + 5 {
            ring.push(&[frame, 7]);
        }
        let mut seen = Vec::new();
        ring.drain(|frames| seen.push(frames.to_vec()));
        assert_eq!(
            seen,
            (1..=SLOTS).map(|frame| vec![frame, 7]).collect::<Vec<_>>()
        );
        assert_eq!(ring.lost(), 5);
        ring.drain(|_| panic!("there is nothing left"));
        ring.push(&[1]);
        let mut again = 0;
        ring.drain(|frames| again += frames.len());
        assert_eq!(again, 1);
    }
}

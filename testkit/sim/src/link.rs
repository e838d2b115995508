//! One direction-less link between two parts of the simulation: its condition, and who waits for a
//! change of it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// The condition of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Data arrives.
    Up,
    /// Connections break, and new ones are refused.
    Cut,
    /// Nothing arrives, and nobody learns of it: half-open connections.
    Silent,
    /// The owner has crashed: nothing that it still does has an effect.
    Dead,
}

/// The state of a connection, as its owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Data may pass.
    Open,
    /// The connection has broken.
    Broken,
    /// Nothing happens.
    Stuck,
}

/// A link. Clones are one link.
#[derive(Clone, Debug)]
pub struct Link(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    condition: Condition,
    /// Connections of earlier epochs have broken.
    epoch: u64,
    wakers: Vec<Waker>,
}

impl Default for Link {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            condition: Condition::Up,
            epoch: 0,
            wakers: Vec::new(),
        })))
    }
}

impl Link {
    /// Changes the condition. A dead link stays dead.
    pub fn set(&self, condition: Condition) {
        let wakers = {
            let mut state = self.0.lock();
            if state.condition == Condition::Dead || state.condition == condition {
                return;
            }
            // Connections survive neither a cut nor a silence.
            if condition != Condition::Silent {
                state.epoch += 1;
            }
            state.condition = condition;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// What passes on new connections.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.0.lock().condition
    }

    /// The epoch of a connection that is opened now.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.0.lock().epoch
    }

    /// What passes on a connection of this epoch.
    #[must_use]
    pub fn passage(&self, epoch: u64) -> Passage {
        let state = self.0.lock();
        match state.condition {
            Condition::Dead => Passage::Stuck,
            Condition::Cut => Passage::Broken,
            Condition::Silent | Condition::Up if state.epoch != epoch => Passage::Broken,
            Condition::Silent => Passage::Stuck,
            Condition::Up => Passage::Open,
        }
    }

    /// Wakes the task at the next change.
    pub fn wake_at_change(&self, context: &Context<'_>) {
        let mut state = self.0.lock();
        state
            .wakers
            .retain(|waker| !waker.will_wake(context.waker()));
        state.wakers.push(context.waker().clone());
    }

    /// Waits until a connection of this epoch has broken.
    pub async fn broken(&self, epoch: u64) {
        poll_fn(|context| match self.passage(epoch) {
            Passage::Broken => Poll::Ready(()),
            Passage::Open | Passage::Stuck => {
                self.wake_at_change(context);
                Poll::Pending
            }
        })
        .await;
    }

    /// Waits until a connection of this epoch is open.
    pub async fn open(&self, epoch: u64) {
        poll_fn(|context| match self.passage(epoch) {
            Passage::Open => Poll::Ready(()),
            Passage::Broken | Passage::Stuck => {
                self.wake_at_change(context);
                Poll::Pending
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_survive_neither_a_cut_nor_a_silence() {
        let link = Link::default();
        let first = link.epoch();
        assert_eq!(link.passage(first), Passage::Open);

        link.set(Condition::Silent);
        assert_eq!(link.passage(first), Passage::Stuck);
        link.set(Condition::Up);
        assert_eq!(link.passage(first), Passage::Broken);
        assert_eq!(link.passage(link.epoch()), Passage::Open);

        link.set(Condition::Cut);
        assert_eq!(link.passage(link.epoch()), Passage::Broken);

        link.set(Condition::Dead);
        link.set(Condition::Up);
        assert_eq!(link.passage(link.epoch()), Passage::Stuck);
    }
}

//! One direction-less link between two parts of the simulation: its condition, and who waits for a
//! change of it.

use std::collections::BTreeMap;
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
    /// Who waits for a change, by the number of the [`Listener`].
    wakers: BTreeMap<u64, Waker>,
    /// The number of listeners so far.
    listeners: u64,
}

/// Listens to the changes of a link. With it the link forgets whom it wakes, which may be a task
/// that has ended: its memory stays as long as it can be woken.
#[derive(Debug)]
pub struct Listener {
    link: Link,
    number: u64,
}

impl Default for Link {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            condition: Condition::Up,
            epoch: 0,
            wakers: BTreeMap::new(),
            listeners: 0,
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
        wakers.into_values().for_each(Waker::wake);
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

    /// Whether somebody has this link besides its owner, who asks.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Listens to changes.
    #[must_use]
    pub fn listen(&self) -> Listener {
        let mut state = self.0.lock();
        state.listeners += 1;
        Listener {
            link: self.clone(),
            number: state.listeners,
        }
    }

    /// Waits until a connection of this epoch has broken.
    pub async fn broken(&self, epoch: u64) {
        self.until(epoch, Passage::Broken).await;
    }

    /// Waits until a connection of this epoch is open.
    pub async fn open(&self, epoch: u64) {
        self.until(epoch, Passage::Open).await;
    }

    /// Waits until this is what passes on a connection of this epoch.
    async fn until(&self, epoch: u64, wanted: Passage) {
        let listener = self.listen();
        poll_fn(|context| {
            if self.passage(epoch) == wanted {
                return Poll::Ready(());
            }
            listener.wake_at_change(context);
            Poll::Pending
        })
        .await;
    }
}

impl Listener {
    /// Wakes the task at the next change, and no other that has called this before.
    pub fn wake_at_change(&self, context: &Context<'_>) {
        let waker = context.waker().clone();
        let before = self.link.0.lock().wakers.insert(self.number, waker);
        // It may free a task, which may have listeners: the lock is free again.
        drop(before);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let waker = self.link.0.lock().wakers.remove(&self.number);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn a_link_keeps_no_task_that_listened() {
        let link = Link::default();
        assert!(!link.is_shared());
        let task = Arc::new(Task);
        let listener = link.listen();
        let waker = Waker::from(task.clone());
        listener.wake_at_change(&Context::from_waker(&waker));
        drop(waker);
        assert_eq!(Arc::strong_count(&task), 2);
        assert!(link.is_shared());

        drop(listener);
        assert_eq!(Arc::strong_count(&task), 1);
        assert!(!link.is_shared());
    }

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

//! Runs all futures of one connection in one tokio task.
//!
//! HTTP/2 servers spawn a task per connection and another per call, and a stream's session would be
//! a third. A push to a thousand proxies would then be a thousand chains of tasks that wake each
//! other, each on any idle thread. Here they are subtasks of one task: waking a subtask wakes the
//! task, which polls the woken subtasks, and those that these wake, until all are pending.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;

/// A future that runs in the task of a connection.
type Subtask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Spawns subtasks of one connection. Clones spawn on the same connection.
#[derive(Clone, Default)]
pub(super) struct Spawner(Arc<Mutex<Vec<Subtask>>>);

/// The task of a connection. Ends when all subtasks have ended.
pub(super) struct ConnectionTask {
    running: FuturesUnordered<Subtask>,
    /// Subtasks that start with the next poll.
    spawned: Spawner,
}

impl Spawner {
    /// Starts a subtask with the next poll of the task, which follows at once if a subtask calls
    /// this.
    pub(super) fn spawn(&self, subtask: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().push(Box::pin(subtask));
    }

    /// The task of a connection, whose first subtask is `connection`.
    pub(super) fn run(
        self,
        connection: impl Future<Output = ()> + Send + 'static,
    ) -> ConnectionTask {
        self.spawn(connection);
        ConnectionTask {
            running: FuturesUnordered::new(),
            spawned: self,
        }
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner")
            .field("spawned", &self.0.lock().len())
            .finish()
    }
}

impl Future for ConnectionTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let spawned = std::mem::take(&mut *self.spawned.0.lock());
            let has_spawned = !spawned.is_empty();
            self.running.extend(spawned);
            match Pin::new(&mut self.running).poll_next(context) {
                Poll::Ready(Some(())) => {}
                // The last subtask may have spawned another before it ended.
                Poll::Ready(None) if !has_spawned && self.spawned.0.lock().is_empty() => {
                    return Poll::Ready(());
                }
                Poll::Pending if self.spawned.0.lock().is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => {}
            }
        }
    }
}

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        // A subtask may own a Spawner, and so the list that contains it: a reference cycle.
        let never_started = std::mem::take(&mut *self.spawned.0.lock());
        drop(never_started);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn subtasks_wake_each_other_and_all_are_waited_for() {
        let spawner = Spawner::default();
        let (sender, mut receiver) = mpsc::channel(1);
        let turns = Arc::new(AtomicUsize::new(0));
        let inner = spawner.clone();
        let counted = turns.clone();
        let connection = async move {
            let outer = inner.clone();
            inner.spawn(async move {
                // A subtask of a subtask.
                outer.spawn(async move {
                    for turn in 0..100 {
                        sender.send(turn).await.unwrap();
                    }
                });
            });
            while let Some(turn) = receiver.recv().await {
                assert_eq!(turn, counted.fetch_add(1, Ordering::Relaxed));
            }
        };

        tokio::time::timeout(std::time::Duration::from_secs(30), spawner.run(connection))
            .await
            .unwrap();
        assert_eq!(turns.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn subtasks_that_never_started_are_dropped_with_the_task() {
        let spawner = Spawner::default();
        let witness = Arc::new(());
        let held = witness.clone();
        let own = spawner.clone();
        let task = spawner.run(async move {
            let _held = (held, own);
            std::future::pending::<()>().await;
        });
        drop(task);
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}

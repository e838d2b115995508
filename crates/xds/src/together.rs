//! All that runs on one connection, in one task.
//!
//! HTTP/2 servers give a connection a task and each call on it another, and a stream's session would have a third. A
//! push to a thousand proxies then is a thousand times one task that wakes the next that wakes the next, each on
//! whatever thread is idle. Here they are parts of one task: what wakes one part wakes the task, which turns to the
//! parts that have something to do and to those that these wake, until all are at rest.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;

/// Something that runs on a connection.
type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Lets parts join a connection's task. Clones are of one connection.
#[derive(Clone, Default)]
pub(super) struct Companions(Arc<Mutex<Vec<Part>>>);

/// A connection and all that has joined it. Ends when all of them have.
pub(super) struct Together {
    /// What runs.
    parts: FuturesUnordered<Part>,
    /// What joins them.
    joining: Companions,
}

impl Companions {
    /// Has a part run on the connection. It joins when the task is next at work, as it is while any of its parts is.
    pub(super) fn join(&self, part: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().push(Box::pin(part));
    }

    /// The connection itself, and what joins it from here.
    pub(super) fn run(self, connection: impl Future<Output = ()> + Send + 'static) -> Together {
        self.join(connection);
        Together { parts: FuturesUnordered::new(), joining: self }
    }
}

impl fmt::Debug for Companions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Companions").field("joining", &self.0.lock().len()).finish()
    }
}

impl Future for Together {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let joining = std::mem::take(&mut *self.joining.0.lock());
            let is_joined = !joining.is_empty();
            self.parts.extend(joining);
            match Pin::new(&mut self.parts).poll_next(context) {
                Poll::Ready(Some(())) => {}
                // The last part may have had another join before it ended.
                Poll::Ready(None) if !is_joined && self.joining.0.lock().is_empty() => return Poll::Ready(()),
                Poll::Pending if self.joining.0.lock().is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => {}
            }
        }
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        // Parts hold the connection's end of the list that they wait in.
        let never_begun = std::mem::take(&mut *self.joining.0.lock());
        drop(never_begun);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn parts_wake_each_other_and_all_are_waited_for() {
        let companions = Companions::default();
        let (sender, mut receiver) = mpsc::channel(1);
        let turns = Arc::new(AtomicUsize::new(0));
        let (inner, counted) = (companions.clone(), turns.clone());
        let connection = async move {
            let outer = inner.clone();
            inner.join(async move {
                // One that joins from a part that has joined.
                outer.join(async move {
                    for turn in 0..100 {
                        sender.send(turn).await.unwrap();
                    }
                });
            });
            while let Some(turn) = receiver.recv().await {
                assert_eq!(turn, counted.fetch_add(1, Ordering::Relaxed));
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), companions.run(connection)).await.unwrap();
        assert_eq!(turns.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn what_never_began_is_let_go_with_the_rest() {
        let (companions, witness) = (Companions::default(), Arc::new(()));
        let (held, own) = (witness.clone(), companions.clone());
        let together = companions.run(async move {
            let _held = (held, own);
            std::future::pending::<()>().await;
        });
        drop(together);
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}

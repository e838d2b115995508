//! Last activity of a connection, and whether it must end.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

/// The activity of a connection, shared by its port and its server.
#[derive(Debug)]
pub struct Activity {
    /// The reference time of the port.
    begun: Instant,
    /// Milliseconds from then to the last activity.
    last: AtomicU64,
    /// Whether a request was received.
    has_request: AtomicBool,
    /// Whether the connection must end.
    is_evicted: AtomicBool,
    /// The task of the connection.
    task: AtomicWaker,
}

impl Activity {
    /// A connection that begins now.
    pub(super) fn new(begun: Instant) -> Self {
        let activity = Self {
            begun,
            last: AtomicU64::new(0),
            has_request: AtomicBool::new(false),
            is_evicted: AtomicBool::new(false),
            task: AtomicWaker::new(),
        };
        activity.touch();
        activity
    }

    /// Records activity of the connection.
    pub fn touch(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// Records a request, which counts as activity.
    pub fn record_request(&self) {
        self.has_request.store(true, Ordering::Relaxed);
        self.touch();
    }

    /// Whether a request was received.
    #[must_use]
    pub fn has_request(&self) -> bool {
        self.has_request.load(Ordering::Relaxed)
    }

    /// How long the connection has not been active.
    #[must_use]
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.last()))
    }

    /// Waits until the connection must end. Only the task that reads and writes may await it, as
    /// only one waker is stored.
    pub async fn evicted(&self) {
        poll_fn(|context| self.poll_evicted(context)).await;
    }

    /// As [`Activity::evicted`].
    pub(super) fn poll_evicted(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_evicted.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        self.task.register(context.waker());
        // The flag may have been set before the waker was registered.
        if self.is_evicted.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Makes the connection end.
    pub(super) fn evict(&self) {
        self.is_evicted.store(true, Ordering::Release);
        self.task.wake();
    }

    /// The time of the last activity, in milliseconds since the reference time.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Sets the time of the last activity.
    #[cfg(test)]
    pub(super) fn set(&self, last: u64) {
        self.last.store(last, Ordering::Relaxed);
    }

    /// Milliseconds since the reference time.
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

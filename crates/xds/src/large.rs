//! Large requests. One that names 80,000 resources takes some 20 ms to decode and to compare with
//! the current subscription. The runtime has one thread per processor, so other tasks would be
//! delayed by that time. The work therefore runs on a thread of its own that ends with it: other
//! threads free what a request allocates, and mimalloc returns that memory only when the allocating
//! thread collects it or has ended. Threads of the blocking pool live on, and kept 40 to 130 MB
//! after attacks with many names.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::oneshot;
use tonic::Status;

use navarch_net::background;
use navarch_net::fair_semaphore::{FairPermit, FairSemaphore};

/// Bytes above which a request is large. An Envoy that subscribes to the endpoints of a thousand
/// clusters sends 60 kB.
const LARGE: usize = 128 << 10;
/// Stack size of the thread in bytes: the default of the standard library.
const STACK: usize = 2 << 20;

/// Permits for large requests: one per processor. With more than one processor, a single client
/// cannot hold the last permit.
#[derive(Debug)]
pub(crate) struct LargeRequests {
    turns: Arc<FairSemaphore<IpAddr>>,
}

/// A client's permit; empty for a request that is not large.
#[derive(Debug)]
pub(crate) struct LargePermit(Option<FairPermit<IpAddr>>);

impl LargeRequests {
    /// All permits are free. The number of waiting requests is bounded by the number of streams.
    pub(crate) fn new() -> Self {
        let processors = available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            turns: FairSemaphore::new(processors, usize::MAX),
        }
    }

    /// Waits for a permit to process a request of `bytes` bytes. Cancel safe.
    pub(crate) async fn acquire(&self, client: IpAddr, bytes: usize) -> LargePermit {
        if !is_large(bytes) {
            return LargePermit(None);
        }
        LargePermit(self.turns.take(client).await.ok())
    }
}

/// The result of work on a thread of its own. The channel closes without a value if the work
/// panics.
pub(crate) type LargeWork<T> = oneshot::Receiver<T>;

impl LargePermit {
    /// Starts work on a thread of its own. The permit is released when the work ends.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn spawn<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<LargeWork<T>, Status> {
        let (sender, receiver) = oneshot::channel();
        let run = move || {
            let done = work();
            drop(self);
            // The receiver is gone if the stream has ended.
            drop(sender.send(done));
        };
        let started = background::spawn("large request", STACK, run);
        let no_thread = |error| {
            Status::resource_exhausted(format!(
                "failed to start a thread for a large request: {error}"
            ))
        };
        started.map(|()| receiver).map_err(no_thread)
    }

    /// Runs the work, that of a large request on a thread of its own, and returns the permit with
    /// the result. If the future is dropped, the work runs to its end and then releases the permit.
    ///
    /// # Errors
    /// If the thread cannot be started, or the work of a large request panics.
    pub(crate) async fn work<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(Self, T), Status> {
        if self.0.is_none() {
            return Ok((self, work()));
        }
        let beside = Self(None).spawn(move || (self, work()))?;
        beside
            .await
            .map_err(|_| Status::internal("panic while handling a large request"))
    }
}

/// Whether a request of this size needs a permit.
pub(crate) fn is_large(bytes: usize) -> bool {
    bytes > LARGE
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_large_request_leaves_the_runtime_to_others() {
        let large = LargeRequests::new();
        let client = IpAddr::from([10, 0, 0, 1]);
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let turn = large.acquire(client, LARGE + 1).await;
            // The runtime has one thread: the other task runs only where this one does not keep it.
            let mut other = tokio::task::JoinSet::new();
            other.spawn(async move { sender.send(()).unwrap() });
            let (_, received) = turn
                .work(move || receiver.recv_timeout(std::time::Duration::from_secs(30)))
                .await
                .unwrap();
            received.unwrap();
        });
        tasks.join_next().await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_panicking_request_releases_its_permit() {
        let large = LargeRequests::new();
        let client = IpAddr::from([10, 0, 0, 1]);
        for _ in 0..100 {
            let turn = large.acquire(client, LARGE + 1).await;
            let failed = turn.work(|| panic!("a request that cannot be read")).await;
            assert_eq!(
                failed.map(|(_, ())| ()).unwrap_err().code(),
                tonic::Code::Internal
            );
        }
    }

    #[tokio::test]
    async fn small_requests_are_handled_at_once() {
        let large = LargeRequests::new();
        let client = IpAddr::from([10, 0, 0, 1]);
        let mut held = Vec::new();
        while let Some(turn) = large.acquire(client, LARGE + 1).now_or_never() {
            held.push(turn);
            assert!(
                held.len() < 10_000,
                "large requests of one client are not bounded"
            );
        }
        let turn = large.acquire(client, LARGE).now_or_never().unwrap();
        assert_eq!(turn.work(|| 1).now_or_never().unwrap().unwrap().1, 1);
        held.clear();
        assert!(large.acquire(client, LARGE + 1).now_or_never().is_some());
    }
}

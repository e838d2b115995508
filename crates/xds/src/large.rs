//! Large requests: one that names 80,000 resources takes some 20 ms to read and to compare with what was asked for before. The runtime
//! has a thread per processor, and whatever else is ready would wait so long for one of them. The work is done on threads of the
//! blocking pool, which end when there is none: what requests leave in the allocator's pages of a thread that goes on with other
//! things is given back late.

use std::net::IpAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use navarch_net::turns::{Turn, Turns};

/// Bytes above which a request is large. An Envoy that asks for the endpoints of a thousand clusters says so in 60 kB.
const LARGE: usize = 128 << 10;

/// Turns of clients at the work that large requests make: one at once for each processor, and with more than one processor no client
/// has the last.
#[derive(Debug)]
pub(crate) struct LargeRequests {
    turns: Arc<Turns<IpAddr>>,
}

/// A client's turn; the work of a request that is not large needs none.
#[derive(Debug)]
pub(crate) struct LargeTurn(Option<Turn<IpAddr>>);

impl LargeRequests {
    /// Nobody has a turn yet. Who waits is bounded by the streams that there are.
    pub(crate) fn new() -> Self {
        let processors = available_parallelism().map_or(1, std::num::NonZero::get);
        Self { turns: Turns::new(processors, usize::MAX) }
    }

    /// Waits for a turn at the work of a request of so many bytes. Cancel safe.
    pub(crate) async fn turn(&self, client: IpAddr, bytes: usize) -> LargeTurn {
        if !is_large(bytes) {
            return LargeTurn(None);
        }
        LargeTurn(self.turns.take(client).await.ok())
    }
}

impl LargeTurn {
    /// Begins work beside the runtime; the turn ends with the work.
    pub(crate) fn spawn<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        spawn_blocking(move || {
            let done = work();
            drop(self);
            done
        })
    }

    /// Does the work, that of a large request beside the runtime; gives the turn back with what came of the work. Given up, the work
    /// ends by itself, and the turn with it.
    pub(crate) async fn work<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> (Self, T) {
        if self.0.is_none() {
            return (self, work());
        }
        match spawn_blocking(move || (self, work())).await.map_err(JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime is shut down, and nobody waits any more.
            Err(Err(_)) => std::future::pending().await,
        }
    }
}

/// Whether a request of so many bytes waits for a turn.
pub(crate) fn is_large(bytes: usize) -> bool {
    bytes > LARGE
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_large_request_leaves_the_runtime_to_others() {
        let (large, client) = (LargeRequests::new(), IpAddr::from([10, 0, 0, 1]));
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let turn = large.turn(client, LARGE + 1).await;
            // The runtime has one thread: the other task runs only where this one does not keep it.
            let mut other = tokio::task::JoinSet::new();
            other.spawn(async move { sender.send(()).unwrap() });
            turn.work(move || receiver.recv_timeout(std::time::Duration::from_secs(30))).await.1.unwrap();
        });
        tasks.join_next().await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn small_requests_wait_for_nobody() {
        let (large, client) = (LargeRequests::new(), IpAddr::from([10, 0, 0, 1]));
        let mut held = Vec::new();
        while let Some(turn) = large.turn(client, LARGE + 1).now_or_never() {
            held.push(turn);
            assert!(held.len() < 10_000, "large requests of one client are not bounded");
        }
        let turn = large.turn(client, LARGE).now_or_never().unwrap();
        assert_eq!(turn.work(|| 1).now_or_never().unwrap().1, 1);
        held.clear();
        assert!(large.turn(client, LARGE + 1).now_or_never().is_some());
    }
}

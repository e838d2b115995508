//! Whoever asks the control plane for peers: a stream to it.

use bytes::Bytes;
use navarch_proto::raw::RawDeltaDiscoveryResponse;
use prost::Message as _;
use tokio::time::Instant;

#[cfg(test)]
use super::lookups::Answer;
use super::lookups::{NameChanges, StreamId};
use super::{MeshMetrics, Workload};

/// The type of what is asked for.
pub(crate) const WORKLOAD: &str = "type.googleapis.com/istio.workload.Workload";

/// A stream that asks, until it is dropped.
#[derive(Debug)]
pub(crate) struct Asking {
    metrics: MeshMetrics,
    stream: StreamId,
}

impl MeshMetrics {
    /// For a workload in a network, in which the addresses of its peers are meant.
    #[must_use]
    pub fn in_network(own: Workload, release: &str, network: &str) -> Self {
        let metrics = Self::new(own, release);
        metrics.state.lock().lookups = super::Lookups::in_network(network);
        metrics
    }

    /// A stream to the control plane asks for peers from now on, in place of an earlier one.
    pub(crate) fn begin_asking(&self) -> Asking {
        let stream = self.state.lock().lookups.begin(Instant::now());
        // An earlier stream sees that it is not its turn any more.
        self.wanted.notify_waiters();
        Asking { metrics: self.clone(), stream }
    }

    /// The control plane has ended a stream since it does not serve what was asked for.
    pub(crate) fn asking_was_refused(&self) {
        tracing::info!("the control plane does not tell who peers are; metrics of servers do without");
        self.state.lock().lookups.refused(Instant::now());
    }

    /// Takes an answer of the control plane. Gives its nonce, and why it cannot be taken, if it cannot.
    pub(crate) fn take_peers(&self, answer: Bytes) -> (String, Option<String>) {
        let answer = match RawDeltaDiscoveryResponse::decode(answer) {
            Ok(answer) => answer,
            Err(error) => return (String::new(), Some(error.to_string())),
        };
        let (nonce, now) = (answer.nonce.clone(), Instant::now());
        let mut state = self.state.lock();
        let taken = state.lookups.take(answer);
        state.release(&self.own, now);
        (nonce, taken.err().map(|error| error.to_string()))
    }
}

#[cfg(test)]
impl MeshMetrics {
    /// An entry names a client by address and identity alone; whether one waits for who it is.
    pub(crate) fn meet(&self, address: &str, principal: &str) -> bool {
        let mut answer = Answer::Unknown;
        let now = Instant::now();
        self.count(now, |state| answer = state.lookups.find(address.parse().unwrap(), principal, now));
        matches!(answer, Answer::Pending(_))
    }
}

impl Asking {
    /// What to subscribe to and unsubscribe from, as soon as there is something.
    pub(crate) async fn next(&self) -> NameChanges {
        loop {
            let wanted = self.metrics.wanted.notified();
            if let Some(changes) = self.metrics.state.lock().lookups.next(self.stream) {
                return changes;
            }
            wanted.await;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.metrics.state.lock().lookups.end(self.stream);
    }
}

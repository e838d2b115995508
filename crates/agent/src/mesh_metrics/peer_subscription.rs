//! The interface of the stream that subscribes to peers at the control plane.

use bytes::Bytes;
use navarch_proto::raw::RawDeltaDiscoveryResponse;
use prost::Message as _;
use tokio::time::Instant;

#[cfg(test)]
use super::lookups::PeerAnswer;
use super::lookups::{NameChanges, StreamId};
use super::{MeshMetrics, Workload};

/// The type of the subscribed resources.
pub(crate) const WORKLOAD: &str = "type.googleapis.com/istio.workload.Workload";

/// The right of a stream to subscribe to peers, until it is dropped.
#[derive(Debug)]
pub(crate) struct PeerSubscription {
    metrics: MeshMetrics,
    stream: StreamId,
}

impl MeshMetrics {
    /// Metrics for a workload in a network, which the addresses of its peers belong to.
    #[must_use]
    pub fn in_network(own: Workload, release: &str, network: &str) -> Self {
        let metrics = Self::new(own, release);
        metrics.state.lock().lookups = super::Lookups::in_network(network);
        metrics
    }

    /// Makes a stream the one that subscribes to peers, instead of an earlier one.
    pub(crate) fn subscribe_to_peers(&self) -> PeerSubscription {
        let stream = self.state.lock().lookups.begin(Instant::now());
        // Wakes the earlier stream, which then finds that it is replaced.
        self.wanted.notify_waiters();
        PeerSubscription {
            metrics: self.clone(),
            stream,
        }
    }

    /// Records that the control plane has ended a stream because it does not serve the subscribed
    /// type.
    pub(crate) fn on_rejected(&self) {
        tracing::info!(
            "the control plane does not support peer discovery; server metrics lack labels of peers"
        );
        self.state.lock().lookups.rejected(Instant::now());
    }

    /// Applies a response of the control plane. Returns its nonce, and the error if it is invalid.
    pub(crate) fn take_peers(&self, answer: Bytes) -> (String, Option<String>) {
        let answer = match RawDeltaDiscoveryResponse::decode(answer) {
            Ok(answer) => answer,
            Err(error) => return (String::new(), Some(error.to_string())),
        };
        let nonce = answer.nonce.clone();
        let now = Instant::now();
        let mut state = self.state.lock();
        let taken = state.lookups.take(answer);
        state.release(&self.own, now);
        (nonce, taken.err().map(|error| error.to_string()))
    }
}

#[cfg(test)]
impl MeshMetrics {
    /// Looks up a client that an entry identifies by address and identity only. Returns whether the
    /// lookup is pending.
    pub(crate) fn look_up_client(&self, address: &str, principal: &str) -> bool {
        let mut answer = PeerAnswer::Unknown;
        let now = Instant::now();
        self.count(now, |state| {
            answer = state.lookups.find(address.parse().unwrap(), principal, now)
        });
        matches!(answer, PeerAnswer::Pending(_))
    }
}

impl PeerSubscription {
    /// Waits for the next changes of the subscription. If the stream that subscribed instead of this
    /// one has ended, as that of an Envoy that has drained, this one does again.
    pub(crate) async fn next(&mut self) -> NameChanges {
        // Notified also by changes before it is awaited.
        let metrics = self.metrics.clone();
        loop {
            let wanted = metrics.wanted.notified();
            if let Some(changes) = self.changes() {
                return changes;
            }
            wanted.await;
        }
    }

    fn changes(&mut self) -> Option<NameChanges> {
        let mut state = self.metrics.state.lock();
        if let Some(stream) = state.lookups.begin_if_free(Instant::now()) {
            self.stream = stream;
        }
        state.lookups.next(self.stream)
    }
}

impl Drop for PeerSubscription {
    fn drop(&mut self) {
        self.metrics.state.lock().lookups.end(self.stream);
        // Another stream may go on.
        self.metrics.wanted.notify_waiters();
    }
}

//! Streams that have ended, handed to the push thread in a list, since their destructors cannot
//! wait for the command queue.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::ProxyId;

/// Ended streams that the thread has not removed yet; bounded by the number of streams. Clones
/// share one list.
#[derive(Clone, Debug, Default)]
pub(super) struct EndedStreams(Arc<Mutex<Vec<ProxyId>>>);

/// A proxy that the requesting stream has not claimed. If it never does, for example because its
/// client disconnects, the proxy is added to the ended ones.
#[derive(Debug)]
pub(super) struct Unclaimed {
    /// The proxy, until it is claimed.
    id: Option<ProxyId>,
    /// The list of ended streams.
    ended_streams: EndedStreams,
}

impl EndedStreams {
    pub(super) fn add(&self, id: ProxyId) {
        self.0.lock().push(id);
    }

    pub(super) fn take(&self) -> Vec<ProxyId> {
        std::mem::take(&mut *self.0.lock())
    }

    /// A proxy that a stream may claim.
    pub(super) fn unless_claimed(&self, id: ProxyId) -> Unclaimed {
        Unclaimed {
            id: Some(id),
            ended_streams: self.clone(),
        }
    }
}

impl Unclaimed {
    pub(super) fn claim(mut self) -> Option<ProxyId> {
        self.id.take()
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.ended_streams.add(id);
        }
    }
}

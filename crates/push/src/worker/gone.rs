//! Streams that have ended, handed to the push thread in a list, since their destructors cannot wait for the command queue.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::ProxyId;

/// Streams that have ended and that the thread has not forgotten yet; no more than there were streams. Clones are one list.
#[derive(Clone, Debug, Default)]
pub(super) struct Gone(Arc<Mutex<Vec<ProxyId>>>);

/// A proxy that the stream which asked for it has not taken. Where it never does, as when its client goes meanwhile, the proxy
/// is gone.
#[derive(Debug)]
pub(super) struct Unclaimed {
    /// The proxy, until it is taken.
    id: Option<ProxyId>,
    /// The list that the stream is added to when it ends.
    gone: Gone,
}

impl Gone {
    /// A stream has ended.
    pub(super) fn tell(&self, id: ProxyId) {
        self.0.lock().push(id);
    }

    pub(super) fn take(&self) -> Vec<ProxyId> {
        std::mem::take(&mut *self.0.lock())
    }

    /// A proxy that a stream may take.
    pub(super) fn unless_claimed(&self, id: ProxyId) -> Unclaimed {
        Unclaimed { id: Some(id), gone: self.clone() }
    }
}

impl Unclaimed {
    /// Takes the proxy.
    pub(super) fn claim(mut self) -> Option<ProxyId> {
        self.id.take()
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.gone.tell(id);
        }
    }
}

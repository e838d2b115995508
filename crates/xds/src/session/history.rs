//! What the client has said of the responses of a type, for debug pages and the quarantine.

use std::sync::Arc;

use crate::session::discovery_request::Rejection;
use crate::session::watch::SentResponse;
use navarch_push::resource::Collection;

/// The last response and its answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Nonce and version of the last response.
    pub(crate) sent: Option<SentResponse>,
    /// Nonce and version of the last accepted response.
    pub(crate) acked: Option<SentResponse>,
    /// Why the client rejected a response, until it has all resources that it subscribes to.
    pub(crate) rejected: Option<Rejection>,
    /// The nonce of the response that was rejected last.
    pub(crate) rejected_nonce: Option<Arc<str>>,
    /// The newest collection with resources that the client has rejected.
    pub(crate) rejected_collection: Option<Arc<Collection>>,
}

impl History {
    /// Records the NACK of the response with this nonce. `collection` is the newest one with the
    /// rejected resources.
    pub(super) fn reject(
        &mut self,
        nonce: &str,
        rejection: Rejection,
        collection: Option<Arc<Collection>>,
    ) {
        self.rejected = Some(rejection);
        self.rejected_nonce = Some(Arc::from(nonce));
        self.rejected_collection = collection;
    }

    /// Records that the client has all resources.
    pub(super) fn end_rejection(&mut self) {
        self.rejected = None;
        self.rejected_nonce = None;
        self.rejected_collection = None;
    }
}

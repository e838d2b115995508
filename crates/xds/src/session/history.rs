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
    /// Why the client rejected a response, until it has all resources that it subscribes to. Once it
    /// has those of the newest NACK, a text about the others.
    pub(crate) rejected: Option<Rejection>,
    /// The nonce of the response that was rejected last, as long as that is why.
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

    /// Records that a collection counts as rejected without a NACK, with `earlier` as the error unless
    /// that of the newest NACK is still true. Returns false if the collection counted as rejected before.
    pub(super) fn reject_again(
        &mut self,
        collection: Arc<Collection>,
        earlier: Option<String>,
    ) -> bool {
        if let (Some(rejection), Some(earlier)) = (&mut self.rejected, earlier) {
            rejection.message = Arc::from(earlier);
            self.rejected_nonce = None;
        }

        let known = self.rejected_collection.as_ref();
        let is_known = known.is_some_and(|known| Arc::ptr_eq(known, &collection));
        self.rejected_collection = Some(collection);
        !is_known
    }

    /// Records that the client has all resources.
    pub(super) fn end_rejection(&mut self) {
        self.rejected = None;
        self.rejected_nonce = None;
        self.rejected_collection = None;
    }
}

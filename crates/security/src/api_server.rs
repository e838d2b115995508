//! The Kubernetes API server as reviewer of tokens and permissions.

use std::fmt;

use kube::{Api, Client, Resource};

/// Why a review failed.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// The API server did not accept the review, or is unreachable.
    #[error(transparent)]
    Request(#[from] kube::Error),
    /// The API server takes too long.
    #[error("timed out")]
    TimedOut,
    /// The account is in a cluster that Navarch does not know.
    #[error("its cluster is unknown")]
    UnknownCluster,
}

/// The API server. Reviews are objects that it answers at once and does not store.
#[derive(Clone)]
pub struct ApiServer(Client);

impl ApiServer {
    /// Wraps a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    /// The API of a kind of review.
    pub(super) fn reviews<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.0.clone())
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiServer")
    }
}

//! The Kubernetes API server as reviewer of tokens and permissions.

use std::fmt;

use kube::{Api, Client, Resource};

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

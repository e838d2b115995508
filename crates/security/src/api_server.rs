//! The Kubernetes API server, as whoever is asked about tokens and rights.

use std::fmt;

use kube::{Api, Client, Resource};

/// The API server. What it is asked about are objects that it answers at once and does not keep.
#[derive(Clone)]
pub struct ApiServer(Client);

impl ApiServer {
    /// The API server of a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    /// Where questions of a kind go.
    pub(super) fn reviews<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.0.clone())
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiServer")
    }
}

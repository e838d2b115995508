//! The cluster with the written objects.

use std::fmt;

use kube::Client;

/// A client of the API server. Clones share its connections.
#[derive(Clone)]
pub struct Cluster(pub Client);

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("namespace", &self.0.default_namespace())
            .finish_non_exhaustive()
    }
}

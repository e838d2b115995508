//! A mesh of which nothing is known but its names.

use navarch::api::names::{ClusterId, TrustDomain};
use navarch::security::authenticate::{Glance, Surroundings};
use navarch::store::Objects;

/// The mesh.
#[derive(Debug)]
pub(crate) struct Mesh;

impl Surroundings for Mesh {
    fn glance(&self) -> Glance {
        Glance {
            objects: Objects::default(),
            trust_domain: TrustDomain::new("cluster.local"),
            aliases: Vec::new(),
            cluster: ClusterId::new("Kubernetes"),
        }
    }
}

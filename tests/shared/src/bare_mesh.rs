//! A mesh without objects.

use navarch::api::names::{ClusterId, TrustDomain};
use navarch::security::authenticate::{MeshSnapshot, SnapshotProvider};
use navarch::store::Objects;

#[derive(Debug)]
pub struct Mesh;

impl SnapshotProvider for Mesh {
    fn snapshot(&self) -> MeshSnapshot {
        MeshSnapshot {
            objects: Objects::default(),
            remotes: Default::default(),
            trust_domain: TrustDomain::new("cluster.local"),
            aliases: Vec::new(),
            cluster: ClusterId::new("Kubernetes"),
        }
    }
}

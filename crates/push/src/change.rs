//! Changes of the inputs.

use std::net::IpAddr;
use std::sync::Arc;

use super::learned::LearnedChange;
use super::quarantined::RestoredQuarantine;
use super::rollout::RolloutCommand;
use navarch_api::any_object::AnyObject;
use navarch_api::key_source::KeySource;
use navarch_api::learned_scope::LearnedWorkload;
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::names::ClusterId;
use navarch_api::object::{NamespacedName, ObjectRef};

/// One change of the input.
#[derive(Clone, Debug)]
pub enum Change {
    /// An object was added or replaced.
    Put(AnyObject),
    /// An object is gone.
    Removed(ObjectRef),
    /// Something changed in a remote cluster.
    Remote(ClusterId, RemoteChange),
    /// Mesh config was read again.
    Mesh(Arc<MeshConfig>),
    /// Mesh networks were read again.
    Networks(Arc<MeshNetworks>),
    /// Whether a service account may read the secrets of its namespace; `None` if no proxy needs
    /// this any more.
    SecretReader(NamespacedName, Option<bool>),
    /// JWKS were fetched, or those of a source are no longer trusted (`None`).
    Keys(KeySource, Option<Arc<str>>),
    /// The roots of trust of the mesh, sorted, one certificate in PEM each.
    TrustBundle(Arc<[Arc<str>]>),
    /// A proxy rejected resources of this object with this message: its previous version is served
    /// until it is edited.
    Quarantine(ObjectRef, Arc<str>),
    /// A quarantine that is stored applies again, once the rejected version is read.
    RestoreQuarantine(ObjectRef, Arc<RestoredQuarantine>),
    /// The quarantine of an object ends: the rejected version is served again.
    ReleaseQuarantine(ObjectRef),
    /// The host name of a network gateway was resolved, or is no longer needed (`None`).
    GatewayHost(Arc<str>, Option<Arc<[IpAddr]>>),
    /// The initial state is complete: from now on changes of objects with a rollout annotation
    /// reach proxies in stages.
    Stages,
    /// A command for a staged rollout.
    Rollout(ObjectRef, Arc<RolloutCommand>),
    /// A proxy requests the peer at an address: from now on pods and WorkloadEntries of all
    /// clusters are indexed by address. In ambient mode those of the cluster that configures the
    /// mesh always are.
    FindPeers,
    /// What a workload with a learned scope has used.
    Learned(LearnedWorkload, LearnedChange),
}

/// One change of a remote cluster.
#[derive(Clone, Debug)]
pub enum RemoteChange {
    /// An object was added or replaced. Only kinds that istiod reads in remote clusters are used.
    Put(AnyObject),
    /// An object is gone.
    Removed(ObjectRef),
    /// The cluster's objects are replaced by these.
    Reset(Vec<AnyObject>),
    /// The cluster is no longer part of the mesh.
    Gone,
    /// Whether a service account may read the secrets of its namespace; `None` if no proxy needs
    /// this any more.
    SecretReader(NamespacedName, Option<bool>),
}

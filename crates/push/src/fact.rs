//! Facts: the typed keys under which a snapshot can be read, and by which a change is reported.

use std::net::IpAddr;

use navarch_api::key_source::KeySource;
use navarch_api::learned_scope::LearnedWorkload;
use navarch_api::names::{ClusterId, Hostname, Namespace};
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_registry::address_index::AddressKey;
use navarch_registry::model::ServiceKey;

/// An input that can be read from a [`PushContext`](super::context::PushContext).
///
/// A fact changes when its *value* changes; its owner compares values before reporting a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactKey {
    /// Mesh config and the settings of the process.
    Mesh,
    /// The mesh networks, and the gateways that reach them.
    Networks,
    /// The service with this key, present or absent.
    Service(ServiceKey),
    /// The services of this host in all namespaces.
    ServicesOfHost(Hostname),
    /// The list of all services with all their values, endpoints excepted.
    AllServices,
    /// The endpoints of the service with this key, merged over all clusters.
    Endpoints(ServiceKey),
    /// The service ports that this pod serves.
    TargetsOf(NamespacedName),
    /// The service ports that workloads at this address serve, except ports of pods.
    TargetsAt(IpAddr),
    /// The workload of the pod of this namespace and name.
    Workload(NamespacedName),
    /// The labels of a namespace.
    Namespace(Namespace),
    /// Whether this service account may read the secrets of its namespace.
    SecretReader(NamespacedName),
    /// The JWKS of one source.
    Keys(KeySource),
    /// The roots of trust of the mesh.
    TrustBundle,
    /// One configuration object.
    Object(ObjectRef),
    /// The names of the configuration objects of a kind.
    Names(Kind),
    /// The names in one part of a kind: see [`NameParts`](super::name_parts::NameParts).
    NamesIn(Kind, u8),
    /// The configuration objects of a kind in one namespace, values included.
    List(Kind, Namespace),
    /// The configuration objects of a kind in all namespaces, values included.
    ListAll(Kind),
    /// Which proxies see the new version of an object.
    Rollout(ObjectRef),
    /// The names of all workloads and services that ztunnel may get.
    AddressNames,
    /// The index entry of an address, node, label or pod.
    Found(AddressKey),
    /// The hosts that this workload has used. Boxed, as every key has room for the largest.
    Learned(Box<LearnedWorkload>),
    /// The set of remote clusters.
    Clusters,
    /// A fact of one remote cluster. Boxed: most meshes have one cluster, and every key has room
    /// for the largest.
    Remote(Box<(ClusterId, RemoteFact)>),
}

impl FactKey {
    /// A fact about objects of `cluster`, which must be a remote cluster.
    #[must_use]
    pub fn remote(cluster: &ClusterId, fact: RemoteFact) -> Self {
        Self::Remote(Box::new((cluster.clone(), fact)))
    }
}

/// The facts of a single remote cluster. Services and endpoints are merged over all clusters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemoteFact {
    /// The service ports that this pod serves.
    TargetsOf(NamespacedName),
    /// The service ports that WorkloadEntries at this address serve, and the pods at this address.
    TargetsAt(IpAddr),
    /// The workload of the pod of this namespace and name.
    Workload(NamespacedName),
    /// Whether this service account may read the secrets of its namespace.
    SecretReader(NamespacedName),
    /// The object of this kind and name, present or absent.
    Object(ObjectRef),
    /// The objects of a kind in one namespace, values included.
    List(Kind, Namespace),
    /// All objects of a kind, values included.
    All(Kind),
    /// The index entry of an address, node, label or pod.
    Found(AddressKey),
}

//! Facts: the typed keys under which a snapshot can be read, and by which a change is told.

use std::net::IpAddr;

use navarch_api::key_source::KeySource;
use navarch_api::names::{ClusterId, Hostname, Namespace};
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_registry::address_index::AddressKey;
use navarch_registry::model::ServiceKey;

/// One thing that can be read from a [`PushContext`](super::context::PushContext).
///
/// A fact changes when its *value* changes; whoever maintains it compares before telling.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactKey {
    /// The mesh config and the settings given at start.
    Mesh,
    /// The mesh networks, and the gateways that reach them.
    Networks,
    /// The service of this key (absent ones too).
    Service(ServiceKey),
    /// The services of this host in all namespaces.
    ServicesOfHost(Hostname),
    /// The list of all services with all their values, endpoints excepted.
    AllServices,
    /// The endpoints of one service.
    Endpoints(ServiceKey),
    /// The service ports that this pod serves.
    TargetsOf(NamespacedName),
    /// The service ports that workloads at this address serve, but for those of pods.
    TargetsAt(IpAddr),
    /// The workload of the pod of this namespace and name.
    Workload(NamespacedName),
    /// The labels of a namespace.
    Namespace(Namespace),
    /// Whether this service account may read the secrets of its namespace.
    SecretReader(NamespacedName),
    /// The keys fetched from one place.
    Keys(KeySource),
    /// The roots of trust of the mesh.
    TrustBundle,
    /// One configuration object.
    Object(ObjectRef),
    /// The names of the configuration objects of a kind.
    Names(Kind),
    /// Those of them that are in one part of all: see [`NameParts`](super::name_parts::NameParts).
    NamesIn(Kind, u8),
    /// The configuration objects of a kind in one namespace, values included.
    List(Kind, Namespace),
    /// The configuration objects of a kind in all namespaces, values included.
    ListAll(Kind),
    /// Which proxies see the new version of an object.
    Rollout(ObjectRef),
    /// The names of all workloads and services that ztunnel can be told of.
    AddressNames,
    /// The objects that are found by an address, by a node, by a label or by a pod.
    Found(AddressKey),
    /// Which remote clusters there are.
    Clusters,
    /// Something that is so in one remote cluster alone.
    Remote(ClusterId, RemoteFact),
}

/// What can be read of a remote cluster alone. Services and endpoints are those of all clusters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemoteFact {
    /// The service ports that this pod serves.
    TargetsOf(NamespacedName),
    /// The service ports that WorkloadEntries at this address serve, and the pods at it.
    TargetsAt(IpAddr),
    /// The workload of the pod of this namespace and name.
    Workload(NamespacedName),
    /// Whether this service account may read the secrets of its namespace.
    SecretReader(NamespacedName),
    /// One object.
    Object(ObjectRef),
    /// The objects of a kind in one namespace, values included.
    List(Kind, Namespace),
    /// All objects of a kind, values included.
    All(Kind),
    /// The objects that are found by an address, by a node, by a label or by a pod.
    Found(AddressKey),
}

//! The immutable snapshot that a push works on.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use imbl::OrdMap;

use super::fact::{FactKey, RemoteFact};
use super::learned::LearnedTable;
use super::name_list::NameList;
use super::name_parts::NameParts;
use super::quarantined::Quarantined;
use super::rollout::Rollout;
use navarch_api::any_object::AnyObject;
use navarch_api::key_source::KeySource;
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::names::{ClusterId, Hostname};
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::settings::Settings;
use navarch_registry::address_index::AddressIndex;
use navarch_registry::directory::{Directory, DirectoryChange};
use navarch_registry::model::ServiceKey;
use navarch_store::Objects;

/// The input of translators, immutable. The next snapshot shares all parts that did not change.
#[derive(Clone, Debug, Default)]
pub struct PushContext {
    /// Mesh config and settings.
    pub mesh: Arc<Mesh>,
    /// `meshNetworks` as configured, without the gateways that labelled Services declare.
    pub networks: Arc<MeshNetworks>,
    /// Services, endpoints, workloads.
    pub directory: Directory,
    /// Objects of the cluster that configures the mesh, or of its other sources. Not those of
    /// remote clusters.
    pub objects: Objects,
    /// The names of objects of kinds with many objects, in parts.
    pub name_parts: NameParts,
    /// Whether service accounts may read the secrets of their namespace, for those that were
    /// checked.
    pub secret_readers: OrdMap<NamespacedName, bool>,
    /// Fetched JWKS of token issuers, by source.
    pub keys: OrdMap<KeySource, Arc<str>>,
    /// The roots of trust of the mesh, sorted, one certificate in PEM each.
    pub trust_bundle: Arc<[Arc<str>]>,
    /// What workloads with a learned scope have used.
    pub learned: LearnedTable,
    /// Resolved addresses of network gateways, by host name.
    pub gateway_hosts: OrdMap<Arc<str>, Arc<[IpAddr]>>,
    /// Index of objects by address. Without ambient mode it is empty until a proxy requests a peer;
    /// then it contains pods and WorkloadEntries.
    pub addresses: AddressIndex,
    /// Whether a proxy has requested a peer by address.
    pub finds_peers: bool,
    /// The index of each remote cluster: in an ambient mesh of several networks, or after a proxy
    /// has requested a peer.
    pub remote_addresses: OrdMap<ClusterId, AddressIndex>,
    /// The names of workloads and services; empty without ambient mode.
    pub address_names: NameList,
    /// Objects of remote clusters: only kinds of `counts_in_remotes`, thus no configuration of the
    /// mesh.
    pub remotes: OrdMap<ClusterId, Objects>,
    /// As `secret_readers`, for remote clusters.
    pub remote_secret_readers: OrdMap<(ClusterId, NamespacedName), bool>,
    /// Objects whose previous version is served, because proxies rejected resources of the current
    /// one.
    pub quarantined: OrdMap<ObjectRef, Arc<Quarantined>>,
    /// Staged rollouts, stopped ones included. `objects` has the previous versions.
    pub rollouts: OrdMap<ObjectRef, Arc<Rollout>>,
    /// The new version of each object in `rollouts`. Some proxies see it, or none.
    pub new_versions: Objects,
}

/// The mesh-wide configuration as one fact.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mesh {
    /// Mesh config with defaults filled in.
    pub config: MeshConfig,
    /// Settings of the process.
    pub settings: Settings,
}

impl PushContext {
    /// Whether any namespace declares a service with this host and port.
    #[must_use]
    pub fn has_service_port(&self, host: &str, port: u16) -> bool {
        let Some((hostname, namespaces)) = self.directory.namespaces_of_host.get_key_value(host)
        else {
            return false;
        };
        namespaces.iter().any(|namespace| {
            let key = ServiceKey {
                namespace: namespace.clone(),
                hostname: hostname.clone(),
            };
            let services = self.directory.services.get(&key);
            let mut services = services.into_iter().flat_map(|all| all.iter());
            services.any(|service| service.ports.iter().any(|known| known.port == port))
        })
    }
}

/// The facts that a directory change affects.
#[must_use]
pub fn directory_facts(change: &DirectoryChange) -> Vec<FactKey> {
    let mut facts: Vec<FactKey> = Vec::new();

    for key in &change.services {
        facts.push(FactKey::Service(key.clone()));
        facts.push(FactKey::ServicesOfHost(key.hostname.clone()));
    }

    if !change.services.is_empty() {
        facts.push(FactKey::AllServices);
    }

    facts.extend(change.endpoints.iter().cloned().map(FactKey::Endpoints));
    facts.extend(change.pod_targets.iter().cloned().map(FactKey::TargetsOf));
    facts.extend(change.targets.iter().copied().map(FactKey::TargetsAt));
    facts.extend(change.workloads.iter().cloned().map(FactKey::Workload));
    if change.network_gateways {
        facts.push(FactKey::Networks);
    }

    facts.extend(change.clusters.then_some(FactKey::Clusters));

    for (cluster, change) in &change.remotes {
        let of_pods = change
            .pod_targets
            .iter()
            .cloned()
            .map(RemoteFact::TargetsOf);
        let at = change.targets.iter().copied().map(RemoteFact::TargetsAt);
        let workloads = change.workloads.iter().cloned().map(RemoteFact::Workload);
        facts.extend(
            of_pods
                .chain(at)
                .chain(workloads)
                .map(|fact| FactKey::remote(cluster, fact)),
        );
    }

    facts
}

/// The facts that a changed object affects, apart from those of the registry.
#[must_use]
pub fn object_facts(object: &ObjectRef) -> Vec<FactKey> {
    let mut facts = vec![
        FactKey::Object(object.clone()),
        FactKey::List(object.kind, object.name.namespace.clone()),
        FactKey::ListAll(object.kind),
    ];
    if object.kind == Kind::Namespace {
        facts.push(FactKey::Namespace(navarch_api::names::Namespace::new(
            &object.name.name,
        )));
    }
    facts
}

/// The facts that changed objects affect, as [`object_facts`], each list once.
pub(crate) fn facts_of_objects(objects: &BTreeSet<ObjectRef>) -> Vec<FactKey> {
    let mut facts = Vec::with_capacity(objects.len());
    let mut lists = Vec::new();
    let mut last: Option<&ObjectRef> = None;

    for object in objects {
        // Objects are in the order of their kinds and namespaces.
        let is_listed = last.is_some_and(|last| {
            last.kind == object.kind && last.name.namespace == object.name.namespace
        });

        if is_listed && object.kind != Kind::Namespace {
            facts.push(FactKey::Object(object.clone()));
        } else {
            lists.extend(object_facts(object));
        }
        last = Some(object);
    }

    facts.append(&mut lists);
    facts
}

/// The facts that a changed object of a remote cluster affects.
#[must_use]
pub fn remote_object_facts(cluster: &ClusterId, object: &ObjectRef) -> [FactKey; 3] {
    let list = RemoteFact::List(object.kind, object.name.namespace.clone());
    let all = RemoteFact::All(object.kind);
    [RemoteFact::Object(object.clone()), list, all].map(|fact| FactKey::remote(cluster, fact))
}

/// The facts by which translators read a configuration object, with the same granularity: policies
/// by the list of their namespace, ServiceEntries by the services that they declare, all others by
/// object.
#[must_use]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "most kinds are read individually"
)]
pub fn facts_of(object: &AnyObject) -> Vec<FactKey> {
    let name = object.object_ref();
    let mut facts = vec![FactKey::Object(name.clone())];

    match object {
        AnyObject::ServiceEntry(entry) => {
            for host in &entry.spec.hosts {
                let key = ServiceKey {
                    namespace: entry.meta.key.namespace.clone(),
                    hostname: Hostname::new(host),
                };
                facts.extend([FactKey::Service(key.clone()), FactKey::Endpoints(key)]);
            }
        }
        AnyObject::WorkloadEntry(_) => facts.push(FactKey::Workload(name.name)),
        AnyObject::PeerAuthentication(_)
        | AnyObject::AuthorizationPolicy(_)
        | AnyObject::RequestAuthentication(_)
        | AnyObject::Telemetry(_)
        | AnyObject::ProxyConfig(_) => {
            facts.push(FactKey::List(name.kind, name.name.namespace.clone()))
        }
        _ => {}
    }

    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_many_objects_are_those_of_each() {
        let object = |kind, namespace: &str, name: &str| ObjectRef {
            kind,
            name: NamespacedName::new(namespace, name),
        };
        let objects = BTreeSet::from([
            object(Kind::Namespace, "", "bank"),
            object(Kind::Namespace, "", "shop"),
            object(Kind::Pod, "bank", "a"),
            object(Kind::Pod, "shop", "a"),
            object(Kind::Pod, "shop", "b"),
            object(Kind::Service, "shop", "a"),
        ]);

        let facts: BTreeSet<FactKey> = facts_of_objects(&objects).into_iter().collect();
        assert_eq!(facts, objects.iter().flat_map(object_facts).collect());
    }
}

//! Typed reads of the snapshot through a view. Each records exactly what it read, missing values
//! included.
//!
//! Facts of pods use the key of their table, not an equal key of a request, since the fact is kept
//! as long as the result.

use std::net::IpAddr;
use std::sync::Arc;

use super::context::Mesh;
use super::fact::FactKey;
use super::name_list::NameList;
use super::view::View;
use navarch_api::key_source::KeySource;
use navarch_api::learned_scope::{LearnedHosts, LearnedWorkload};
use navarch_api::mesh::MeshNetworks;
use navarch_api::names::{Hostname, Namespace, NetworkId};
use navarch_api::object::NamespacedName;
use navarch_registry::directory::{NetworkGateway, TargetsAt};
use navarch_registry::model::{
    Labels, Service, ServiceEndpoints, ServiceKey, ServiceTarget, Workload,
};

impl View<'_> {
    /// Mesh config and settings.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.read(FactKey::Mesh).mesh
    }

    /// The names of all possible workloads and services.
    pub(super) fn address_names(&self) -> &NameList {
        &self.read(FactKey::AddressNames).address_names
    }

    /// Mesh networks as configured.
    #[must_use]
    pub fn networks(&self) -> &MeshNetworks {
        &self.read(FactKey::Networks).networks
    }

    /// The gateways that reach a network, from mesh networks and labelled services.
    #[must_use]
    pub fn network_gateways(&self, network: &NetworkId) -> &[NetworkGateway] {
        let gateways = self
            .read(FactKey::Networks)
            .directory
            .network_gateways
            .get(network);
        gateways.map_or(&[], |gateways| gateways)
    }

    /// The gateways that reach any network, by network.
    pub fn all_network_gateways(&self) -> impl Iterator<Item = &NetworkGateway> {
        let gateways = &self.read(FactKey::Networks).directory.network_gateways;
        gateways.values().flat_map(|gateways| gateways.iter())
    }

    /// The resolved addresses of a network gateway with this host name; empty if it was not
    /// resolved.
    #[must_use]
    pub fn gateway_addresses(&self, host: &str) -> &[IpAddr] {
        self.read(FactKey::Networks)
            .gateway_hosts
            .get(host)
            .map_or(&[], |addresses| addresses)
    }

    /// The service of this key; if several objects declare it, the one with precedence.
    #[must_use]
    pub fn service(&self, key: &ServiceKey) -> Option<&Arc<Service>> {
        self.read(FactKey::Service(key.clone()))
            .directory
            .services
            .get(key)?
            .first()
    }

    /// All services of this key, the one with precedence first. There are several if several
    /// objects declare the host in a namespace.
    #[must_use]
    pub fn services_of(&self, key: &ServiceKey) -> &[Arc<Service>] {
        self.read(FactKey::Service(key.clone()))
            .directory
            .services
            .get(key)
            .map_or(&[], |services| services)
    }

    /// The namespaces that declare this host, sorted.
    #[must_use]
    pub fn namespaces_of_host(&self, host: &Hostname) -> Option<&[Namespace]> {
        self.read(FactKey::ServicesOfHost(host.clone()))
            .directory
            .namespaces_of_host
            .get(host)
            .map(|found| &**found)
    }

    /// All services, by namespace and host, duplicates of one key included. A change of any service
    /// recomputes the reader: derive a small value from them, and let an equal value stop the
    /// update.
    pub fn all_services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.read(FactKey::AllServices)
            .directory
            .services
            .values()
            .flat_map(|services| services.iter())
    }

    /// The endpoints of a service; `None` if the service is missing or has no endpoints.
    #[must_use]
    pub fn endpoints(&self, key: &ServiceKey) -> Option<&Arc<ServiceEndpoints>> {
        self.read(FactKey::Endpoints(key.clone()))
            .directory
            .endpoints
            .get(key)
    }

    /// The service ports of Kubernetes Services that this pod serves.
    #[must_use]
    pub fn targets_of_pod(&self, pod: &NamespacedName) -> &[ServiceTarget] {
        let found = self.unrecorded().directory.pod_targets.get_key_value(pod);
        self.read(FactKey::TargetsOf(
            found.map_or(pod, |(key, _)| key).clone(),
        ));
        found.map_or(&[], |(_, targets)| targets)
    }

    /// The service ports that workloads at this address serve, except pods of Kubernetes Services.
    #[must_use]
    pub fn targets_at(&self, address: IpAddr) -> Option<&Arc<TargetsAt>> {
        self.read(FactKey::TargetsAt(address))
            .directory
            .targets
            .get(&address)
    }

    /// The workload of the pod of this name.
    #[must_use]
    pub fn workload(&self, name: &NamespacedName) -> Option<&Arc<Workload>> {
        let found = self.unrecorded().directory.workloads.get_key_value(name);
        self.read(FactKey::Workload(
            found.map_or(name, |(key, _)| key).clone(),
        ));
        found.map(|(_, workload)| workload)
    }

    /// Whether a service account may read the secrets of its namespace; false while this is not
    /// known.
    #[must_use]
    pub fn may_read_secrets(&self, account: &NamespacedName) -> bool {
        self.read(FactKey::SecretReader(account.clone()))
            .secret_readers
            .get(account)
            .copied()
            .unwrap_or_default()
    }

    /// `None` if the Namespace object does not exist; empty if it has no labels.
    #[must_use]
    pub fn namespace_labels(&self, namespace: &Namespace) -> Option<&Labels> {
        let key = NamespacedName::new("", namespace.as_str());
        let context = self.read(FactKey::Namespace(namespace.clone()));
        context
            .objects
            .namespaces
            .get(&key)
            .map(|object| &object.meta.labels)
    }

    /// The JSON Web Key Set fetched from a source; `None` if there is none yet.
    #[must_use]
    pub fn keys(&self, source: &KeySource) -> Option<&Arc<str>> {
        self.read(FactKey::Keys(source.clone())).keys.get(source)
    }

    /// The hosts that a workload with a learned scope has used; `None` if there are none.
    #[must_use]
    pub fn learned_hosts(&self, workload: &LearnedWorkload) -> Option<&Arc<LearnedHosts>> {
        self.read(FactKey::Learned(Box::new(workload.clone())))
            .learned
            .get(workload)
    }

    /// The roots of trust of the mesh, one certificate in PEM each.
    #[must_use]
    pub fn trust_bundle(&self) -> &[Arc<str>] {
        &self.read(FactKey::TrustBundle).trust_bundle
    }
}

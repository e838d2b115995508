//! Ambient mode: translation of a view to ztunnel's resources: workloads and services by address,
//! and authorization policies.
//!
//! ```text
//! AddressNames ─▶ names of a wildcard                       pods, WorkloadEntries, ServiceEntries, EndpointSlices
//! Found(key) ───▶ resource names of an address, a host       │  + mesh, node, services, policies, waypoints (queries)
//!                                                            ▼
//!                                                     Workload, Service, Authorization, encoded
//! ```
//!
//! A resource is built from the object of its name; inputs that many resources share are queries of
//! their own, so that a change costs what it affects. Translation for Envoy uses the bindings to
//! waypoints ([`bound`]), which workloads accept HBONE ([`tunnel`]), and which services are
//! multi-cluster ([`networks`]); the conditions of objects reflect it ([`status`]). Sidecars,
//! gateways and waypoints find pods and WorkloadEntries by address, outside ambient mode, too
//! (`peers`). Agrees with Istio's `pilot/pkg/serviceregistry/ambient` and
//! `pilot/pkg/xds/workload.go`. Pure functions: no tasks, sockets or clocks.

pub mod bound;
mod members;
mod mesh;
mod network_gateways;
pub mod networks;
mod node;
mod peers;
mod policies;
mod ports;
mod selected;
mod service_facts;
mod services;
mod site;
mod split_horizon;
pub mod status;
pub mod tunnel;
mod waypoint;
mod wire;
mod workloads;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use bytes::Bytes;
use navarch_proto::istio::workload::Address;
use navarch_proto::istio::workload::address::Type;
use prost::Message;

use navarch_api::learned_scope::{LearnedHosts, LearnedWorkload};
use navarch_api::names::ResourceName;
use navarch_push::learned::ScopedClusters;
use navarch_push::name_list::NameList;
use navarch_push::resource::ResourceType;
use navarch_push::view::{Translator, View};
use navarch_registry::address_name::AddressName;

pub use waypoint::is_of_mesh_gateway;
pub use workloads::{declares_hbone, is_redirected};

/// Translates for ztunnel, and delegates resources of other clients to another translator.
#[derive(Clone, Copy, Debug, Default)]
pub struct AmbientTranslator<T>(pub T);

/// The types that are translated here; all others are of other clients.
#[derive(Clone, Copy)]
enum OwnType {
    Address,
    Workload,
    Authorization,
    /// The statuses of some objects.
    ObjectStatus,
}

impl OwnType {
    fn of(resource_type: ResourceType) -> Option<Self> {
        match resource_type {
            ResourceType::Address => Some(Self::Address),
            ResourceType::Workload => Some(Self::Workload),
            ResourceType::Authorization => Some(Self::Authorization),
            ResourceType::ObjectStatus => Some(Self::ObjectStatus),
            ResourceType::Cluster
            | ResourceType::Endpoint
            | ResourceType::Listener
            | ResourceType::Route
            | ResourceType::VirtualHost
            | ResourceType::Secret
            | ResourceType::ExtensionConfig
            | ResourceType::NameTable
            | ResourceType::ProxyConfig
            | ResourceType::Bootstrap
            | ResourceType::Locality
            | ResourceType::Object(_) => None,
        }
    }
}

impl<T: Translator> Translator for AmbientTranslator<T> {
    fn names(&self, resource_type: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        match OwnType::of(resource_type) {
            Some(OwnType::Authorization) => policies::names(view),
            // All other names are maintained incrementally.
            Some(OwnType::Address | OwnType::Workload) => split_horizon::names(view),
            Some(OwnType::ObjectStatus) => {
                [self.0.names(resource_type, view), status::names(view)].concat()
            }
            None => self.0.names(resource_type, view),
        }
    }

    fn further_names(&self, resource_type: ResourceType, view: &View<'_>) -> Option<NameList> {
        self.0.further_names(resource_type, view)
    }

    fn referenced_names(
        &self,
        resource_type: ResourceType,
        requested: &BTreeSet<ResourceName>,
        view: &View<'_>,
    ) -> Option<Vec<ResourceName>> {
        self.0.referenced_names(resource_type, requested, view)
    }

    fn members(
        &self,
        resource_type: ResourceType,
        of: &ResourceName,
        view: &View<'_>,
    ) -> Vec<ResourceName> {
        match resource_type.is_by_address() {
            true if peers::is_peers_only(resource_type, view) => peers::at(of.as_str(), view),
            true => members::resolve_name(of.as_str(), view),
            false => self.0.members(resource_type, of, view),
        }
    }

    fn unnamed(&self, resource_type: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        match resource_type.is_by_address() {
            true if peers::is_peers_only(resource_type, view) => Vec::new(),
            true => members::on_own_node(view),
            false => self.0.unnamed(resource_type, view),
        }
    }

    fn learned(
        &self,
        clusters: &BTreeSet<ResourceName>,
        view: &View<'_>,
    ) -> Option<(LearnedWorkload, LearnedHosts)> {
        self.0.learned(clusters, view)
    }

    fn scoped_clusters(
        &self,
        requested: &BTreeSet<ResourceName>,
        view: &View<'_>,
    ) -> Option<ScopedClusters> {
        self.0.scoped_clusters(requested, view)
    }

    fn has_large_routes(&self, view: &View<'_>) -> bool {
        self.0.has_large_routes(view)
    }

    fn resource_on_demand(
        &self,
        resource_type: ResourceType,
        name: &ResourceName,
        view: &View<'_>,
    ) -> Option<Bytes> {
        if resource_type.is_by_address() && peers::is_peers_only(resource_type, view) {
            return peers::peer(name, view).map(|workload| workload.encode_to_vec().into());
        }
        self.resource(resource_type, name, view)
    }

    fn resource(
        &self,
        resource_type: ResourceType,
        name: &ResourceName,
        view: &View<'_>,
    ) -> Option<Bytes> {
        match OwnType::of(resource_type) {
            Some(OwnType::Authorization) => policies::resource(name.as_str(), view),
            Some(OwnType::Address) => {
                address(name, view).map(|address| address.encode_to_vec().into())
            }
            Some(OwnType::Workload) => match address(name, view)?.r#type? {
                Type::Workload(workload) => Some(workload.encode_to_vec().into()),
                Type::Service(_) => None,
            },
            Some(OwnType::ObjectStatus) => match status::subject(name.as_str()) {
                Some(object) => status::resource(&object, view),
                None => self.0.resource(resource_type, name, view),
            },
            None => self.0.resource(resource_type, name, view),
        }
    }
}

fn address(name: &ResourceName, view: &View<'_>) -> Option<Address> {
    let mesh = view.get(&mesh::MeshFacts);
    let name = AddressName::parse(name.as_str(), &mesh.cluster)?;
    let found = match &name {
        AddressName::Service(key) => Type::Service(services::service(key, view)?),
        AddressName::Pod(_)
        | AddressName::WorkloadEntry(_)
        | AddressName::Endpoint { .. }
        | AddressName::SliceEndpoint { .. }
        | AddressName::NetworkGateway { .. }
        | AddressName::SplitHorizon { .. }
        | AddressName::Remote { .. } => Type::Workload(workloads::workload(&name, view)?),
    };
    Some(Address {
        r#type: Some(found),
    })
}

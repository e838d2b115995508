//! The services that a waypoint reaches as a client: the destinations of its own services' routes,
//! and those that extensions, EnvoyFilters and token issuers need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::named_by_extensions;
use crate::virtual_service::{self, VirtualServiceIndex};
use crate::waypoint::{self, ServedHosts};
use crate::{gateway, hbone, sidecar_scope};
use navarch_api::istio::MESH_GATEWAY;
use navarch_api::names::Hostname;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

/// The destination hosts of VirtualServices for the mesh, by their own host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReferencesOfHosts;

/// The destination hosts of VirtualServices for one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReferencesOf(Hostname);

/// The services that the view's proxy reaches as a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OutboundServices;

/// The services that the view's proxy, a waypoint, reaches as a client, in Istio's order.
pub(super) fn services(view: &View<'_>) -> Arc<Vec<ServiceKey>> {
    view.get(&OutboundServices)
}

impl Query for ReferencesOfHosts {
    type Value = BTreeMap<Hostname, BTreeSet<Hostname>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut references: Self::Value = BTreeMap::new();
        let index = view.get(&VirtualServiceIndex);
        let of_mesh =
            |gateways: &[Arc<str>]| gateways.iter().any(|gateway| &**gateway == MESH_GATEWAY);

        for entry in index
            .entries
            .iter()
            .filter(|entry| of_mesh(&entry.gateways))
        {
            let destinations = virtual_service::destinations(view, &entry.name).all();
            for host in &*entry.hosts {
                references
                    .entry(host.clone())
                    .or_default()
                    .extend(destinations.keys().cloned());
            }
        }

        references
    }
}

impl Query for ReferencesOf {
    type Value = BTreeSet<Hostname>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&ReferencesOfHosts)
            .get(&self.0)
            .cloned()
            .unwrap_or_default()
    }
}

/// The hosts of a gateway between networks that it passes TLS through to.
fn hosts_of_passthrough(view: &View<'_>) -> BTreeSet<Hostname> {
    let gateways = gateway::serving_gateways(view);
    let names = gateways
        .iter()
        .flat_map(|gateway| sidecar_scope::gateway_virtual_services(view, gateway).to_vec());
    names
        .flat_map(|name| virtual_service::destinations(view, &name).all().into_keys())
        .collect()
}

impl Query for OutboundServices {
    type Value = Vec<ServiceKey>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let served = view.get(&ServedHosts);
        let is_outbound = |host: &Hostname| match waypoint::service(view, host) {
            // Services outside the mesh are also reached as a client.
            Some(service) => service.mesh_external,
            None => true,
        };

        let mut hosts = BTreeSet::new();
        for host in served.keys() {
            let references = view.get(&ReferencesOf(host.clone()));
            hosts.extend(references.iter().filter(|host| is_outbound(host)).cloned());
        }

        if hbone::joins_networks(view) {
            hosts.extend(hosts_of_passthrough(view));
        }

        let needed = named_by_extensions(view);
        let visible = sidecar_scope::visible_services(view);
        let is_wanted = |key: &&ServiceKey| hosts.contains(&key.hostname) || needed.contains(key);
        visible.iter().filter(is_wanted).cloned().collect()
    }
}

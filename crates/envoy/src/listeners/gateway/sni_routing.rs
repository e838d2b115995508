//! Chains of servers that pass TLS through to the cluster named by the SNI (`AUTO_PASSTHROUGH`).

use super::super::destination::sni_routed_filters;
use super::super::filter_chain::Chain;
use super::super::inbound_match::MESH;
use crate::destination_rule;
use crate::names::OutboundCluster;
use crate::sidecar_scope;
use navarch_api::hostname;
use navarch_push::view::View;
use navarch_registry::model::{Service, ServicePort};
use navarch_registry::protocol::Protocol;

/// A chain for each port and subset of the services of the mesh whose hosts are among `hosts`.
///
/// Only connections with the ALPN protocols of Istio's mutual TLS match. Other clients cannot
/// bypass it, since the server rejects them.
pub(super) fn chains(view: &View<'_>, hosts: &[String]) -> Vec<Chain> {
    let mut chains = Vec::new();

    for key in sidecar_scope::visible_services(view).iter() {
        if !hosts
            .iter()
            .any(|host| hostname::is_subset_of(key.hostname.as_str(), host))
        {
            continue;
        }
        let Some(service) =
            sidecar_scope::seen_service(view, key).filter(|service| !service.mesh_external)
        else {
            continue;
        };

        for port in service
            .ports
            .iter()
            .filter(|port| port.protocol != Protocol::Udp)
        {
            chains.extend(of_port(view, &service, port));
        }
    }

    chains
}

/// The chains of a port: that of the whole service, then those of its subsets.
fn of_port(view: &View<'_>, service: &Service, port: &ServicePort) -> Vec<Chain> {
    let rule = destination_rule::for_service(view, service);
    let subsets = rule
        .iter()
        .flat_map(|rule| rule.subsets.iter().map(|subset| subset.name.as_str()));
    let chain = |subset: &str| {
        let cluster = OutboundCluster::new(port.port, subset, &service.key.hostname);
        Chain {
            filters: sni_routed_filters(view, service, port, &cluster, rule.as_deref()),
            sni: vec![cluster.sni()],
            application_protocols: MESH.map(str::to_owned).to_vec(),
            ..Chain::default()
        }
    };
    std::iter::once("").chain(subsets).map(chain).collect()
}

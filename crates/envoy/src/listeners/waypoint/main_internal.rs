//! The listener after the end of a waypoint's tunnels: a filter chain for each port of each
//! service, and two for workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_proto::envoy::config::core::v3::TrafficDirection;
use navarch_proto::envoy::config::listener::v3::listener::{
    InternalListenerConfig, ListenerSpecifier,
};
use navarch_proto::envoy::config::listener::v3::{Listener, ListenerFilter};
use navarch_proto::xds::r#type::matcher::v3::Matcher;
use navarch_proto::xds::r#type::matcher::v3::matcher::OnMatch;

use super::chains::{self, ChainsOf, addresses, has_chains};
use super::{CLASS, matcher};
use crate::filters::access_log::AccessLogsOf;
use crate::filters::listener::{http_inspector, original_destination, tls_inspector};
use crate::hbone;
use crate::listeners::on_ports;
use crate::names::{VipCluster, VipTransport};
use crate::waypoint::{services, transports};
use navarch_ambient::bound;
use navarch_push::view::View;
use navarch_registry::model::Service;
use navarch_registry::protocol::Protocol;

pub(crate) fn build(view: &View<'_>) -> Listener {
    let services = services(view);
    let workloads = bound::workloads_of_proxy(view);
    let mut filter_chains = Vec::new();

    for service in services.iter() {
        filter_chains.extend(
            (*view.get(&ChainsOf {
                service: service.key.clone(),
            }))
            .clone(),
        );
    }

    if !hbone::joins_networks(view) {
        filter_chains.extend(chains::of_workloads(view));
    } else if filter_chains.is_empty() {
        filter_chains.push(chains::nowhere());
    }

    let mut listener_filters = vec![
        original_destination(),
        http_inspection(view, &services, !workloads.is_empty()),
    ];
    listener_filters.extend(tls_inspection(&services));
    let addresses: Vec<String> = workloads
        .iter()
        .flat_map(|workload| &workload.addresses)
        .map(ToString::to_string)
        .collect();

    Listener {
        name: hbone::MAIN.to_owned(),
        listener_specifier: Some(ListenerSpecifier::InternalListener(
            InternalListenerConfig {},
        )),
        traffic_direction: TrafficDirection::Inbound.into(),
        filter_chain_matcher: Some(choice(view, &services, &addresses)),
        filter_chains,
        listener_filters,
        access_log: view.get(&AccessLogsOf::of_class(CLASS)).listener.clone(),
        ..Listener::default()
    }
}

/// The matcher that selects a connection's chain. With several networks hosts are matched first,
/// since an address may belong to another workload in another network.
fn choice(view: &View<'_>, services: &[Arc<Service>], workloads: &[String]) -> Matcher {
    let mut ranges = Vec::new();
    let mut by_authority = BTreeMap::new();

    for service in services {
        let addresses = addresses(view, service);
        let via_waypoint = via_waypoint(view, service);
        let mut ports = BTreeMap::new();

        for port in service
            .ports
            .iter()
            .filter(|port| has_chains(view, service, port))
        {
            let host = &service.key.hostname;
            let cluster = |transport| VipCluster::new(port.port, transport, host).to_string();
            let found = match *transports(view, port) {
                [only] => match &via_waypoint {
                    Some(waypoint) => waypoint.matcher(&cluster(only)),
                    None => matcher::chain(&cluster(only)),
                },
                _ => {
                    let http = cluster(VipTransport::Http);
                    let tcp = cluster(VipTransport::Tcp);
                    matcher::then(matcher::by_protocol(view, &http, &tcp))
                }
            };

            if !addresses.is_empty() {
                by_authority.insert(format!("{host}:{}", port.port), found.clone());
            }
            ports.insert(port.port.to_string(), found);
        }

        if !ports.is_empty() && !addresses.is_empty() {
            let found = matcher::then(matcher::by_port(ports));
            ranges.push(matcher::to_addresses(
                addresses.iter().map(|address| &**address),
                found,
            ));
        }
    }

    if !workloads.is_empty() {
        let found = matcher::then(matcher::by_protocol(
            view,
            chains::DIRECT_HTTP,
            chains::DIRECT_TCP,
        ));
        ranges.push(matcher::to_addresses(
            workloads.iter().map(String::as_str),
            found,
        ));
    }

    let by_address = matcher::by_address(ranges);
    if by_authority.is_empty() || !view.mesh().settings.gateway_api.east_west {
        return by_address;
    }

    matcher::by_authority(by_authority, by_address)
}

/// How a gateway between networks decides whether a connection goes through the waypoint of its
/// service.
struct ViaWaypoint {
    /// The filter chain of the waypoint.
    chain: String,
    /// Whether connections from ingress gateways use it.
    at_ingress: bool,
}

impl ViaWaypoint {
    /// Connections of waypoints, which have already applied policies, use the service's own chain,
    /// and so do those of ingress gateways if the service does not use its waypoint for them. All
    /// others use the waypoint's.
    fn matcher(&self, own: &str) -> OnMatch {
        let of_gateways = if self.at_ingress { &self.chain } else { own };
        let by = [("waypoint", own), ("gateway", of_gateways)];
        let map = by
            .map(|(source, chain)| (source.to_owned(), matcher::chain(chain)))
            .into();
        matcher::then(matcher::by_source(map, matcher::chain(&self.chain)))
    }
}

/// The waypoint of a service, if the view's proxy is a gateway between networks; `None` without a
/// waypoint.
fn via_waypoint(view: &View<'_>, service: &Service) -> Option<ViaWaypoint> {
    let binding = hbone::joins_networks(view)
        .then(|| bound::binding(view, &service.key))
        .flatten()?;
    let waypoint = binding.waypoint.address.service(view)?;
    let chain = VipCluster::new(hbone::PORT, VipTransport::Tcp, &waypoint.hostname).to_string();
    Some(ViaWaypoint {
        chain,
        at_ingress: binding.at_ingress,
    })
}

/// Detects HTTP, except on ports with a known protocol. Workloads may be addressed on any port.
fn http_inspection(
    view: &View<'_>,
    services: &[Arc<Service>],
    has_workloads: bool,
) -> ListenerFilter {
    let mut protocols: BTreeMap<u16, Protocol> = BTreeMap::new();

    for service in services {
        for port in service
            .ports
            .iter()
            .filter(|port| has_chains(view, service, port))
        {
            let before = protocols.get(&port.port).copied();
            let protocol = if hbone::joins_networks(view) {
                Protocol::Tcp
            } else {
                port.protocol
            };

            // Two services may use one port number with different protocols.
            let now = match before {
                _ if protocol.is_unsupported() => Protocol::Unsupported,
                None | Some(Protocol::Http) if protocol.is_http() => Protocol::Http,
                None => protocol,
                Some(before) if !protocol.is_http() && before.is_tcp() => protocol,
                Some(_) => Protocol::Unsupported,
            };

            protocols.insert(port.port, now);
        }
    }

    let known = protocols
        .iter()
        .filter(|(_, protocol)| !has_workloads && !protocol.is_unsupported());
    ListenerFilter {
        filter_disabled: on_ports(known.map(|(port, _)| u32::from(*port))),
        ..http_inspector()
    }
}

/// Reads the SNI of TLS, on ports with TLS.
fn tls_inspection(services: &[Arc<Service>]) -> Option<ListenerFilter> {
    let ports = || services.iter().flat_map(|service| &service.ports);
    let with_tls: BTreeSet<u16> = ports()
        .filter(|port| port.protocol.is_tls())
        .map(|port| port.port)
        .collect();
    let others = ports()
        .map(|port| port.port)
        .filter(|port| !with_tls.contains(port));
    let filter_disabled = on_ports(others.map(u32::from));
    (!with_tls.is_empty()).then(|| ListenerFilter {
        filter_disabled,
        ..tls_inspector()
    })
}

//! Connections to a sidecar through HBONE: the listener after the end of its tunnels, with the
//! chains of the served ports.

use navarch_proto::envoy::config::core::v3::TrafficDirection;
use navarch_proto::envoy::config::listener::v3::listener::{
    InternalListenerConfig, ListenerSpecifier,
};
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};

use super::inbound_chain::{self, Target};
use super::inbound_plan::served_ports;
use super::inspectors;
use crate::cidr;
use crate::filters::access_log::AccessLogsOf;
use crate::filters::class::ListenerClass;
use crate::filters::listener::original_destination;
use crate::hbone;
use crate::mtls::MtlsMode;
use navarch_base::cidr::Cidr;
use navarch_push::view::View;

/// Builds the listener. TLS is already terminated here, and only the addresses of the workload can
/// be destinations.
pub(super) fn build(view: &View<'_>) -> Listener {
    let ports = served_ports(view);
    let mut filter_chains: Vec<FilterChain> = ports
        .iter()
        .flat_map(|port| inbound_chain::tunnelled(view, &Target::Served(port)))
        .collect();
    filter_chains.extend(inbound_chain::tunnelled(
        view,
        &Target::Unknown {
            port: 0,
            mtls: MtlsMode::Disable,
        },
    ));

    let ips = view.proxy().ips();

    for chain in &mut filter_chains {
        let matched = chain.filter_chain_match.get_or_insert_default();
        matched.transport_protocol.clear();
        matched.prefix_ranges = ips
            .iter()
            .map(|ip| cidr::to_proto(Cidr::single(*ip)))
            .collect();
    }

    let mut listener_filters = vec![original_destination()];
    listener_filters.extend(inspectors::for_chains(&filter_chains));
    Listener {
        name: hbone::MAIN.to_owned(),
        listener_specifier: Some(ListenerSpecifier::InternalListener(
            InternalListenerConfig {},
        )),
        traffic_direction: TrafficDirection::Inbound.into(),
        continue_on_listener_filters_timeout: true,
        access_log: view
            .get(&AccessLogsOf::of_class(ListenerClass::SidecarInbound))
            .listener
            .clone(),
        filter_chains,
        listener_filters,
        ..Listener::default()
    }
}

//! The filter chains of a waypoint: for the ports of a service, and for directly addressed
//! workloads.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use navarch_proto::envoy::config::listener::v3::{Filter, FilterChain};

use super::{Subject, http, tcp};
use crate::filters::dynamic_forward_proxy::resolves_by_name;
use crate::filters::network::{tcp_filter, tcp_proxy};
use crate::filters::tunnel;
use crate::hbone;
use crate::names::{BLACK_HOLE, VipCluster, VipTransport};
use crate::service_address;
use crate::waypoint::transports;
use navarch_ambient::networks;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{Service, ServiceKey, ServicePort};

/// The TCP chain for workloads.
pub(super) const DIRECT_TCP: &str = "direct-tcp";
/// The HTTP chain for workloads.
pub(super) const DIRECT_HTTP: &str = "direct-http";

/// The chain for connections to unknown destinations.
const NOWHERE: &str = "virtualInbound-blackhole";

/// The filter chains of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChainsOf {
    pub(super) service: ServiceKey,
}

impl Query for ChainsOf {
    type Value = Vec<FilterChain>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Some(service) = view.service(&self.service).map(Arc::clone) else {
            return Vec::new();
        };

        let mut chains = Vec::new();

        for port in service
            .ports
            .iter()
            .filter(|port| has_chains(view, &service, port))
        {
            let subject = Subject::Port(&service, port);
            for transport in transports(view, port) {
                let name =
                    VipCluster::new(port.port, *transport, &service.key.hostname).to_string();
                let mut filters: Vec<Filter> =
                    destination(view, &service, port.port).into_iter().collect();
                filters.extend(match transport {
                    VipTransport::Http => http::filters(view, subject, &name),
                    VipTransport::Tcp => tcp::filters(view, subject, &name),
                });
                chains.push(FilterChain {
                    name,
                    filters,
                    ..FilterChain::default()
                });
            }
        }

        chains
    }
}

/// The chain for connections to unknown destinations: Envoy rejects a listener without chains.
pub(super) fn nowhere() -> FilterChain {
    let proxy = tcp_proxy(BLACK_HOLE, BLACK_HOLE);
    FilterChain {
        name: NOWHERE.to_owned(),
        filters: vec![tcp_filter(&proxy)],
        ..FilterChain::default()
    }
}

/// The chains for workloads. They forward connections to their original destination.
pub(super) fn of_workloads(view: &View<'_>) -> [FilterChain; 2] {
    let chain = |name: &str, filters: Vec<Filter>| FilterChain {
        name: name.to_owned(),
        filters: [tunnel::forwarded_authority()]
            .into_iter()
            .chain(filters)
            .collect(),
        ..FilterChain::default()
    };

    [
        chain(
            DIRECT_TCP,
            tcp::filters(view, Subject::Workloads, hbone::ENCAP),
        ),
        chain(
            DIRECT_HTTP,
            http::filters(view, Subject::Workloads, hbone::ENCAP),
        ),
    ]
}

/// The addresses of a service at the view's proxy: for a multi-cluster service, those in the
/// proxy's network.
pub(super) fn addresses(view: &View<'_>, service: &Service) -> BTreeSet<Arc<str>> {
    let mut addresses: BTreeSet<Arc<str>> =
        service_address::all(view, service).into_iter().collect();

    if view.mesh().settings.gateway_api.east_west {
        let families = view.proxy().families();
        let ips = networks::addresses(view, &service.key, &view.proxy().network());
        let fits = |ip: &IpAddr| {
            if ip.is_ipv4() {
                families.has_v4()
            } else {
                families.has_v6()
            }
        };

        addresses.extend(
            ips.iter()
                .filter(|ip| fits(ip))
                .map(|ip| Arc::from(ip.to_string())),
        );
    }

    addresses
}

/// Whether a port of a service has filter chains.
pub(super) fn has_chains(view: &View<'_>, service: &Service, port: &ServicePort) -> bool {
    // The host of a TLS connection is not resolved by its SNI here.
    let by_sni = port.protocol.is_tls() && resolves_by_name(service);
    !transports(view, port).is_empty() && !by_sni
}

/// With several networks, traffic to the original destination of a service may have been addressed
/// by host.
fn destination(view: &View<'_>, service: &Service, port: u16) -> Option<Filter> {
    let is_wanted = view.mesh().settings.gateway_api.east_west
        && !hbone::joins_networks(view)
        && !addresses(view, service).is_empty();
    is_wanted
        .then(|| tunnel::destination(&format!("{}:{port}", service_address::main(view, service))))
}

//! The filter chains of a waypoint: for the ports of a service, and for directly addressed
//! workloads.

use std::sync::Arc;

use navarch_proto::envoy::config::listener::v3::{Filter, FilterChain};

use super::main_internal::{addresses, has_chains};
use super::{http, tcp, transports};
use crate::filters::network::{tcp_filter, tcp_proxy};
use crate::hbone::{self, filters};
use crate::names::{BLACK_HOLE, VipCluster, VipTransport};
use crate::service_address;
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

/// The subject of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject<'a> {
    Port(&'a Service, &'a ServicePort),
    /// Workloads, on any port.
    Workloads,
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
        filters: [filters::forwarded_authority()]
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

/// With several networks, traffic to the original destination of a service may have been addressed
/// by host.
fn destination(view: &View<'_>, service: &Service, port: u16) -> Option<Filter> {
    let is_wanted = view.mesh().settings.gateway_api.east_west
        && !hbone::joins_networks(view)
        && !addresses(view, service).is_empty();
    is_wanted
        .then(|| filters::destination(&format!("{}:{port}", service_address::main(view, service))))
}

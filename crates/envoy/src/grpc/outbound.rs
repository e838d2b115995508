//! Client listeners `host:port`, which refer to their route configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use navarch_proto::envoy::config::core::v3::{AggregatedConfigSource, ConfigSource};
use navarch_proto::envoy::config::listener::v3::{ApiListener, Listener};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::{HttpConnectionManager, Rds};

use super::{host_port, requested};
use crate::build::socket_address;
use crate::filters::http;
use crate::listeners::address::additional_addresses;
use crate::names::OutboundCluster;
use crate::{routes, service_address, sidecar_scope};
use navarch_api::names::ResourceName;
use navarch_push::view::View;
use navarch_registry::model::Service;

/// The names of the listeners of all services that the client sees.
pub(super) fn names(view: &View<'_>) -> Vec<ResourceName> {
    let mut names = Vec::new();
    for key in sidecar_scope::visible_services(view).iter() {
        let Some(service) = sidecar_scope::seen_service(view, key) else {
            continue;
        };
        let host = service.key.hostname.as_str();
        names.extend(
            service
                .ports
                .iter()
                .map(|port| ResourceName::new(host_port::join(host, port.port))),
        );
    }
    names
}

/// The listener names that the requested names refer to. If several names refer to one host, each
/// of them has all ports that any of them requests, as in istiod.
pub(super) fn referenced_names(
    subscribed: &BTreeSet<ResourceName>,
    view: &View<'_>,
) -> Vec<ResourceName> {
    let mut names = Vec::new();

    for (host, requested) in requested::by_host(view, subscribed) {
        let Some(service) = sidecar_scope::host_service(view, &host) else {
            continue;
        };

        for port in service
            .ports
            .iter()
            .filter(|port| requested.has_port(port.port))
        {
            names.extend(
                requested
                    .names
                    .iter()
                    .map(|name| ResourceName::new(host_port::join(name, port.port))),
            );
        }
    }

    names
}

/// The listener of this name; `None` if no service that the client sees has the host and the port.
pub(super) fn build(view: &View<'_>, name: &str) -> Option<Listener> {
    let (service, port) = service_of(view, name)?;
    let routes = OutboundCluster::new(port, "", &service.key.hostname).to_string();
    let session = routes::session_filter(view, &service);
    let manager = HttpConnectionManager {
        http_filters: session
            .into_iter()
            .chain([http::fault(), http::router(false)])
            .collect(),
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(same_stream()),
            route_config_name: routes,
        })),
        ..HttpConnectionManager::default()
    };

    Some(Listener {
        name: name.to_owned(),
        address: Some(socket_address(
            &service_address::main(view, &service),
            u32::from(port),
        )),
        additional_addresses: additional_addresses(&service_address::extra(view, &service), port),
        api_listener: Some(ApiListener {
            api_listener: Some(pack(&manager)),
        }),
        ..Listener::default()
    })
}

/// The service and the port of a listener name.
fn service_of(view: &View<'_>, name: &str) -> Option<(Arc<Service>, u16)> {
    let (host, port) = host_port::split(name)?;
    let port: u16 = port.parse().ok()?;
    let service = |host| {
        sidecar_scope::host_service(view, &host).filter(|service| service.port(port).is_some())
    };
    requested::hosts_of(view, host)
        .into_iter()
        .find_map(service)
        .map(|service| (service, port))
}

/// A config source on the same stream. gRPC supports no other source, and no fetch timeout.
pub(super) fn same_stream() -> ConfigSource {
    ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..ConfigSource::default()
    }
}

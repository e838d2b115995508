//! Route configurations of gateways: joined from the bytes of their virtual hosts, as those of sidecars.

mod hosts;
mod sources;
mod virtual_host;

use bytes::Bytes;
use navarch_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

use super::domains::with_port;
use super::sidecar::assemble;
use super::virtual_host::as_field;
use crate::envoy::build::encode;
use crate::envoy::gateway::servers_of_routes;
use crate::push::view::View;
use hosts::HostsOfRoutes;
use virtual_host::HostBytes;

/// The route configuration of this name.
pub(super) fn configuration(view: &View<'_>, name: &str) -> Bytes {
    let servers = servers_of_routes(view, name);
    let Some(first) = servers.first() else {
        // A listener that drains still asks for the routes of a Gateway that is gone.
        return encode(&RouteConfiguration {
            name: name.to_owned(),
            validate_clusters: Some(false),
            ..RouteConfiguration::default()
        });
    };
    let hosts = view.get(&HostsOfRoutes { name: name.to_owned() });
    if hosts.is_empty() {
        return assemble(name, &[as_field(&black_hole(first.port))]);
    }
    let bytes: Vec<Bytes> = hosts.iter().map(|host| (*view.get(&HostBytes { host: host.clone() })).clone()).collect();
    assemble(name, &bytes)
}

/// Answers everything with "not found".
fn black_hole(port: u16) -> VirtualHost {
    VirtualHost { name: with_port("blackhole", port), domains: vec!["*".to_owned()], ..VirtualHost::default() }
}

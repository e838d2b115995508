//! Route configurations of gateways: concatenated from the bytes of their virtual hosts, as those
//! of sidecars.

mod hosts;
mod sources;
mod virtual_host;

use bytes::Bytes;
use navarch_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

use super::domains::with_port;
use super::sidecar::assemble;
use super::virtual_host::as_field;
use crate::build::encode;
use crate::gateway::servers_of_routes;
use hosts::{HostNamed, HostsOfRoutes};
use navarch_push::view::View;
use virtual_host::{ChunkBytes, HostBytes};

/// The route configuration of this name.
pub(super) fn configuration(view: &View<'_>, name: &str) -> Bytes {
    let servers = servers_of_routes(view, name);
    let Some(first) = servers.first() else {
        // A draining listener remains subscribed to the routes of a removed Gateway.
        return encode(&RouteConfiguration {
            name: name.to_owned(),
            validate_clusters: Some(false),
            ..RouteConfiguration::default()
        });
    };

    let hosts = view.get(&HostsOfRoutes {
        name: name.to_owned(),
    });
    if hosts.is_empty() {
        return assemble(name, &[as_field(&black_hole(first.port))], None);
    }

    let bytes: Vec<Bytes> = hosts
        .chunks
        .iter()
        .map(|chunk| {
            (*view.get(&ChunkBytes {
                chunk: chunk.clone(),
            }))
            .clone()
        })
        .collect();

    assemble(name, &bytes, None)
}

/// The virtual hosts that stay in a route configuration with VHDS, and whether there are others;
/// `None` if no Gateway has it.
pub(super) fn inline(view: &View<'_>, name: &str) -> Option<(Vec<Bytes>, bool)> {
    let servers = servers_of_routes(view, name);
    let first = servers.first()?;
    let hosts = view.get(&HostsOfRoutes {
        name: name.to_owned(),
    });
    if hosts.is_empty() {
        return Some((vec![as_field(&black_hole(first.port))], false));
    }

    let inline = hosts
        .iter()
        .filter(|host| host.matches_any_host())
        .map(|host| (*view.get(&HostBytes { host: host.clone() })).clone())
        .collect();
    Some((inline, hosts.iter().any(|host| !host.matches_any_host())))
}

/// The number of virtual hosts of a route configuration.
pub(super) fn count(view: &View<'_>, name: &str) -> usize {
    let hosts = view.get(&HostsOfRoutes {
        name: name.to_owned(),
    });
    hosts.len()
}

/// The names of the other virtual hosts.
pub(super) fn names(view: &View<'_>, name: &str) -> Vec<String> {
    let hosts = view.get(&HostsOfRoutes {
        name: name.to_owned(),
    });
    hosts
        .iter()
        .filter(|host| !host.matches_any_host())
        .map(|host| host.name.clone())
        .collect()
}

/// A virtual host of a route configuration, as an entry of its list.
pub(super) fn host(view: &View<'_>, routes: &str, name: &str) -> Option<Bytes> {
    let host = (*view.get(&HostNamed {
        routes: routes.to_owned(),
        name: name.to_owned(),
    }))
    .clone();
    host.filter(|host| !host.matches_any_host())
        .map(|host| (*view.get(&HostBytes { host })).clone())
}

/// Responds with 404 to all requests.
fn black_hole(port: u16) -> VirtualHost {
    VirtualHost {
        name: with_port("blackhole", port),
        domains: vec!["*".to_owned()],
        ..VirtualHost::default()
    }
}

//! Whether a proxy has a route configuration so large that its virtual hosts are better sent one by
//! one ([`vhds`](super::vhds)).
//!
//! It is asked once, when the first stream of an Envoy starts (`navarch_xds::route_form`), for the
//! proxy as a whole: all of its tables then have one form.

use std::collections::BTreeSet;

use super::context::RouteClient;
use super::gateway;
use super::port_services::{OutboundPort, ports_of_many};
use super::sidecar::{http_proxy_port, outbound_port};
use super::virtual_host_set::{HTTP_PORT, VirtualHostSet};
use crate::gateway::names_of_routes;
use crate::sidecar_scope::{self, EgressListener};
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;

/// Stands for the hosts of all ports, which the listener for applications that use a proxy has.
const ALL_PORTS: u16 = 0;

/// Whether a route configuration of the proxy has at least as many virtual hosts as the mesh's
/// settings say. Only tables that can be so large are computed.
pub(crate) fn are_large(view: &View<'_>) -> bool {
    let Some(min_hosts) = view.mesh().settings.fine_grained_routes_min_hosts else {
        return false;
    };
    let min_hosts = usize::try_from(min_hosts).unwrap_or(usize::MAX);

    match view.proxy().kind() {
        ProxyKind::Sidecar => large_candidates(view, min_hosts)
            .into_iter()
            .any(|at| view.get(&VirtualHostSet { at }).virtual_hosts.len() >= min_hosts),
        ProxyKind::Router => names_of_routes(view)
            .iter()
            .any(|name| gateway::count(view, name) >= min_hosts),
        ProxyKind::Waypoint | ProxyKind::Ztunnel | ProxyKind::AgentGateway => false,
    }
}

/// The ports of a sidecar whose tables can have so many virtual hosts.
fn large_candidates(view: &View<'_>, min_hosts: usize) -> BTreeSet<OutboundPort> {
    let listeners = sidecar_scope::egress_listeners(view);
    let listeners = listeners.iter().enumerate();
    listeners
        .flat_map(|(number, listener)| candidates_of(view, number, listener, min_hosts))
        .collect()
}

/// The ports of one egress listener whose tables can have so many virtual hosts. Hosts of
/// VirtualServices without a service have one on the port for HTTP alone.
fn candidates_of(
    view: &View<'_>,
    number: usize,
    listener: &EgressListener,
    min_hosts: usize,
) -> Vec<OutboundPort> {
    if let Some(declared) = &listener.port {
        let port = u16::try_from(declared.number).unwrap_or_default();
        let at = outbound_port(view, port, &listener.bind, RouteClient::Envoy);
        return at.into_iter().collect();
    }

    let mut ports = ports_of_many(view, min_hosts);
    ports.push(HTTP_PORT);
    if http_proxy_port(view).is_some() {
        ports.push(ALL_PORTS);
    }
    let at = |port| OutboundPort {
        listener: number,
        port,
        client: RouteClient::Envoy,
    };
    ports.into_iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use navarch_api::settings::Settings;
    use navarch_push::engine::ProxyId;
    use navarch_push::query::Query;

    use super::*;
    use crate::test_mesh::{TestMesh, networking, service};

    const LIMIT: usize = 20;

    /// [`are_large`], for an engine.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct AreLarge;

    impl Query for AreLarge {
        type Value = bool;

        fn compute(&self, view: &View<'_>) -> bool {
            are_large(view)
        }
    }

    fn mesh(yaml: &str) -> TestMesh {
        let settings = Settings {
            fine_grained_routes_min_hosts: u32::try_from(LIMIT).ok(),
            ..Settings::default()
        };
        TestMesh::with_settings(yaml, settings)
    }

    fn is_large(mesh: &TestMesh, proxy: ProxyId) -> bool {
        *mesh.query(proxy, &AreLarge)
    }

    fn services(count: usize, port: u16) -> String {
        let name = |number| format!("web-{number}");
        (0..count)
            .map(|number| service("shop", &name(number), port))
            .collect()
    }

    /// The virtual hosts of a proxy's table, without the one for unknown hosts.
    fn hosts_in(mesh: &mut TestMesh, proxy: ProxyId, name: &str) -> usize {
        mesh.routes(proxy, name).virtual_hosts.len() - 1
    }

    #[test]
    fn a_table_is_large_from_the_limit_on() {
        for (count, expected) in [(LIMIT - 1, false), (LIMIT, true)] {
            for port in [80, 9080] {
                let mut mesh = mesh(&services(count, port));
                let proxy = mesh.sidecar("shop", "a");
                assert_eq!(hosts_in(&mut mesh, proxy, &port.to_string()), count);
                assert_eq!(is_large(&mesh, proxy), expected, "{count} on {port}");
            }
        }
    }

    #[test]
    fn services_on_several_ports_are_no_large_table() {
        let half = LIMIT / 2 + 1;
        let mesh_of_two = services(half, 80) + &services(half, 9080).replace("web-", "api-");
        let mut mesh = mesh(&mesh_of_two);
        let proxy = mesh.sidecar("shop", "a");
        assert!(!is_large(&mesh, proxy));

        mesh.mesh_config("proxyHttpPort: 15002");
        assert_eq!(hosts_in(&mut mesh, proxy, "http_proxy"), 2 * half);
        assert!(is_large(&mesh, proxy), "its listener has the hosts of both");
    }

    #[test]
    fn hosts_of_virtual_services_count_and_what_a_sidecar_leaves_out_does_not() {
        let mut hosts = String::new();
        for number in 0..LIMIT {
            let _ = write!(hosts, "h{number}.example,");
        }
        let spec =
            format!("{{hosts: [{hosts}], http: [{{route: [{{destination: {{host: web-0}}}}]}}]}}");
        let mut mesh = mesh(
            &(services(1, 80)
                + &networking("VirtualService", "shop", "many", &spec)
                + &networking(
                    "Sidecar",
                    "small",
                    "default",
                    "{egress: [{hosts: [\"./*\"]}]}",
                )),
        );

        let all = mesh.sidecar("shop", "a");
        assert!(is_large(&mesh, all));
        let scoped = mesh.sidecar("small", "a");
        assert!(!is_large(&mesh, scoped));
    }

    #[test]
    fn a_gateway_counts_its_virtual_hosts() {
        let host = |number: usize| {
            let spec = format!(
                "{{hosts: [h{number}.example], gateways: [edge], http: [{{route: [{{destination: {{host: web-0}}}}]}}]}}"
            );
            networking("VirtualService", "shop", &format!("host-{number}"), &spec)
        };
        let gateway = "{selector: {app: gateway}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [\"*\"]}]}";

        for (count, expected) in [(LIMIT - 1, false), (LIMIT, true)] {
            let hosts: String = (0..count).map(host).collect();
            let yaml = services(1, 80) + &networking("Gateway", "shop", "edge", gateway) + &hosts;
            let settings = Settings {
                // Hosts with the same routes share a virtual host otherwise.
                route_collapse: false,
                fine_grained_routes_min_hosts: u32::try_from(LIMIT).ok(),
                ..Settings::default()
            };
            let mut mesh = TestMesh::with_settings(&yaml, settings);
            let proxy = mesh.gateway("shop");
            assert_eq!(is_large(&mesh, proxy), expected, "{count}");
        }
    }

    #[test]
    fn without_a_limit_nothing_is_large() {
        let settings = Settings {
            fine_grained_routes_min_hosts: None,
            ..Settings::default()
        };
        let mut mesh = TestMesh::with_settings(&services(LIMIT, 80), settings);
        let proxy = mesh.sidecar("shop", "a");
        assert!(!is_large(&mesh, proxy));
    }
}

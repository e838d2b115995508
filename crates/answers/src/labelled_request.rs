//! The requests that are walked to find the effect of a change on traffic: those for the affected
//! hosts.

mod gateway;
mod hosts;
mod waypoint;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use navarch_api::names::Hostname;
use navarch_proto::envoy::config::core::v3::{address, socket_address};
use navarch_proto::envoy::config::listener::v3::Listener;
use navarch_proto::envoy::config::route::v3::VirtualHost;
use navarch_push::context::PushContext;
use navarch_push::proxy::ProxyKind;
use navarch_push::resource::ResourceType;
use navarch_registry::model::{Service, ServicePort};
use navarch_walk::{Connection, Entry, HttpRequest, Resources, Tls};

use super::client::Client;
use super::difference::CollectionDiff;
use super::route_example::{Example, examples};
use super::wording::short;

/// Maximum number of hosts for one proxy.
pub(super) const MAX_HOSTS: usize = 32;
/// Maximum number of requests of one proxy.
const MAX_REQUESTS: usize = 64;

/// A request with its label.
#[derive(Clone, Debug)]
pub(super) struct LabelledRequest {
    /// Such as `GET reviews:9080/`.
    pub(super) label: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// The connection to walk.
    pub(super) connection: Connection,
    /// Whether the proxy's own workload is the client.
    pub(super) is_own: bool,
}

pub(super) struct ProxyInput<'a> {
    pub(super) client: &'a Client,
    /// Its changed resources by type.
    pub(super) steps: &'a BTreeMap<ResourceType, CollectionDiff>,
    /// Its resources before and after.
    pub(super) resources: [&'a Resources; 2],
    /// The snapshots before and after.
    pub(super) contexts: [&'a PushContext; 2],
}

impl ProxyInput<'_> {
    /// The requests to walk.
    pub(super) fn requests(&self) -> Vec<LabelledRequest> {
        let mut requests = match self.client.proxy.kind {
            ProxyKind::Router => [self.of_gateway(), self.of_streams()].concat(),
            ProxyKind::Sidecar => [self.of_arrivals(), self.of_sidecar()].concat(),
            ProxyKind::Waypoint => self.of_waypoint(),
            ProxyKind::Ztunnel | ProxyKind::AgentGateway => Vec::new(),
        };
        requests.truncate(MAX_REQUESTS);
        requests
    }

    /// A service by host, as a client in the proxy's namespace would resolve it.
    fn service(&self, host: &str) -> Option<&Service> {
        let host = Hostname::new(host);
        let own = &self.client.proxy.namespace;
        self.contexts.iter().rev().find_map(|context| {
            let namespaces = context.directory.namespaces_of_host.get(&host)?;
            let namespace = namespaces
                .iter()
                .find(|namespace| *namespace == own)
                .or(namespaces.first())?;
            let key = navarch_registry::model::ServiceKey {
                namespace: namespace.clone(),
                hostname: host.clone(),
            };

            context
                .directory
                .services
                .get(&key)?
                .first()
                .map(|service| &**service)
        })
    }

    /// Requests of the workload of a sidecar.
    fn of_sidecar(&self) -> Vec<LabelledRequest> {
        let mut requests = Vec::new();

        for (host, port) in self.touched_hosts().into_iter().take(MAX_HOSTS) {
            let service = self.service(&host);
            let declared = service.and_then(|service| service.port(port));
            let destination = SocketAddr::new(self.address(service), port);

            if declared.is_some_and(|declared| !declared.protocol.is_http_or_sniffed()) {
                requests.push(self.bytes(&host, declared, destination));
                continue;
            }

            let mut tried: BTreeSet<Example> = BTreeSet::from([Example::default()]);

            for resources in self.resources {
                tried.extend(
                    virtual_host(resources, &host, port)
                        .into_iter()
                        .flat_map(examples),
                );
            }

            requests.extend(tried.into_iter().map(|example| {
                let connection = Connection {
                    entry: Entry::Outbound,
                    destination,
                    source: None,
                    tls: None,
                    http: None,
                };
                self.request(&host, port, example, connection)
            }));
        }

        requests
    }

    /// A TCP connection.
    fn bytes(
        &self,
        host: &str,
        declared: Option<&ServicePort>,
        destination: SocketAddr,
    ) -> LabelledRequest {
        let is_tls = declared.is_some_and(|declared| declared.protocol.is_tls());
        let tls = is_tls.then(|| Tls {
            sni: host.to_owned(),
            alpn: Vec::new(),
        });
        let what = if is_tls { "TLS" } else { "TCP" };
        let label = format!(
            "{what} {}:{}",
            short(host, self.client.proxy.namespace.as_str()),
            destination.port()
        );

        let connection = Connection {
            entry: Entry::Outbound,
            destination,
            source: None,
            tls,
            http: None,
        };

        LabelledRequest {
            label,
            host: host.to_owned(),
            port: destination.port(),
            connection,
            is_own: true,
        }
    }

    /// A request over a connection.
    pub(super) fn request(
        &self,
        host: &str,
        port: u16,
        example: Example,
        connection: Connection,
    ) -> LabelledRequest {
        let Example {
            method,
            path,
            headers,
        } = example;
        let shown: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        let shown = if shown.is_empty() {
            String::new()
        } else {
            format!(" with {}", shown.join(", "))
        };

        let scheme = if connection.tls.is_some() {
            "https "
        } else {
            ""
        };

        let name = short(host, self.client.proxy.namespace.as_str());
        let label = format!("{method} {scheme}{name}:{port}{path}{shown}");
        let http = HttpRequest {
            method,
            host: format!("{host}:{port}"),
            path,
            headers,
            claims: None,
        };

        let connection = Connection {
            http: Some(http),
            ..connection
        };
        LabelledRequest {
            label,
            host: host.to_owned(),
            port,
            connection,
            is_own: true,
        }
    }

    fn address(&self, service: Option<&Service>) -> IpAddr {
        // A documentation address (RFC 5737), which only wildcard listeners accept.
        let nobody = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
        let Some(service) = service else {
            return nobody;
        };

        let own = service
            .default_address
            .parse::<IpAddr>()
            .ok()
            .filter(|ip| !ip.is_unspecified());

        let endpoints = || {
            let known = self
                .contexts
                .iter()
                .rev()
                .find_map(|context| context.directory.endpoints.get(&service.key));
            known?
                .endpoints
                .iter()
                .find_map(|endpoint| endpoint.addresses.first()?.parse().ok())
        };

        let headless = || {
            if service.is_headless() {
                endpoints()
            } else {
                None
            }
        };

        own.or(service.auto_ipv4)
            .or_else(headless)
            .unwrap_or(nobody)
    }
}

/// The port that a listener is bound to.
pub(super) fn port_of(listener: &Listener) -> Option<u16> {
    let address::Address::SocketAddress(socket) = listener.address.as_ref()?.address.as_ref()?
    else {
        return None;
    };
    match socket.port_specifier.as_ref()? {
        socket_address::PortSpecifier::PortValue(port) => u16::try_from(*port).ok(),
        socket_address::PortSpecifier::NamedPort(_) => None,
    }
}

/// The virtual host of a host for sidecars.
fn virtual_host<'a>(resources: &'a Resources, host: &str, port: u16) -> Option<&'a VirtualHost> {
    let names = [port.to_string(), format!("{host}:{port}")];
    names
        .iter()
        .find_map(|name| resources.routes.get(name)?.with_domain(host))
}

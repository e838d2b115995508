//! The requests that are walked to find the effect of a change on traffic: those for the affected
//! hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use navarch_api::names::Hostname;
use navarch_proto::envoy::config::core::v3::{address, socket_address};
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
use navarch_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use navarch_push::context::PushContext;
use navarch_push::proxy::ProxyKind;
use navarch_push::resource::ResourceType;
use navarch_registry::model::{Service, ServicePort};
use navarch_walk::{Connection, Entry, HttpRequest, Resources, Tls};
use prost::Message;

use super::client::Client;
use super::difference::{CollectionDiff, Pair, distinct};
use super::ingress::is_tls;
use super::plan::workload_of;
use super::received::{chains, manager_of, routes_of};
use super::route_example::{Example, examples};
use super::words::{service_of, short};

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
        let mut questions = match self.client.proxy.kind {
            ProxyKind::Router => [self.of_gateway(), self.of_streams()].concat(),
            ProxyKind::Sidecar => [self.of_arrivals(), self.of_sidecar()].concat(),
            ProxyKind::Waypoint => self.of_waypoint(),
            ProxyKind::Ztunnel | ProxyKind::AgentGateway => Vec::new(),
        };
        questions.truncate(MAX_REQUESTS);
        questions
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
        let mut questions = Vec::new();

        for (host, port) in self.touched_hosts().into_iter().take(MAX_HOSTS) {
            let service = self.service(&host);
            let declared = service.and_then(|service| service.port(port));
            let destination = SocketAddr::new(self.address(service), port);

            if declared.is_some_and(|declared| !declared.protocol.is_http_or_sniffed()) {
                questions.push(self.bytes(&host, declared, destination));
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

            questions.extend(tried.into_iter().map(|example| {
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

        questions
    }

    /// Requests at a waypoint for its services.
    fn of_waypoint(&self) -> Vec<LabelledRequest> {
        let mut questions = Vec::new();

        for (host, port) in self.served_hosts().into_iter().take(MAX_HOSTS) {
            let service = self.service(&host);
            let declared = service.and_then(|service| service.port(port));
            let destination = SocketAddr::new(self.address(service), port);
            let at = |question: LabelledRequest| LabelledRequest {
                label: format!(
                    "{} at waypoint {}",
                    question.label,
                    workload_name(self.client, self.contexts)
                ),
                connection: Connection {
                    entry: Entry::Tunnel,
                    ..question.connection
                },
                is_own: false,
                ..question
            };

            if declared.is_some_and(|declared| !declared.protocol.is_http_or_sniffed()) {
                questions.push(at(self.bytes(&host, declared, destination)));
                continue;
            }

            let mut tried: BTreeSet<Example> = BTreeSet::from([Example::default()]);

            for resources in self.resources {
                let routes =
                    served_chains(resources).filter(|(served, _)| *served == (host.as_str(), port));
                let routes = routes.filter_map(|(_, chain)| inline_routes(&manager_of(chain)?));
                tried.extend(
                    routes
                        .flat_map(|routes| routes.virtual_hosts)
                        .flat_map(|host| examples(&host).collect::<Vec<_>>()),
                );
            }

            questions.extend(tried.into_iter().map(|example| {
                let connection = Connection {
                    entry: Entry::Tunnel,
                    destination,
                    source: None,
                    tls: None,
                    http: None,
                };
                at(self.request(&host, port, example, connection))
            }));
        }

        questions
    }

    /// Affected hosts and ports behind a waypoint.
    fn served_hosts(&self) -> BTreeSet<(String, u16)> {
        let mut hosts = BTreeSet::new();

        for kind in [ResourceType::Cluster, ResourceType::Endpoint] {
            let names = self
                .steps
                .get(&kind)
                .into_iter()
                .flat_map(|step| step.resources.keys());
            let served = names.filter_map(|name| service_of(name.as_str()));
            hosts.extend(served.map(|(port, _, host)| (host.to_owned(), port)));
        }

        if self.steps.contains_key(&ResourceType::Listener) {
            // One listener has the chains of all services: only those that differ are affected.
            let [before, after] = self
                .resources
                .map(|resources| served_chains(resources).collect::<BTreeMap<_, _>>());
            let all: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
            let differing = all
                .into_iter()
                .filter(|served| before.get(served) != after.get(served));
            hosts.extend(differing.map(|(host, port)| (host.to_owned(), port)));
        }

        hosts
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

    /// Affected hosts and ports.
    fn touched_hosts(&self) -> BTreeSet<(String, u16)> {
        let mut hosts = BTreeSet::new();

        for (kind, step) in self.steps {
            for (name, pair) in &step.resources {
                match kind {
                    ResourceType::Cluster | ResourceType::Endpoint => {
                        let service = service_of(name.as_str());
                        hosts.extend(service.map(|(port, _, host)| (host.to_owned(), port)));
                    }
                    ResourceType::Route => {
                        for host in differing_hosts(pair) {
                            let port = name
                                .as_str()
                                .rsplit(':')
                                .next()
                                .and_then(|port| port.parse().ok());
                            hosts.extend(host_and_port(&host, port));
                        }
                    }
                    ResourceType::VirtualHost => {
                        let (routes, host) = name.as_str().split_once('/').unwrap_or_default();
                        let port = routes.rsplit(':').next().and_then(|port| port.parse().ok());
                        let host = VirtualHost {
                            name: host.to_owned(),
                            ..VirtualHost::default()
                        };
                        hosts.extend(host_and_port(&host, port));
                    }
                    ResourceType::Listener => hosts.extend(self.service_at(name.as_str())),
                    ResourceType::Secret
                    | ResourceType::ExtensionConfig
                    | ResourceType::NameTable
                    | ResourceType::ProxyConfig
                    | ResourceType::ObjectStatus
                    | ResourceType::Address
                    | ResourceType::Workload
                    | ResourceType::Authorization
                    | ResourceType::Object(_) => {}
                }
            }
        }

        hosts
    }

    /// The service whose address and port are the name of a listener.
    fn service_at(&self, listener: &str) -> Option<(String, u16)> {
        let (address, port) = listener.rsplit_once('_')?;
        let ip: IpAddr = address
            .parse()
            .ok()
            .filter(|ip: &IpAddr| !ip.is_unspecified())?;
        let text = ip.to_string();
        let services = self
            .contexts
            .iter()
            .flat_map(|context| context.directory.services.values());
        let mut services = services.flat_map(|all| all.iter());
        let found = services.find(|service| *service.default_address == *text)?;
        Some((found.key.hostname.to_string(), port.parse().ok()?))
    }

    fn of_gateway(&self) -> Vec<LabelledRequest> {
        let mut questions = Vec::new();
        let mut hosts: BTreeSet<(String, String)> = BTreeSet::new();

        for (kind, step) in self.steps {
            for (name, pair) in &step.resources {
                if *kind == ResourceType::Route {
                    let domains = differing_hosts(pair)
                        .into_iter()
                        .flat_map(|host| host.domains);
                    hosts.extend(domains.map(|domain| (name.to_string(), domain)));
                } else if *kind == ResourceType::VirtualHost
                    && let Some((routes, host)) = name.as_str().split_once('/')
                {
                    let domain = host.rsplit_once(':').map_or(host, |(domain, _)| domain);
                    hosts.insert((routes.to_owned(), domain.to_owned()));
                }
            }
        }

        let has_clusters = [ResourceType::Cluster, ResourceType::Endpoint]
            .iter()
            .any(|kind| self.steps.contains_key(kind));

        for resources in self.resources {
            for (listener, chain) in resources
                .listeners
                .iter()
                .flat_map(|one| chains(one).map(move |chain| (one, chain)))
            {
                let Some(port) = port_of(listener) else {
                    continue;
                };
                let Some(manager) = manager_of(chain) else {
                    continue;
                };
                let Some(routes) = routes_of(&manager) else {
                    continue;
                };
                let of_routes: Vec<String> = hosts
                    .iter()
                    .filter(|(of, _)| of == routes)
                    .map(|(_, domain)| domain.clone())
                    .collect();
                // If only clusters or policies change, every host of the gateway may be affected.
                let listeners = self.steps.get(&ResourceType::Listener);
                let is_touched = listeners.is_some_and(|step| {
                    step.resources
                        .keys()
                        .any(|name| name.as_str() == listener.name)
                });
                let all = || {
                    let hosts = resources
                        .routes
                        .get(routes)
                        .into_iter()
                        .flat_map(|routes| routes.domains());
                    hosts
                        .filter_map(|domains| domains.first().cloned())
                        .collect()
                };
                let domains = if of_routes.is_empty() && (has_clusters || is_touched) {
                    all()
                } else {
                    of_routes
                };
                for domain in domains.iter().take(MAX_HOSTS) {
                    questions.extend(self.at_gateway(chain, routes, domain, port));
                }
            }
        }

        let mut seen = BTreeSet::new();
        questions.retain(|question| seen.insert(question.label.clone()));
        questions
    }

    fn at_gateway(
        &self,
        chain: &FilterChain,
        routes: &str,
        domain: &str,
        port: u16,
    ) -> Vec<LabelledRequest> {
        let domain = domain.rsplit_once(':').map_or(domain, |(domain, _)| domain);
        let host = domain.replacen('*', if domain == "*" { "any.example" } else { "any" }, 1);
        let alpn = || vec!["h2".to_owned(), "http/1.1".to_owned()];
        let tls = is_tls(chain).then(|| Tls {
            sni: host.clone(),
            alpn: alpn(),
        });
        let ip = self
            .client
            .proxy
            .ips
            .first()
            .copied()
            .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));

        let mut tried: BTreeSet<Example> = BTreeSet::from([Example::default()]);

        for resources in self.resources {
            let found = resources
                .routes
                .get(routes)
                .and_then(|routes| routes.with_domain(domain));
            tried.extend(found.into_iter().flat_map(examples));
        }

        let ask = |example| {
            let destination = SocketAddr::new(ip, port);
            let connection = Connection {
                entry: Entry::Direct,
                destination,
                source: None,
                tls: tls.clone(),
                http: None,
            };
            self.request(&host, port, example, connection)
        };

        tried.into_iter().map(ask).collect()
    }
}

/// The chains of a waypoint for services, by host and port.
fn served_chains(resources: &Resources) -> impl Iterator<Item = ((&str, u16), &FilterChain)> {
    let chains = resources
        .listeners
        .iter()
        .flat_map(|listener| chains(listener));
    chains.filter_map(|chain| {
        let (port, _, host) = service_of(&chain.name)?;
        Some(((host, port), chain))
    })
}

/// The routes that are part of a connection manager.
fn inline_routes(manager: &HttpConnectionManager) -> Option<RouteConfiguration> {
    match &manager.route_specifier {
        Some(RouteSpecifier::RouteConfig(routes)) => Some(routes.clone()),
        Some(RouteSpecifier::Rds(_) | RouteSpecifier::ScopedRoutes(_)) | None => None,
    }
}

/// The name of a proxy's workload.
fn workload_name(client: &Client, contexts: [&PushContext; 2]) -> String {
    let workload = workload_of(client, contexts[1]);
    workload.rsplit('/').next().unwrap_or_default().to_owned()
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

/// The virtual hosts that differ between two route configurations.
fn differing_hosts(pair: &Pair) -> Vec<VirtualHost> {
    let bodies = distinct(ResourceType::Route, pair);
    let [before, after] = bodies.map(|body| {
        RouteConfiguration::decode(body)
            .unwrap_or_default()
            .virtual_hosts
    });
    let by_name: BTreeMap<String, VirtualHost> = before
        .into_iter()
        .map(|host| (host.name.clone(), host))
        .collect();
    let mut gone = by_name.clone();
    let mut differing = Vec::new();

    for host in after {
        gone.remove(&host.name);
        if by_name.get(&host.name) != Some(&host) {
            differing.push(host);
        }
    }

    differing.extend(gone.into_values());
    differing
}

/// Host and port from the name of a sidecar's virtual host, such as
/// `reviews.shop.svc.cluster.local:9080`.
fn host_and_port(host: &VirtualHost, port: Option<u16>) -> Option<(String, u16)> {
    let (name, own) = match host.name.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().ok()),
        None => (host.name.as_str(), None),
    };
    let port = own.or(port)?;
    // `allow_any` and `block_all` are for unknown hosts.
    (name.contains('.') && !name.contains('*')).then(|| (name.to_owned(), port))
}

/// The virtual host of a host for sidecars.
fn virtual_host<'a>(resources: &'a Resources, host: &str, port: u16) -> Option<&'a VirtualHost> {
    let names = [port.to_string(), format!("{host}:{port}")];
    names
        .iter()
        .find_map(|name| resources.routes.get(name)?.with_domain(host))
}

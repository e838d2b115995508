//! Requests from outside of the mesh at a gateway: at the port of a Gateway's server, for one of
//! its hosts.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use navarch_api::hostname::is_subset_of;
use navarch_api::names::Namespace;
use navarch_proto::envoy::config::core::v3::transport_socket::ConfigType;
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;
use navarch_push::context::PushContext;
use navarch_push::proxy::Proxy;
use navarch_registry::model::ServiceTarget;
use navarch_walk::policy::Peer;
use navarch_walk::{Connection, Entry, HttpRequest, Outcome, Tls, Walk};
use prost::Message;

use super::evaluation::{Evaluation, Visit, evaluate, forwarded_request};
use super::inbound::{offers_http, trace_endpoints};
use super::labelled_request::port_of;
use super::received::{Walkable, chains};
use super::why::WhyNot;
use super::why_not::{
    Others, ProxySnapshot, Request, TracedRequest, identity, outbound_reason, own_response,
};
use super::wording::{Authority, forwarding};

/// The label of objects that were created for a Gateway of the Gateway API.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
/// The ports of http:// and https:// URLs without one.
const DEFAULT_PORTS: [u16; 2] = [80, 443];
/// Maximum number of ports to try if the request names none.
const MAX_ENTRY_PORTS: usize = 16;
/// Maximum number of hosts or ports in a message.
const MAX_NAMES: usize = 8;

/// A port by which requests enter a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GatewayEntryPort {
    /// The port that the client connects to.
    port: u16,
    listens: u16,
    /// The Service that maps the one to the other, if any.
    service: Option<String>,
}

/// The hosts of a server of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServerHosts {
    /// The Gateway and the name of its server.
    gateway: String,
    hosts: Vec<String>,
}

/// A request at a gateway.
struct RequestAtGateway<'a> {
    context: &'a PushContext,
    gateway: &'a ProxySnapshot,
    request: &'a Request,
    entry_port: &'a GatewayEntryPort,
    connection: Connection,
    walk: Walk,
}

/// Follows a request that enters at a gateway.
pub(super) fn trace_ingress(
    context: &PushContext,
    gateway: &ProxySnapshot,
    request: &Request,
    others: Others<'_>,
) -> WhyNot {
    let mut walkable = others.walkable(&gateway.had);
    let entry_ports = entry_ports(context, &gateway.proxy, &walkable.resources().listeners);
    let wanted: Vec<&GatewayEntryPort> = match request.port {
        Some(port) => entry_ports
            .iter()
            .filter(|entry_port| entry_port.port == port)
            .collect(),
        None => entry_ports.iter().take(MAX_ENTRY_PORTS).collect(),
    };

    let mut answer = WhyNot::default();
    let Request {
        method, host, path, ..
    } = request;
    let name = &gateway.proxy.name;
    let Some((entry_port, connection, walk)) =
        found(&mut walkable, &gateway.proxy, &wanted, request)
    else {
        let port = request.port.unwrap_or(DEFAULT_PORTS[0]);
        answer.request = format!("{method} {host}:{port}{path} at gateway {name}");
        answer.reason = Some(format!("{name} has no listener for port {port}"));
        answer.advice = Some(listening(&entry_ports));
        return answer;
    };

    answer.request = format!(
        "{method} {host}:{}{path} at gateway {name}",
        entry_port.port
    );
    add_port_step(&mut answer, entry_port, &connection, &walk);
    let claims = claims(context, &gateway.proxy, entry_port);
    let claiming: Vec<&ServerHosts> = claims
        .iter()
        .filter(|claim| {
            claim
                .hosts
                .iter()
                .any(|claimed| is_subset_of(host, claimed))
        })
        .collect();

    for claim in claiming.iter().take(MAX_NAMES) {
        answer
            .steps
            .push(format!("{} has a host that matches {host}", claim.gateway));
    }

    let judgement = walkable.resources().chain(&connection).map(|chain| {
        let visit = Visit {
            peer: peer_at(chain, &mut answer),
            source: None,
            remote: None,
            destination: connection.destination,
            http: connection.http.as_ref(),
        };
        evaluate(name, chain, &visit, &mut answer)
    });

    if judgement == Some(Evaluation::Denied) {
        return answer;
    }

    let entry = RequestAtGateway {
        context,
        gateway,
        request,
        entry_port,
        connection,
        walk,
    };

    if entry.trace_route(&mut answer, &claims, claiming.first().copied()) {
        entry.trace_behind(&mut answer, judgement, others);
    }

    answer
}

/// The port and walk of a request: of several ports, the first one that routes the host.
fn found<'a>(
    walkable: &mut Walkable<'_>,
    proxy: &Proxy,
    entry_ports: &[&'a GatewayEntryPort],
    request: &Request,
) -> Option<(&'a GatewayEntryPort, Connection, Walk)> {
    let mut found: Option<(&GatewayEntryPort, Connection, Walk)> = None;
    for entry_port in entry_ports {
        let Some(connection) = connection(walkable, proxy, entry_port, request) else {
            continue;
        };
        let walk = walkable.walk(&connection);
        let is_routed = !matches!(walk.outcome, Outcome::Closed(_) | Outcome::NotFound);
        if is_routed {
            return Some((entry_port, connection, walk));
        }
        found.get_or_insert((entry_port, connection, walk));
    }
    found
}

impl RequestAtGateway<'_> {
    /// Adds the route of the request at the gateway. Returns false if there is none, with the
    /// reason in `answer`.
    fn trace_route(
        &self,
        answer: &mut WhyNot,
        claims: &[ServerHosts],
        claiming: Option<&ServerHosts>,
    ) -> bool {
        let walk = &self.walk;
        let host = &self.request.host;
        let port = self.entry_port.port;
        if let Some(route) = walk.route.as_ref().filter(|route| !route.is_empty()) {
            answer.steps.push(format!("route {route:?} matches"));
        }

        answer.steps.push(forwarding(
            walk,
            Authority { host, port },
            self.gateway.proxy.namespace.as_str(),
        ));
        let Some((reason, advice)) = outbound_reason(walk, self.context) else {
            return true;
        };

        let is_unclaimed =
            claiming.is_none() && matches!(walk.outcome, Outcome::Closed(_) | Outcome::NotFound);
        answer.reason = Some(reason);
        answer.response = own_response(walk);
        answer.advice = match claiming {
            _ if is_unclaimed => {
                let hosts = claims
                    .iter()
                    .flat_map(|claim| &claim.hosts)
                    .map(String::as_str)
                    .take(MAX_NAMES);
                let hosts = hosts.collect::<Vec<_>>().join(", ");
                let hosts = if hosts.is_empty() { "nothing" } else { &hosts };
                Some(format!(
                    "no server of its Gateways has a host that matches {host} at port {port}; hosts of its servers: {hosts}"
                ))
            }
            Some(claim) if walk.outcome == Outcome::NotFound => Some(format!(
                "no VirtualService or route that is bound to {} matches this host and path",
                claim.gateway
            )),
            Some(_) | None => advice,
        };

        false
    }

    /// Follows the request to the proxies behind the gateway.
    fn trace_behind(self, answer: &mut WhyNot, judgement: Option<Evaluation>, others: Others<'_>) {
        let Self {
            context,
            gateway,
            request,
            entry_port,
            connection,
            walk,
        } = self;

        let http = connection.http.as_ref().map(|request| match judgement {
            Some(judgement) => forwarded_request(request, judgement),
            None => request.clone(),
        });
        let connection = Connection { http, ..connection };
        let identity = identity(&gateway.proxy, context);
        let walkable = others.walkable(&gateway.had);
        let traced = TracedRequest {
            context,
            others,
            connection: &connection,
            called: Authority {
                host: &request.host,
                port: entry_port.port,
            },
            identity: &identity,
            source: gateway.proxy.ips.first().copied(),
            remote: None,
            offers_http: offers_http(walkable.resources(), &connection),
            to_all: request.to_all,
            may_use_waypoint: true,
            judged_by_ztunnel: &Cell::new(0),
        };

        trace_endpoints(answer, &walk, &traced);
    }
}

/// The ports of a gateway: those of its services, then its own; the default ones first.
fn entry_ports(
    context: &PushContext,
    proxy: &Proxy,
    listeners: &[Arc<Listener>],
) -> Vec<GatewayEntryPort> {
    let own: Vec<u16> = listeners
        .iter()
        .filter_map(|listener| port_of(listener))
        .collect();
    let mut entry_ports: BTreeMap<u16, GatewayEntryPort> = BTreeMap::new();
    for target in targets(context, proxy)
        .iter()
        .filter(|target| own.contains(&target.target_port))
    {
        let service = Some(target.service.origin.to_string());
        let entry_port = GatewayEntryPort {
            port: target.port.port,
            listens: target.target_port,
            service,
        };
        entry_ports.entry(entry_port.port).or_insert(entry_port);
    }

    let led: Vec<u16> = entry_ports
        .values()
        .map(|entry_port| entry_port.listens)
        .collect();
    for port in own.into_iter().filter(|port| !led.contains(port)) {
        entry_ports.entry(port).or_insert(GatewayEntryPort {
            port,
            listens: port,
            service: None,
        });
    }

    let mut entry_ports: Vec<GatewayEntryPort> = entry_ports.into_values().collect();
    entry_ports.sort_by_key(|entry_port| {
        DEFAULT_PORTS
            .iter()
            .position(|port| *port == entry_port.port)
            .unwrap_or(DEFAULT_PORTS.len())
    });

    entry_ports
}

/// The targets of a proxy's workload by Kubernetes Services.
pub(super) fn targets(context: &PushContext, proxy: &Proxy) -> Vec<ServiceTarget> {
    let pod = proxy.workload_name();
    let remotes = context.directory.remotes.values().map(|remote| &**remote);
    let found = std::iter::once(&context.directory)
        .chain(remotes)
        .find_map(|directory| {
            let of_pod = directory
                .pod_targets
                .get(&pod)
                .map(|targets| targets.to_vec());
            of_pod.filter(|targets| !targets.is_empty()).or_else(|| {
                let at = directory.targets.get(proxy.ips.first()?)?;
                let targets: Vec<ServiceTarget> = at
                    .entries
                    .iter()
                    .flat_map(|entry| entry.targets.clone())
                    .collect();
                (!targets.is_empty()).then_some(targets)
            })
        });

    found.unwrap_or_default()
}

/// A connection to a port of the gateway, over TLS if the listener expects that.
fn connection(
    walkable: &Walkable<'_>,
    proxy: &Proxy,
    entry_port: &GatewayEntryPort,
    request: &Request,
) -> Option<Connection> {
    let destination = SocketAddr::new(*proxy.ips.first()?, entry_port.listens);
    let bare = Connection {
        entry: Entry::Direct,
        destination,
        source: None,
        tls: None,
        http: None,
    };

    let listener = walkable.resources().listener(&bare)?;
    let Request {
        method,
        host,
        path,
        headers,
        claims,
        ..
    } = request.clone();

    let tls = chains(listener).any(is_tls).then(|| Tls {
        sni: host.clone(),
        alpn: vec!["h2".to_owned(), "http/1.1".to_owned()],
    });
    let host = if DEFAULT_PORTS.contains(&entry_port.port) {
        host
    } else {
        format!("{host}:{}", entry_port.port)
    };

    let http = HttpRequest {
        method,
        host,
        path,
        headers,
        claims,
    };

    Some(Connection {
        tls,
        http: Some(http),
        ..bare
    })
}

/// Whether a chain is for TLS, terminated or passed through.
pub(super) fn is_tls(chain: &FilterChain) -> bool {
    let is_named = chain
        .filter_chain_match
        .as_ref()
        .is_some_and(|wanted| !wanted.server_names.is_empty());
    is_named || chain.transport_socket.is_some()
}

/// Whether a chain requires a client certificate.
pub(super) fn requires_certificate(chain: &FilterChain) -> bool {
    let config = chain
        .transport_socket
        .as_ref()
        .and_then(|socket| socket.config_type.as_ref());
    let context = match config {
        Some(ConfigType::TypedConfig(config)) => {
            DownstreamTlsContext::decode(config.value.as_slice()).ok()
        }
        None => None,
    };
    context.is_some_and(|context| context.require_client_certificate.unwrap_or_default())
}

/// The client's identity, given the TLS of a chain.
fn peer_at(chain: &FilterChain, answer: &mut WhyNot) -> Peer<'static> {
    if requires_certificate(chain) {
        answer.unknown.push(
            "whether the client has a certificate that the gateway accepts, which requires one"
                .to_owned(),
        );
        return Peer::Somebody;
    }
    Peer::Nobody
}

fn add_port_step(
    answer: &mut WhyNot,
    entry_port: &GatewayEntryPort,
    connection: &Connection,
    walk: &Walk,
) {
    if let Some(service) = entry_port
        .service
        .as_ref()
        .filter(|_| entry_port.port != entry_port.listens)
    {
        answer.steps.push(format!(
            "{service} maps port {} to port {} of the gateway",
            entry_port.port, entry_port.listens
        ));
    }

    let over = match &connection.tls {
        Some(tls) => format!(" over TLS for {}", tls.sni),
        None => String::new(),
    };
    answer.steps.push(match walk.listener.as_str() {
        "" => format!(
            "no listener matches the connection at port {}",
            entry_port.listens
        ),
        listener => format!("listener {listener:?} accepts the connection{over}"),
    });
}

/// The ports as text.
fn listening(entry_ports: &[GatewayEntryPort]) -> String {
    let ports: Vec<String> = entry_ports
        .iter()
        .take(MAX_NAMES)
        .map(|entry_port| entry_port.port.to_string())
        .collect();
    match ports.as_slice() {
        [] => {
            "it has no listeners: no Gateway selects it, or its ports conflict with those of other Gateways".to_owned()
        }
        ports => format!("its ports are {}", ports.join(", ")),
    }
}

fn claims(context: &PushContext, proxy: &Proxy, entry_port: &GatewayEntryPort) -> Vec<ServerHosts> {
    let is_requested =
        |port: u32| port == u32::from(entry_port.port) || port == u32::from(entry_port.listens);
    let of_namespace = |namespace: &Namespace| {
        !context.mesh.settings.scope_gateway_to_namespace || *namespace == proxy.namespace
    };
    let mut claims = Vec::new();

    for gateway in context
        .objects
        .gateways
        .iter()
        .filter(|gateway| of_namespace(&gateway.meta.key.namespace))
    {
        let mut selector = gateway.spec.selector.iter();
        if !selector.all(|(key, value)| {
            proxy
                .labels
                .get(key.as_str())
                .is_some_and(|own| **own == **value)
        }) {
            continue;
        }

        for server in &gateway.spec.servers {
            if server
                .port
                .as_ref()
                .is_some_and(|port| is_requested(port.number))
            {
                let hosts = server.hosts.iter().map(|host| {
                    host.rsplit_once('/')
                        .map_or(host.as_str(), |(_, host)| host)
                });
                let hosts = hosts.map(str::to_owned).collect();
                claims.push(ServerHosts {
                    gateway: format!("Gateway {}", gateway.meta.key),
                    hosts,
                });
            }
        }
    }

    let name = proxy.labels.get(GATEWAY_NAME);
    let of_api = context
        .objects
        .kubernetes_gateways
        .iter()
        .filter(|gateway| {
            name.is_some_and(|name| *gateway.meta.key.name == **name)
                && gateway.meta.key.namespace == proxy.namespace
        });

    for gateway in of_api {
        for listener in gateway
            .spec
            .listeners
            .iter()
            .filter(|one| u32::try_from(one.port).is_ok_and(is_requested))
        {
            let hosts = vec![listener.hostname.clone().unwrap_or_else(|| "*".to_owned())];
            claims.push(ServerHosts {
                gateway: format!("listener {} of Gateway {}", listener.name, gateway.meta.key),
                hosts,
            });
        }
    }

    claims
}

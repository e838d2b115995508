//! Requests that come to a gateway from outside of the mesh: at the port of a Gateway's server, for a host that it claims.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use navarch_api::hostname::is_subset_of;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_proto::envoy::config::core::v3::transport_socket::ConfigType;
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;
use navarch_push::context::PushContext;
use navarch_push::proxy::Proxy;
use navarch_registry::model::ServiceTarget;
use navarch_walk::policy::Peer;
use navarch_walk::{Connection, Entry as WayIn, HttpRequest, Outcome, Tls, Walk};
use prost::Message;

use super::arrival::follow;
use super::had::{ReadResources, Walkable, chains};
use super::judgement::{Judgement, Visit, goes_on, judge};
use super::question::port_of;
use super::why::WhyNot;
use super::why_not::{Asked, Others, Place, Request, identity, outbound_reason};
use super::words::outcome;

/// The label of what was made for a Gateway of the Gateway API.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
/// The ports that clients ask at who name none.
const USUAL: [u16; 2] = [80, 443];
/// How many ports are tried where none is said.
const DOORS: usize = 16;
/// How many hosts or ports are named.
const NAMED: usize = 8;

/// Where a request comes in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Door {
    /// The port that the client asks at.
    port: u16,
    /// The port that the gateway listens on.
    listens: u16,
    /// The service that leads from the one to the other, if one does.
    service: Option<String>,
}

/// A Gateway's server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    /// The Gateway and the name of its server.
    gateway: String,
    hosts: Vec<String>,
}

/// A request at a gateway.
struct Entry<'a> {
    context: &'a PushContext,
    gateway: &'a Place,
    request: &'a Request,
    door: &'a Door,
    connection: Connection,
    walk: Walk,
}

/// Follows a request that enters at a gateway.
pub(super) fn enter(context: &PushContext, gateway: &Place, request: &Request, others: Others<'_>) -> WhyNot {
    let mut walkable = Walkable::read(&gateway.had, &mut ReadResources::default());
    let doors = doors(context, &gateway.proxy, &walkable.resources().listeners);
    let wanted: Vec<&Door> = match request.port {
        Some(port) => doors.iter().filter(|door| door.port == port).collect(),
        None => doors.iter().take(DOORS).collect(),
    };
    let mut answer = WhyNot::default();
    let Request { method, host, path, .. } = request;
    let name = &gateway.proxy.name;
    let Some((door, connection, walk)) = found(&mut walkable, &gateway.proxy, &wanted, request) else {
        let port = request.port.unwrap_or(USUAL[0]);
        answer.request = format!("{method} {host}:{port}{path} at gateway {name}");
        answer.reason = Some(format!("{name} listens for nothing at port {port}"));
        answer.advice = Some(listening(&doors));
        return answer;
    };
    answer.request = format!("{method} {host}:{}{path} at gateway {name}", door.port);
    tell_door(&mut answer, door, &connection, &walk);
    let claims = claims(context, &gateway.proxy, door);
    let claiming: Vec<&Claim> =
        claims.iter().filter(|claim| claim.hosts.iter().any(|claimed| is_subset_of(host, claimed))).collect();
    for claim in claiming.iter().take(NAMED) {
        answer.steps.push(format!("{} claims {host}", claim.gateway));
    }
    let judgement = walkable.resources().chain(&connection).map(|chain| {
        let visit = Visit {
            peer: peer_at(chain, &mut answer),
            source: None,
            remote: None,
            destination: connection.destination,
            http: connection.http.as_ref(),
        };
        judge(name, chain, &visit, &mut answer)
    });
    if judgement == Some(Judgement::Refused) {
        return answer;
    }
    let entry = Entry { context, gateway, request, door, connection, walk };
    if entry.leads_on(&mut answer, &claims, claiming.first().copied()) {
        entry.follow(&mut answer, judgement, others);
    }
    answer
}

/// Where a request comes in, and how it goes on: of several ports the first at which the host is led somewhere.
fn found<'a>(
    walkable: &mut Walkable<'_>,
    proxy: &Proxy,
    doors: &[&'a Door],
    request: &Request,
) -> Option<(&'a Door, Connection, Walk)> {
    let mut found: Option<(&Door, Connection, Walk)> = None;
    for door in doors {
        let Some(connection) = connection(walkable, proxy, door, request) else { continue };
        let walk = walkable.walk(&connection);
        let is_led = !matches!(walk.outcome, Outcome::Closed(_) | Outcome::NotFound);
        if is_led {
            return Some((door, connection, walk));
        }
        found.get_or_insert((door, connection, walk));
    }
    found
}

impl Entry<'_> {
    /// Tells where the gateway leads the request. False where that is nowhere, for a reason that the answer then has.
    fn leads_on(&self, answer: &mut WhyNot, claims: &[Claim], claiming: Option<&Claim>) -> bool {
        let (walk, host, port) = (&self.walk, &self.request.host, self.door.port);
        if let Some(route) = walk.route.as_ref().filter(|route| !route.is_empty()) {
            answer.steps.push(format!("route {route:?} takes the request"));
        }
        let end = outcome(walk, (host, port), self.gateway.proxy.namespace.as_str());
        let is_forwarded = matches!(walk.outcome, Outcome::Forwarded(_));
        answer.steps.push(if is_forwarded { format!("it goes to {end}") } else { format!("it ends there: {end}") });
        let Some((reason, advice)) = outbound_reason(walk, self.context) else { return true };
        let is_unclaimed = claiming.is_none() && matches!(walk.outcome, Outcome::Closed(_) | Outcome::NotFound);
        answer.reason = Some(reason);
        answer.advice = match claiming {
            _ if is_unclaimed => {
                let hosts = claims.iter().flat_map(|claim| &claim.hosts).map(String::as_str).take(NAMED);
                let hosts = hosts.collect::<Vec<_>>().join(", ");
                let hosts = if hosts.is_empty() { "nothing" } else { &hosts };
                Some(format!("no server of its Gateways claims {host} at port {port}; claimed there: {hosts}"))
            }
            Some(claim) if walk.outcome == Outcome::NotFound => Some(format!(
                "no VirtualService or route that is bound to {} takes it for this host and path",
                claim.gateway
            )),
            Some(_) | None => advice,
        };
        false
    }

    /// Follows the request to the proxies behind the gateway.
    fn follow(self, answer: &mut WhyNot, judgement: Option<Judgement>, others: Others<'_>) {
        let Self { context, gateway, request, door, connection, walk } = self;
        let http = connection.http.as_ref().map(|request| match judgement {
            Some(judgement) => goes_on(request, judgement),
            None => request.clone(),
        });
        let (connection, identity) = (Connection { http, ..connection }, identity(&gateway.proxy, context));
        let asked = Asked {
            context,
            others,
            connection: &connection,
            called: (&request.host, door.port),
            identity: &identity,
            source: gateway.proxy.ips.first().copied(),
            remote: None,
            passes: true,
            judged_by_ztunnel: &Cell::new(0),
        };
        follow(answer, &walk, &asked);
    }
}

/// The ports at which a gateway can be asked: those of the services that it serves, then its own; the usual ones first.
fn doors(context: &PushContext, proxy: &Proxy, listeners: &[Arc<Listener>]) -> Vec<Door> {
    let own: Vec<u16> = listeners.iter().filter_map(|listener| port_of(listener)).collect();
    let mut doors: BTreeMap<u16, Door> = BTreeMap::new();
    for target in targets(context, proxy).iter().filter(|target| own.contains(&target.target_port)) {
        let service = Some(target.service.origin.to_string());
        let door = Door { port: target.port.port, listens: target.target_port, service };
        doors.entry(door.port).or_insert(door);
    }
    let led: Vec<u16> = doors.values().map(|door| door.listens).collect();
    for port in own.into_iter().filter(|port| !led.contains(port)) {
        doors.entry(port).or_insert(Door { port, listens: port, service: None });
    }
    let mut doors: Vec<Door> = doors.into_values().collect();
    doors.sort_by_key(|door| USUAL.iter().position(|port| *port == door.port).unwrap_or(USUAL.len()));
    doors
}

/// What the workload of a proxy serves by Kubernetes Services.
pub(super) fn targets(context: &PushContext, proxy: &Proxy) -> Vec<ServiceTarget> {
    let (pod, namespace) = proxy.name.rsplit_once('.').unwrap_or((&proxy.name, ""));
    let pod = NamespacedName::new(namespace, pod);
    let remotes = context.directory.remotes.values().map(|remote| &**remote);
    let found = std::iter::once(&context.directory).chain(remotes).find_map(|directory| {
        let of_pod = directory.pod_targets.get(&pod).map(|targets| targets.to_vec());
        of_pod.filter(|targets| !targets.is_empty()).or_else(|| {
            let at = directory.targets.get(proxy.ips.first()?)?;
            let targets: Vec<ServiceTarget> = at.entries.iter().flat_map(|entry| entry.targets.clone()).collect();
            (!targets.is_empty()).then_some(targets)
        })
    });
    found.unwrap_or_default()
}

/// A connection to a port of the gateway, over TLS where the listener there expects that.
fn connection(walkable: &Walkable<'_>, proxy: &Proxy, door: &Door, request: &Request) -> Option<Connection> {
    let destination = SocketAddr::new(*proxy.ips.first()?, door.listens);
    let bare = Connection { entry: WayIn::Direct, destination, source: None, tls: None, http: None };
    let listener = walkable.resources().listener(&bare)?;
    let Request { method, host, path, claims, .. } = request.clone();
    let tls = chains(listener)
        .any(is_tls)
        .then(|| Tls { sni: host.clone(), alpn: vec!["h2".to_owned(), "http/1.1".to_owned()] });
    let host = if USUAL.contains(&door.port) { host } else { format!("{host}:{}", door.port) };
    let http = HttpRequest { method, host, path, headers: BTreeMap::new(), claims };
    Some(Connection { tls, http: Some(http), ..bare })
}

/// Whether a chain is for TLS, which it ends or passes on.
pub(super) fn is_tls(chain: &FilterChain) -> bool {
    let is_named = chain.filter_chain_match.as_ref().is_some_and(|wanted| !wanted.server_names.is_empty());
    is_named || chain.transport_socket.is_some()
}

/// Whether a chain demands a certificate of the client.
pub(super) fn demands_certificate(chain: &FilterChain) -> bool {
    let config = chain.transport_socket.as_ref().and_then(|socket| socket.config_type.as_ref());
    let context = match config {
        Some(ConfigType::TypedConfig(config)) => DownstreamTlsContext::decode(config.value.as_slice()).ok(),
        None => None,
    };
    context.is_some_and(|context| context.require_client_certificate.unwrap_or_default())
}

/// Who the client is as far as the TLS of a chain says.
fn peer_at(chain: &FilterChain, answer: &mut WhyNot) -> Peer<'static> {
    if demands_certificate(chain) {
        answer.unknown.push("whether the client shows a certificate that the gateway takes: it demands one".to_owned());
        return Peer::Somebody;
    }
    Peer::Nobody
}

/// Tells where a request comes in.
fn tell_door(answer: &mut WhyNot, door: &Door, connection: &Connection, walk: &Walk) {
    if let Some(service) = door.service.as_ref().filter(|_| door.port != door.listens) {
        answer.steps.push(format!("{service} leads from port {} to port {} of the gateway", door.port, door.listens));
    }
    let over = match &connection.tls {
        Some(tls) => format!(" over TLS for {}", tls.sni),
        None => String::new(),
    };
    answer.steps.push(match walk.listener.as_str() {
        "" => format!("no listener takes the connection at port {}", door.listens),
        listener => format!("it takes the connection{over} at listener {listener:?}"),
    });
}

/// What clients can ask at.
fn listening(doors: &[Door]) -> String {
    let ports: Vec<String> = doors.iter().take(NAMED).map(|door| door.port.to_string()).collect();
    match ports.as_slice() {
        [] => {
            "it has no listeners: no Gateway selects it, or the ports of those that do are claimed by others".to_owned()
        }
        ports => format!("it can be asked at {}", ports.join(", ")),
    }
}

/// The servers of the Gateways of a proxy at a port, with the hosts that they claim.
fn claims(context: &PushContext, proxy: &Proxy, door: &Door) -> Vec<Claim> {
    let is_asked = |port: u32| port == u32::from(door.port) || port == u32::from(door.listens);
    let of_namespace =
        |namespace: &Namespace| !context.mesh.settings.scope_gateway_to_namespace || *namespace == proxy.namespace;
    let mut claims = Vec::new();
    for gateway in context.objects.gateways.iter().filter(|gateway| of_namespace(&gateway.meta.key.namespace)) {
        let mut selector = gateway.spec.selector.iter();
        if !selector.all(|(key, value)| proxy.labels.get(key.as_str()).is_some_and(|own| **own == **value)) {
            continue;
        }
        for server in &gateway.spec.servers {
            if server.port.as_ref().is_some_and(|port| is_asked(port.number)) {
                let hosts =
                    server.hosts.iter().map(|host| host.rsplit_once('/').map_or(host.as_str(), |(_, host)| host));
                let hosts = hosts.map(str::to_owned).collect();
                claims.push(Claim { gateway: format!("Gateway {}", gateway.meta.key), hosts });
            }
        }
    }
    let name = proxy.labels.get(GATEWAY_NAME);
    let of_api = context.objects.kubernetes_gateways.iter().filter(|gateway| {
        name.is_some_and(|name| *gateway.meta.key.name == **name) && gateway.meta.key.namespace == proxy.namespace
    });
    for gateway in of_api {
        for listener in gateway.spec.listeners.iter().filter(|one| u32::try_from(one.port).is_ok_and(is_asked)) {
            let hosts = vec![listener.hostname.clone().unwrap_or_else(|| "*".to_owned())];
            claims
                .push(Claim { gateway: format!("listener {} of Gateway {}", listener.name, gateway.meta.key), hosts });
        }
    }
    claims
}

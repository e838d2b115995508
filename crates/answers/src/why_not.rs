//! Follows a request from proxy to proxy, and returns the first reason for its failure.

mod without_sidecar;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use navarch_api::names::{Hostname, Namespace};
use navarch_push::context::PushContext;
use navarch_push::proxy::{Proxy, ProxyKind};
use navarch_registry::model::{Health, Service, ServiceKey};
use navarch_walk::token::Claims;
use navarch_walk::{Connection, Entry, HttpRequest, Outcome, Share, Tls, Upstream, Walk};

use super::inbound::{first_endpoints, offers_http, trace_endpoints};
use super::ingress;
use super::received::{ProxyResources, ReadResources, Walkable};
use super::waypoint::waypoint_of;
use super::why::WhyNot;
use super::wording::{Authority, forwarding, service_of};
use without_sidecar::{from_outside, from_ztunnel};

/// The request to follow.
#[derive(Clone, Debug)]
pub struct Request {
    /// The host: a short name that resolves in the client's namespace, or a fully qualified name.
    pub host: String,
    /// The port; `None` is the service's first port.
    pub port: Option<u16>,
    /// The HTTP method, such as `GET`.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// Further headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The claims of the request's token; `None` without a token.
    pub claims: Option<Claims>,
    /// Whether it is followed to all destinations, even if one refuses it.
    pub to_all: bool,
}

/// A proxy and the resources that it was sent last, without those that it rejected.
#[derive(Clone, Debug)]
pub struct ProxySnapshot {
    /// The node message of its stream: type, addresses, namespace, labels and other metadata.
    pub proxy: std::sync::Arc<Proxy>,
    /// By type; a type is missing if the proxy has not subscribed to it.
    pub had: ProxyResources,
}

/// The source of the request.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The workload of a sidecar, or a gateway.
    Proxy(ProxySnapshot),
    /// A pod in ambient mode, which uses ztunnel instead of its own proxy.
    Ambient(std::sync::Arc<Proxy>),
    /// A pod outside of the mesh: it sends plain text to the endpoints of services.
    Outside(std::sync::Arc<Proxy>),
}

/// The proxies that the request may reach.
#[derive(Clone, Copy)]
pub struct Others<'a> {
    /// Finds the proxy at an address.
    pub at: &'a dyn Fn(IpAddr) -> Option<ProxySnapshot>,
    /// The proxies of type `waypoint` that are connected to this control plane.
    pub waypoints: &'a dyn Fn() -> Vec<ProxySnapshot>,
    /// The proxies of type `ztunnel` that are connected; they have the workloads and policies of
    /// ambient mode.
    pub ztunnels: &'a dyn Fn() -> Vec<ProxySnapshot>,
    /// Their decoded resources, for this and further requests.
    pub read: &'a RefCell<ReadResources>,
}

impl Others<'_> {
    /// The resources of a proxy, to walk a request through.
    pub(super) fn walkable<'a>(&self, had: &'a ProxyResources) -> Walkable<'a> {
        Walkable::read(had, &mut self.read.borrow_mut())
    }
}

impl std::fmt::Debug for Others<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Others")
    }
}

/// A request that is followed hop by hop.
#[derive(Clone, Copy)]
pub(super) struct TracedRequest<'a> {
    pub(super) context: &'a PushContext,
    pub(super) others: Others<'a>,
    pub(super) connection: &'a Connection,
    pub(super) called: Authority<'a>,
    /// The client's identity, if it is verified by mutual TLS.
    pub(super) identity: &'a str,
    /// The peer address, if known.
    pub(super) source: Option<IpAddr>,
    /// The original client address, if known.
    pub(super) remote: Option<IpAddr>,
    /// Whether the proxy that forwards it offers HTTP in the mesh's mutual TLS.
    pub(super) offers_http: bool,
    /// Whether it is followed to all destinations, even if one refuses it.
    pub(super) to_all: bool,
    /// Whether the request may still pass a waypoint.
    pub(super) may_use_waypoint: bool,
    /// The number of pods for which the policies of a ztunnel that is not connected were evaluated.
    pub(super) judged_by_ztunnel: &'a Cell<usize>,
}

impl Origin {
    /// The client's proxy; for pods without one, a synthetic proxy of the pod.
    fn proxy(&self) -> &Proxy {
        match self {
            Self::Proxy(place) => &place.proxy,
            Self::Ambient(proxy) | Self::Outside(proxy) => proxy,
        }
    }
}

/// Explains why a request from a workload, or through a gateway, fails or succeeds.
#[must_use]
pub fn why_not(
    context: &PushContext,
    from: &Origin,
    request: &Request,
    others: Others<'_>,
) -> WhyNot {
    if let Origin::Proxy(gateway) = from
        && gateway.proxy.kind == ProxyKind::Router
    {
        return ingress::trace_ingress(context, gateway, request, others);
    }
    let own = &from.proxy().namespace;
    let mut answer = WhyNot::default();
    let found = service(context, own, &request.host);

    let port = request
        .port
        .or_else(|| Some(found?.ports.first()?.port))
        .unwrap_or(80);
    answer.request = format!(
        "{} {}:{port}{} from {}",
        request.method,
        request.host,
        request.path,
        from.proxy().name
    );

    match found {
        Some(service) => answer
            .steps
            .push(format!("{} is {}", request.host, service.origin)),
        None => answer
            .steps
            .push(format!("{} is not a known service", request.host)),
    }

    let declared = found.and_then(|service| service.port(port));
    if let Some(service) = found.filter(|_| declared.is_none()) {
        let ports: Vec<String> = service
            .ports
            .iter()
            .map(|one| one.port.to_string())
            .collect();
        answer.reason = Some(format!("{} has no port {port}", service.origin));
        answer.advice = Some(format!("its ports are {}", ports.join(", ")));
        return answer;
    }

    let is_http = declared.is_none_or(|declared| declared.protocol.is_http_or_sniffed());
    let http = HttpRequest {
        method: request.method.clone(),
        host: format!("{}:{port}", request.host),
        path: request.path.clone(),
        headers: request.headers.clone(),
        claims: request.claims.clone(),
    };

    let connection = Connection {
        entry: Entry::Outbound,
        destination: SocketAddr::new(address(context, found), port),
        source: None,
        tls: declared
            .is_some_and(|declared| declared.protocol.is_tls())
            .then(|| Tls {
                sni: request.host.clone(),
                alpn: Vec::new(),
            }),
        http: is_http.then_some(http),
    };

    let host = found.map_or(request.host.as_str(), |service| {
        service.key.hostname.as_str()
    });
    let identity = identity(from.proxy(), context);
    let connection = &connection;
    let called = Authority { host, port };
    let source = from.proxy().ips.first().copied();
    let judged = Cell::new(0);

    let traced = TracedRequest {
        context,
        others,
        connection,
        called,
        identity: &identity,
        source,
        remote: source,
        offers_http: false,
        to_all: request.to_all,
        may_use_waypoint: true,
        judged_by_ztunnel: &judged,
    };

    match from {
        Origin::Proxy(place) => from_proxy(&mut answer, place, found, &traced),
        Origin::Ambient(_) => from_ztunnel(&mut answer, found, &traced),
        Origin::Outside(_) => from_outside(&mut answer, found, &traced),
    }

    answer
}

/// Follows a request from the client's sidecar.
fn from_proxy(
    answer: &mut WhyNot,
    from: &ProxySnapshot,
    found: Option<&Service>,
    request: &TracedRequest<'_>,
) {
    let mut walkable = request.others.walkable(&from.had);
    let walk = walkable.walk(request.connection);
    answer.steps.push(match walk.listener.as_str() {
        "" => "no listener of its proxy matches the connection".to_owned(),
        listener => format!("listener {listener:?} of its proxy accepts the connection"),
    });
    if let Some(route) = walk.route.as_ref().filter(|route| !route.is_empty()) {
        answer.steps.push(format!("route {route:?} matches"));
    }

    answer.steps.push(forwarding(
        &walk,
        request.called,
        from.proxy.namespace.as_str(),
    ));

    if let Some((reason, advice)) = outbound_reason(&walk, request.context) {
        answer.reason = Some(reason);
        answer.advice = advice;
        answer.response = own_response(&walk);
        return;
    }

    let uses_waypoint = first_endpoints(&walk).any(|endpoint| endpoint.waypoint.is_some());
    if let Some(waypoint) = found
        .filter(|_| !uses_waypoint)
        .and_then(|service| waypoint_of(&request.others, service, request.connection))
    {
        answer.steps.push(format!(
            "it bypasses waypoint {}, whose routes and policies do not apply: sidecars use waypoints only by request (docs/ambient.md)",
            waypoint.proxy.name
        ));
    }

    let request = TracedRequest {
        offers_http: offers_http(walkable.resources(), request.connection),
        ..*request
    };
    trace_endpoints(answer, &walk, &request);
}

/// The identity of a workload, as in its certificate.
pub(super) fn identity(proxy: &Proxy, context: &PushContext) -> String {
    let account = proxy
        .meta("SERVICE_ACCOUNT")
        .filter(|account| !account.is_empty());
    let account = account.unwrap_or_else(|| "default".to_owned());
    let domain = &context.mesh.config.trust_domain;
    format!("spiffe://{domain}/ns/{}/sa/{account}", proxy.namespace)
}

/// Looks up a service by the name that a workload in namespace `own` uses.
fn service<'a>(context: &'a PushContext, own: &Namespace, host: &str) -> Option<&'a Service> {
    let domain = &context.mesh.settings.domain_suffix;
    let names = [
        host.to_owned(),
        format!("{host}.{own}.svc.{domain}"),
        format!("{host}.svc.{domain}"),
        format!("{host}.{domain}"),
    ];

    names.iter().find_map(|name| {
        let hostname = Hostname::new(name);
        let namespaces = context.directory.namespaces_of_host.get(&hostname)?;
        let namespace = namespaces
            .iter()
            .find(|namespace| *namespace == own)
            .or(namespaces.first())?;
        let key = ServiceKey {
            namespace: namespace.clone(),
            hostname,
        };

        context
            .directory
            .services
            .get(&key)?
            .first()
            .map(|service| &**service)
    })
}

/// The address that the workload's resolver would return.
fn address(context: &PushContext, service: Option<&Service>) -> IpAddr {
    let own = service.and_then(|service| service.default_address.parse::<IpAddr>().ok());
    let own = own
        .filter(|ip| !ip.is_unspecified())
        .or_else(|| service?.auto_ipv4);
    let endpoint = || {
        let endpoints = context.directory.endpoints.get(&service?.key)?;
        endpoints
            .endpoints
            .iter()
            .find_map(|endpoint| endpoint.addresses.first()?.parse().ok())
    };
    own.or_else(endpoint)
        .unwrap_or(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)))
}

/// The response of a proxy that is part of its routes.
pub(super) fn own_response(walk: &Walk) -> Option<String> {
    match &walk.outcome {
        Outcome::Redirected { status, location } => Some(format!("{status} to {location}")),
        Outcome::Answered(status) => Some(status.to_string()),
        Outcome::Closed(_) | Outcome::NotFound | Outcome::Forwarded(_) => None,
    }
}

/// Why a request does not leave the client's proxy, and the advice.
pub(super) fn outbound_reason(
    walk: &Walk,
    context: &PushContext,
) -> Option<(String, Option<String>)> {
    match &walk.outcome {
        Outcome::Closed(reason) => {
            Some((format!("the proxy closes the connection: {reason}"), None))
        }
        Outcome::NotFound => Some((
            "no route matches the request: 404".to_owned(),
            Some("check the match conditions in this host's VirtualService".to_owned()),
        )),
        Outcome::Redirected { status, location } => Some((
            format!("the proxy redirects with {status} to {location}"),
            None,
        )),
        Outcome::Answered(status) => Some((
            format!("the proxy responds with {status} itself"),
            Some(
                "a VirtualService has a directResponse, or no VirtualService applies to this host"
                    .to_owned(),
            ),
        )),
        Outcome::Forwarded(shares) => shares.iter().find_map(|share| lost_share(share, context)),
    }
}

/// Why requests to a cluster fail.
fn lost_share(share: &Share, context: &PushContext) -> Option<(String, Option<String>)> {
    let cluster = &share.cluster;
    if cluster == "BlackHoleCluster" {
        let advice = "outboundTrafficPolicy is REGISTRY_ONLY and no ServiceEntry has the host, or a Sidecar hides it";
        return Some((
            "the proxy has no service with this host and blocks unknown hosts".to_owned(),
            Some(advice.to_owned()),
        ));
    }

    match &share.upstream {
        Upstream::NoCluster => {
            let subset = service_of(cluster)
                .map(|(_, subset, _)| subset)
                .filter(|subset| !subset.is_empty());
            let advice = subset
                .map(|subset| format!("add subset {subset:?} to a DestinationRule of the host"));
            Some((
                format!("the route references cluster {cluster:?}, which does not exist: 503"),
                advice,
            ))
        }
        Upstream::Endpoints(endpoints) if endpoints.is_empty() => {
            let known = service_of(cluster)
                .map(|(_, _, host)| unready(context, host))
                .unwrap_or_default();
            Some((
                format!("cluster {cluster:?} has no endpoints: 503"),
                Some(known),
            ))
        }
        Upstream::Endpoints(_) | Upstream::Original(_) | Upstream::Named(_) => None,
    }
}

/// The number of known endpoints of a host, and of those that are not ready.
fn unready(context: &PushContext, host: &str) -> String {
    let all = context
        .directory
        .endpoints
        .iter()
        .filter(|(key, _)| key.hostname.as_str() == host);
    let all: Vec<_> = all
        .flat_map(|(_, endpoints)| &endpoints.endpoints)
        .collect();
    let unready = all
        .iter()
        .filter(|endpoint| matches!(endpoint.health, Health::Unhealthy | Health::Terminating))
        .count();

    match all.len() {
        0 => "the service has no endpoints: check its selector, and whether its pods are ready"
            .to_owned(),
        known => {
            format!(
                "{known} endpoints are known, {unready} are not ready; a subset's labels may match none of them"
            )
        }
    }
}

//! Follows a request from one proxy to the next, and gives the first reason for which it fails.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use navarch_api::names::{Hostname, Namespace};
use navarch_push::context::PushContext;
use navarch_push::proxy::Proxy;
use navarch_registry::model::{Health, Service, ServiceKey};
use navarch_walk::policy::{Verdict, Visitor, verdict};
use navarch_walk::{Connection, Entry, HttpRequest, Outcome, Resources, Share, Tls, Upstream, Walk};

use super::had::{Had, ReadRoutes, Walkable};
use super::why::WhyNot;
use super::words::{outcome, service_of};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The host, short as in the pod or whole.
    pub host: String,
    /// The port; the first of the service where none is said.
    pub port: Option<u16>,
    /// HTTP method, as in `GET`.
    pub method: String,
    /// The path with its query.
    pub path: String,
}

/// A proxy and what it has taken.
#[derive(Clone, Debug)]
pub struct Place {
    /// Whose requests fail.
    pub proxy: std::sync::Arc<Proxy>,
    /// What it has.
    pub had: Had,
}

/// Why a request of a proxy's workload fails, or that it does not. `at` finds the proxy at an address.
#[must_use]
pub fn why_not(context: &PushContext, from: &Place, request: &Request, at: impl Fn(IpAddr) -> Option<Place>) -> WhyNot {
    let own = &from.proxy.namespace;
    let mut answer = WhyNot::default();
    let found = service(context, own, &request.host);
    let port = request.port.or_else(|| Some(found?.ports.first()?.port)).unwrap_or(80);
    answer.request = format!("{} {}:{port}{} from {}", request.method, request.host, request.path, from.proxy.name);
    match found {
        Some(service) => answer.steps.push(format!("{} is {}", request.host, service.origin)),
        None => answer.steps.push(format!("{} is no service that is known", request.host)),
    }
    let declared = found.and_then(|service| service.port(port));
    if let Some(service) = found.filter(|_| declared.is_none()) {
        let ports: Vec<String> = service.ports.iter().map(|one| one.port.to_string()).collect();
        answer.reason = Some(format!("{} has no port {port}", service.origin));
        answer.advice = Some(format!("its ports are {}", ports.join(", ")));
        return answer;
    }
    let is_http = declared.is_none_or(|declared| declared.protocol.is_http_or_sniffed());
    let http = HttpRequest {
        method: request.method.clone(),
        host: format!("{}:{port}", request.host),
        path: request.path.clone(),
        headers: BTreeMap::new(),
    };
    let connection = Connection {
        entry: Entry::Outbound,
        destination: SocketAddr::new(address(context, found), port),
        source: None,
        tls: declared
            .is_some_and(|declared| declared.protocol.is_tls())
            .then(|| Tls { sni: request.host.clone(), alpn: Vec::new() }),
        http: is_http.then_some(http),
    };
    let mut walkable = Walkable::read(&from.had, &mut ReadRoutes::default());
    let walk = walkable.walk(&connection);
    answer.steps.push(match walk.listener.as_str() {
        "" => "no listener of its proxy takes the connection".to_owned(),
        listener => format!("its proxy takes the connection at listener {listener:?}"),
    });
    if let Some(route) = walk.route.as_ref().filter(|route| !route.is_empty()) {
        answer.steps.push(format!("route {route:?} takes the request"));
    }
    let host = found.map_or(request.host.as_str(), |service| service.key.hostname.as_str());
    let end = outcome(&walk, (host, port), own.as_str());
    answer.steps.push(match walk.outcome {
        Outcome::Forwarded(_) => format!("it goes to {end}"),
        Outcome::Closed(_) | Outcome::NotFound | Outcome::Redirected { .. } | Outcome::Answered(_) => {
            format!("it ends there: {end}")
        }
    });
    if let Some((reason, advice)) = outbound_reason(&walk, context) {
        (answer.reason, answer.advice) = (Some(reason), advice);
        return answer;
    }
    inbound(&mut answer, (&walk, &connection), (from, context), at);
    answer
}

/// A service by the name that a workload of a namespace calls it.
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
        let namespace = namespaces.iter().find(|namespace| *namespace == own).or(namespaces.first())?;
        let key = ServiceKey { namespace: namespace.clone(), hostname };
        context.directory.services.get(&key)?.first().map(|service| &**service)
    })
}

/// Where the workload's resolver would send it.
fn address(context: &PushContext, service: Option<&Service>) -> IpAddr {
    let own = service.and_then(|service| service.default_address.parse::<IpAddr>().ok());
    let own = own.filter(|ip| !ip.is_unspecified()).or_else(|| service?.auto_ipv4);
    let endpoint = || {
        let endpoints = context.directory.endpoints.get(&service?.key)?;
        endpoints.endpoints.iter().find_map(|one| one.addresses.first()?.parse().ok())
    };
    own.or_else(endpoint).unwrap_or(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)))
}

/// Why a request does not leave its own proxy, and what helps.
fn outbound_reason(walk: &Walk, context: &PushContext) -> Option<(String, Option<String>)> {
    match &walk.outcome {
        Outcome::Closed(reason) => Some((format!("the proxy closes the connection: {reason}"), None)),
        Outcome::NotFound => Some((
            "no route takes the request: 404".to_owned(),
            Some("see the matches of the VirtualService of this host".to_owned()),
        )),
        Outcome::Redirected { status, location } => {
            Some((format!("the proxy redirects with {status} to {location}"), None))
        }
        Outcome::Answered(status) => Some((
            format!("the proxy answers {status} itself"),
            Some("a VirtualService says so (directResponse), or none is meant for this host".to_owned()),
        )),
        Outcome::Forwarded(shares) => shares.iter().find_map(|share| lost_share(share, context)),
    }
}

/// Why what goes to a cluster is lost.
fn lost_share(share: &Share, context: &PushContext) -> Option<(String, Option<String>)> {
    let cluster = &share.cluster;
    if cluster == "BlackHoleCluster" {
        let advice = "outboundTrafficPolicy is REGISTRY_ONLY, and no ServiceEntry has this host; or a Sidecar hides it";
        return Some(("the proxy knows no such host and lets nothing else out".to_owned(), Some(advice.to_owned())));
    }
    match &share.upstream {
        Upstream::NoCluster => {
            let subset = service_of(cluster).map(|(_, subset, _)| subset).filter(|subset| !subset.is_empty());
            let advice = subset.map(|subset| format!("add subset {subset:?} to a DestinationRule of the host"));
            Some((format!("the route leads to cluster {cluster:?}, which is not there: 503"), advice))
        }
        Upstream::Endpoints(endpoints) if endpoints.is_empty() => {
            let known = service_of(cluster).map(|(_, _, host)| unready(context, host)).unwrap_or_default();
            Some((format!("cluster {cluster:?} has no endpoints: 503"), Some(known)))
        }
        Upstream::Endpoints(_) | Upstream::Original(_) | Upstream::Named(_) => None,
    }
}

/// How many endpoints of a host are known, and are not ready.
fn unready(context: &PushContext, host: &str) -> String {
    let all = context.directory.endpoints.iter().filter(|(key, _)| key.hostname.as_str() == host);
    let all: Vec<_> = all.flat_map(|(_, endpoints)| &endpoints.endpoints).collect();
    let unready = all.iter().filter(|one| matches!(one.health, Health::Unhealthy | Health::Terminating)).count();
    match all.len() {
        0 => "no pod is behind the service: see its selector, and whether its pods are ready".to_owned(),
        known => {
            format!("{known} endpoints are known, {unready} of them not ready; a subset's labels may fit none of them")
        }
    }
}

/// Follows the request to the proxies of its endpoints: their TLS and their policies.
fn inbound(
    answer: &mut WhyNot,
    (walk, asked): (&Walk, &Connection),
    (from, context): (&Place, &PushContext),
    at: impl Fn(IpAddr) -> Option<Place>,
) {
    let mut is_told = false;
    for address in walk.addresses() {
        let Some(destination) = address.parse::<SocketAddr>().ok() else { continue };
        let Some(place) = at(destination.ip()) else {
            if !is_told {
                answer.steps.push(format!("no proxy that is connected here is at {destination}"));
                is_told = true;
            }
            continue;
        };
        let account = from.proxy.meta("SERVICE_ACCOUNT").filter(|account| !account.is_empty());
        let account = account.unwrap_or_else(|| "default".to_owned());
        let domain = &context.mesh.config.trust_domain;
        let identity = format!("spiffe://{domain}/ns/{}/sa/{account}", from.proxy.namespace);
        let walkable = Walkable::read(&place.had, &mut ReadRoutes::default());
        if let Some(reason) = refused_at(&place, walkable.resources(), (destination, &identity, asked), answer) {
            answer.reason = Some(reason);
            return;
        }
        answer.steps.push(format!("{} at {destination} lets it in", place.proxy.name));
    }
}

/// Why the proxy of an endpoint does not let a request in.
fn refused_at(
    place: &Place,
    resources: &Resources,
    (destination, identity, asked): (SocketAddr, &str, &Connection),
    answer: &mut WhyNot,
) -> Option<String> {
    let source = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let with = |tls: Option<Tls>| Connection {
        entry: Entry::Inbound,
        destination,
        source: None,
        tls,
        http: asked.http.clone(),
    };
    let mutual = Tls { sni: String::new(), alpn: vec!["istio".to_owned(), "istio-peer-exchange".to_owned()] };
    let mutual = with(Some(mutual));
    let plain = with(None);
    let (chain, identity) = match (resources.chain(&mutual), resources.chain(&plain)) {
        (Some(chain), _) => (chain, Some(identity)),
        (None, Some(chain)) => (chain, None),
        (None, None) => return Some(format!("{} takes no connection to {destination}", place.proxy.name)),
    };
    let visitor =
        Visitor { identity, source, destination: (destination.ip(), destination.port()), http: asked.http.as_ref() };
    let who = identity.unwrap_or("nobody in particular (plain text)");
    match verdict(chain, &visitor) {
        Verdict::Passes => None,
        Verdict::Denied(rule) => {
            answer.advice = policy_of(&rule).map(|policy| format!("it is {policy}"));
            Some(format!("{} denies it to {who}: 403 by {rule}", place.proxy.name))
        }
        Verdict::NotAllowed(rules) => {
            let policies: Vec<String> = rules.iter().filter_map(|rule| policy_of(rule)).collect();
            let named = if policies.is_empty() {
                "an AuthorizationPolicy that allows nothing".to_owned()
            } else {
                policies.join(", ")
            };
            answer.advice = Some(format!("policies that allow: {named}; none of their rules fits"));
            Some(format!("{} allows it to others, not to {who}: 403", place.proxy.name))
        }
        Verdict::Unknown => {
            answer
                .unknown
                .push(format!("whether a policy of {} allows it depends on a token or on metadata", place.proxy.name));
            None
        }
    }
}

/// The policy behind the name of a rule, such as `ns[shop]-policy[p]-rule[0]`.
fn policy_of(rule: &str) -> Option<String> {
    let (namespace, rest) = rule.split_once("ns[")?.1.split_once("]-policy[")?;
    let (name, _) = rest.split_once(']')?;
    Some(format!("AuthorizationPolicy {namespace}/{name}"))
}

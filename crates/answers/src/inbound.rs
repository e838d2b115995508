//! The step of a request at the proxies of its endpoints: their TLS and policies.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use navarch_api::kubernetes::Pod;
use navarch_api::object::{Object, ObjectMeta};
use navarch_proto::envoy::config::listener::v3::FilterChain;
use navarch_push::context::PushContext;
use navarch_walk::policy::Peer;
use navarch_walk::{
    Connection, Endpoint, Entry, Outcome, Resources, Tls, Transport, Upstream, Walk,
};

use super::evaluation::{Evaluation, Visit, evaluate};
use super::received::manager_of;
use super::waypoint::trace_waypoint;
use super::why::WhyNot;
use super::why_not::{ProxySnapshot, TracedRequest};
use super::ztunnel;

/// Prefix of the message for an address without a known proxy.
const NO_PROXY: &str = "no proxy connected to this replica has the address";

/// The filter by which proxies offer HTTP in the mesh's mutual TLS.
const ALPN_FILTER: &str = "istio.alpn";

/// How an address is reached: the waypoint at which the tunnel ends, and the transport.
type Via<'a> = (Option<&'a str>, Transport);

/// What a client offers in the mesh's mutual TLS. Servers recognize HTTP by it at ports without a
/// declared protocol.
pub(super) fn mesh_alpn(offers_http: bool) -> Vec<String> {
    let protocols: &[&str] = if offers_http {
        &["istio-http/1.1", "istio", "http/1.1"]
    } else {
        &["istio", "istio-peer-exchange"]
    };
    protocols
        .iter()
        .map(|&protocol| protocol.to_owned())
        .collect()
}

/// Whether a client that handles a connection as HTTP offers that in the mesh's mutual TLS.
pub(super) fn offers_http(client: &Resources, connection: &Connection) -> bool {
    let manager = client.chain(connection).and_then(manager_of);
    manager.is_some_and(|manager| {
        manager
            .http_filters
            .iter()
            .any(|filter| filter.name == ALPN_FILTER)
    })
}

/// The endpoints of the lowest priority.
pub(super) fn first_endpoints(walk: &Walk) -> impl Iterator<Item = &Endpoint> {
    let shares = if let Outcome::Forwarded(shares) = &walk.outcome {
        shares.as_slice()
    } else {
        &[]
    };

    shares
        .iter()
        .filter(|share| share.weight > 0)
        .flat_map(|share| {
            let all = if let Upstream::Endpoints(endpoints) = &share.upstream {
                endpoints.as_slice()
            } else {
                &[]
            };
            let first = all.iter().map(|endpoint| endpoint.priority).min();
            all.iter()
                .filter(move |endpoint| Some(endpoint.priority) == first)
        })
}

/// The addresses of the lowest priority, and how they are reached.
fn ways(walk: &Walk) -> BTreeMap<String, Via<'_>> {
    let mut ways: BTreeMap<String, Via<'_>> = BTreeMap::new();
    for endpoint in first_endpoints(walk) {
        ways.entry(endpoint.address.clone())
            .or_insert((endpoint.waypoint.as_deref(), endpoint.transport));
    }
    let shares = if let Outcome::Forwarded(shares) = &walk.outcome {
        shares.as_slice()
    } else {
        &[]
    };
    for share in shares.iter().filter(|share| share.weight > 0) {
        if let Upstream::Original(address) = &share.upstream {
            ways.entry(address.to_string())
                .or_insert((None, share.transport));
        }
    }
    ways
}

/// The addresses of a walk, each with its share of the requests in thousandths.
fn portions(walk: &Walk) -> BTreeMap<String, u64> {
    let Outcome::Forwarded(shares) = &walk.outcome else {
        return BTreeMap::new();
    };

    let total: u64 = shares.iter().map(|share| u64::from(share.weight)).sum();
    let part = |weight: u64, of: u64| (weight * 1000).checked_div(of).unwrap_or_default();
    let mut portions: BTreeMap<String, u64> = BTreeMap::new();
    for share in shares.iter().filter(|share| share.weight > 0) {
        let of_share = part(u64::from(share.weight), total);
        let endpoints = match &share.upstream {
            Upstream::Endpoints(endpoints) => endpoints,
            Upstream::Original(address) => {
                *portions.entry(address.to_string()).or_default() += of_share;
                continue;
            }
            Upstream::Named(host) => {
                *portions.entry(host.clone()).or_default() += of_share;
                continue;
            }
            Upstream::NoCluster => continue,
        };

        let first = endpoints.iter().map(|endpoint| endpoint.priority).min();
        let used = || {
            let all = endpoints.iter();
            all.filter(move |endpoint| Some(endpoint.priority) == first)
        };
        let weights: u64 = used().map(|endpoint| u64::from(endpoint.weight)).sum();
        for endpoint in used() {
            let of_endpoint = of_share * u64::from(endpoint.weight);
            *portions.entry(endpoint.address.clone()).or_default() +=
                of_endpoint.checked_div(weights).unwrap_or_default();
        }
    }
    portions
}

/// The reason of the first failure of a request at several destinations, and the advice.
#[derive(Debug, Default)]
pub(super) struct FirstFailure(Option<(Option<String>, Option<String>)>);

impl FirstFailure {
    /// Notes the failure that the answer has, at a destination.
    pub(super) fn note(&mut self, answer: &mut WhyNot, address: String) {
        answer.refused_at.insert(address);
        let failure = (answer.reason.take(), answer.advice.take());
        self.0.get_or_insert(failure);
    }

    /// Gives the answer the first failure. Returns false if there is one.
    pub(super) fn end(self, answer: &mut WhyNot) -> bool {
        let Some((reason, advice)) = self.0 else {
            return true;
        };
        answer.reason = reason;
        answer.advice = advice;
        false
    }
}

/// Follows a request to the proxies of its endpoints. Returns false if it fails, with the reason in
/// `answer`.
pub(super) fn trace_endpoints(
    answer: &mut WhyNot,
    walk: &Walk,
    request: &TracedRequest<'_>,
) -> bool {
    let portions = portions(walk);
    let leads_to_waypoint = |waypoint: Option<&str>| waypoint.is_some() && request.may_use_waypoint;
    for (address, (waypoint, _)) in ways(walk) {
        if !leads_to_waypoint(waypoint) {
            let portion = portions.get(&address).copied().unwrap_or_default();
            answer.destinations.insert(address, portion);
        }
    }

    let mut failure = FirstFailure::default();
    for (address, (waypoint, transport)) in ways(walk) {
        let Ok(destination) = address.parse::<SocketAddr>() else {
            continue;
        };

        let waypoint = waypoint
            .filter(|_| request.may_use_waypoint)
            .and_then(|waypoint| waypoint.parse::<SocketAddr>().ok());
        let goes_on = match waypoint {
            Some(waypoint) => match (request.others.at)(waypoint.ip()) {
                Some(place) => trace_waypoint(answer, &place, destination, request),
                None => {
                    answer.unseen.insert(waypoint.to_string());
                    answer.step_once(format!("{NO_PROXY} {waypoint}, its waypoint"));
                    true
                }
            },
            None => trace_endpoint(answer, destination, transport, request),
        };

        if !goes_on {
            failure.note(answer, address);
            if !request.to_all {
                break;
            }
        }
    }

    failure.end(answer)
}

/// Checks a request at an endpoint: TLS and policies of its proxy. Returns false if it fails.
pub(super) fn trace_endpoint(
    answer: &mut WhyNot,
    destination: SocketAddr,
    transport: Transport,
    request: &TracedRequest<'_>,
) -> bool {
    if let Some(place) = (request.others.at)(destination.ip()) {
        let walkable = request.others.walkable(&place.had);

        if denied_at(
            &place,
            walkable.resources(),
            destination,
            transport,
            request,
            answer,
        ) {
            return false;
        }

        answer
            .steps
            .push(format!("{} at {destination} allows it", place.proxy.name));
        return true;
    }

    if let Some(pod) = ambient_pod_at(request.context, destination.ip()) {
        return ztunnel::allows(answer, &pod, destination, transport, request);
    }

    answer.unseen.insert(destination.to_string());
    if !answer.steps.iter().any(|step| step.starts_with(NO_PROXY)) {
        answer.steps.push(format!("{NO_PROXY} {destination}"));
    }

    true
}

/// The pod in ambient mode at an address.
pub(super) fn ambient_pod_at(context: &PushContext, ip: IpAddr) -> Option<Arc<Object<Pod>>> {
    pod_at(context, ip, navarch_ambient::is_redirected).cloned()
}

/// Whether the pod at an address accepts HBONE.
pub(super) fn accepts_hbone(context: &PushContext, ip: IpAddr) -> bool {
    pod_at(context, ip, navarch_ambient::declares_hbone).is_some()
}

/// The pod at an address whose metadata is as wanted.
fn pod_at(
    context: &PushContext,
    ip: IpAddr,
    is_wanted: impl Fn(&ObjectMeta) -> bool,
) -> Option<&Arc<Object<Pod>>> {
    let mut pods = context.objects.pods.iter();
    pods.find(|pod| pod.spec.pod_ips.contains(&ip) && is_wanted(&pod.meta))
}

/// Whether the proxy of an endpoint denies a request; the reason is added to the answer.
fn denied_at(
    place: &ProxySnapshot,
    resources: &Resources,
    destination: SocketAddr,
    transport: Transport,
    request: &TracedRequest<'_>,
    answer: &mut WhyNot,
) -> bool {
    let http = &request.connection.http;
    let with = |entry, tls| Connection {
        entry,
        destination,
        source: request.source,
        tls,
        http: http.clone(),
    };

    let mutual = || {
        let tls = Tls {
            sni: String::new(),
            alpn: mesh_alpn(request.offers_http),
        };
        resources.chain(&with(Entry::Inbound, Some(tls)))
    };

    let name = &place.proxy.name;
    let proven = Peer::Proven(request.identity);
    let (chain, peer): (Option<&FilterChain>, Peer<'_>) = match transport {
        Transport::Tunnel => (
            resources.chain(&with(Entry::Tunnel, None)).or_else(mutual),
            proven,
        ),
        Transport::Mutual => (mutual(), proven),
        Transport::Plain => (resources.chain(&with(Entry::Inbound, None)), Peer::Nobody),
        Transport::Tls => {
            let tls = Tls {
                sni: request.called.host.to_owned(),
                alpn: vec!["h2".to_owned(), "http/1.1".to_owned()],
            };
            (
                resources.chain(&with(Entry::Inbound, Some(tls))),
                Peer::Nobody,
            )
        }
    };

    let Some(chain) = chain else {
        answer.reason = Some(match transport {
            Transport::Plain if mutual().is_some() => {
                let advice = "a PeerAuthentication of the server is STRICT; the client has no proxy, or a DestinationRule sets tls.mode DISABLE";
                answer.advice = Some(advice.to_owned());
                format!(
                    "{name} accepts only mutual TLS at {destination}, and the client sends plain text"
                )
            }
            Transport::Plain | Transport::Tls | Transport::Mutual | Transport::Tunnel => {
                format!("no filter chain of {name} matches a connection to {destination}")
            }
        });
        return true;
    };

    let visit = Visit {
        peer,
        source: request.source,
        remote: request.remote,
        destination,
        http: http.as_ref(),
    };

    evaluate(name, chain, &visit, answer) == Evaluation::Denied
}

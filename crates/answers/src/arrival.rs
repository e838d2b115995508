//! Where a request arrives: the proxies of its endpoints, with their TLS and their policies.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use navarch_proto::envoy::config::listener::v3::FilterChain;
use navarch_push::context::PushContext;
use navarch_walk::policy::{Verdict, Visitor, verdict};
use navarch_walk::{Connection, Endpoint, Entry, Outcome, Resources, Tls, Upstream, Walk};

use super::had::{ReadRoutes, Walkable};
use super::passing::pass;
use super::why::WhyNot;
use super::why_not::{Asked, Place};

/// How it is said that nothing is known of who is at an address, and that ztunnel is before it.
const NO_PROXY: &str = "no proxy that is connected here is at";
/// As [`NO_PROXY`].
const ZTUNNEL: &str = "ztunnel takes it in for the pod at";

/// The endpoints that a request may reach first.
pub(super) fn first_endpoints(walk: &Walk) -> impl Iterator<Item = &Endpoint> {
    let shares = if let Outcome::Forwarded(shares) = &walk.outcome { shares.as_slice() } else { &[] };
    shares.iter().filter(|share| share.weight > 0).flat_map(|share| {
        let all = if let Upstream::Endpoints(endpoints) = &share.upstream { endpoints.as_slice() } else { &[] };
        let first = all.iter().map(|endpoint| endpoint.priority).min();
        all.iter().filter(move |endpoint| Some(endpoint.priority) == first)
    })
}

/// Follows a request to the proxies of its endpoints. False where it fails, which the answer then says.
pub(super) fn follow(answer: &mut WhyNot, walk: &Walk, asked: &Asked<'_>) -> bool {
    let by_waypoint: BTreeMap<&str, &str> =
        first_endpoints(walk).filter_map(|one| Some((one.address.as_str(), one.waypoint.as_deref()?))).collect();
    for address in walk.addresses() {
        let Ok(destination) = address.parse::<SocketAddr>() else { continue };
        let waypoint = by_waypoint.get(address.as_str()).filter(|_| asked.passes);
        let goes_on = match waypoint.and_then(|waypoint| waypoint.parse::<SocketAddr>().ok()) {
            Some(waypoint) => match (asked.others.at)(waypoint.ip()) {
                Some(place) => pass(answer, &place, destination, asked),
                None => {
                    told_once(answer, format!("no proxy that is connected here is at {waypoint}, its waypoint"));
                    true
                }
            },
            None => arrive(answer, destination, asked),
        };
        if !goes_on {
            return false;
        }
    }
    true
}

/// Says something unless it was said.
fn told_once(answer: &mut WhyNot, step: String) {
    if !answer.steps.contains(&step) {
        answer.steps.push(step);
    }
}

/// Has a request arrive at an endpoint: the TLS and the policies of its proxy. False where it fails.
pub(super) fn arrive(answer: &mut WhyNot, destination: SocketAddr, asked: &Asked<'_>) -> bool {
    let Some(place) = (asked.others.at)(destination.ip()) else {
        let is_new =
            |steps: &[String]| !steps.iter().any(|step| step.starts_with(NO_PROXY) || step.starts_with(ZTUNNEL));
        if is_new(&answer.steps) {
            let is_ambient = is_ambient(asked.context, destination.ip());
            if is_ambient {
                let unknown = "whether ztunnel lets it in: policies without targetRefs are enforced there".to_owned();
                answer.unknown.push(unknown);
            }
            answer.steps.push(format!("{} {destination}", if is_ambient { ZTUNNEL } else { NO_PROXY }));
        }
        return true;
    };
    let walkable = Walkable::read(&place.had, &mut ReadRoutes::default());
    if let Some(reason) = refused_at(&place, walkable.resources(), destination, asked, answer) {
        answer.reason = Some(reason);
        return false;
    }
    answer.steps.push(format!("{} at {destination} lets it in", place.proxy.name));
    true
}

/// Whether a pod of ambient mode is at an address.
fn is_ambient(context: &PushContext, ip: IpAddr) -> bool {
    let mut pods = context.objects.pods.iter();
    pods.any(|pod| pod.spec.pod_ips.contains(&ip) && navarch_ambient::is_redirected(&pod.meta))
}

/// Why the proxy of an endpoint does not let a request in.
fn refused_at(
    place: &Place,
    resources: &Resources,
    destination: SocketAddr,
    asked: &Asked<'_>,
    answer: &mut WhyNot,
) -> Option<String> {
    let http = &asked.connection.http;
    let with =
        |tls: Option<Tls>| Connection { entry: Entry::Inbound, destination, source: None, tls, http: http.clone() };
    let mutual = Tls { sni: String::new(), alpn: vec!["istio".to_owned(), "istio-peer-exchange".to_owned()] };
    let mutual = with(Some(mutual));
    let plain = with(None);
    let (chain, identity) = match (resources.chain(&mutual), resources.chain(&plain)) {
        (Some(chain), _) => (chain, Some(asked.identity)),
        (None, Some(chain)) => (chain, None),
        (None, None) => return Some(format!("{} takes no connection to {destination}", place.proxy.name)),
    };
    let (source, http) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), http.as_ref());
    let visitor = Visitor { identity, source, destination: (destination.ip(), destination.port()), http };
    judged(&place.proxy.name, chain, &visitor, answer)
}

/// Why the policies of a chain do not let somebody in.
pub(super) fn judged(name: &str, chain: &FilterChain, visitor: &Visitor<'_>, answer: &mut WhyNot) -> Option<String> {
    let who = visitor.identity.unwrap_or("nobody in particular (plain text)");
    match verdict(chain, visitor) {
        Verdict::Passes => None,
        Verdict::Denied(rule) => {
            answer.advice = policy_of(&rule).map(|policy| format!("it is {policy}"));
            Some(format!("{name} denies it to {who}: 403 by {rule}"))
        }
        Verdict::NotAllowed(rules) => {
            let policies: Vec<String> = rules.iter().filter_map(|rule| policy_of(rule)).collect();
            let named = if policies.is_empty() {
                "an AuthorizationPolicy that allows nothing".to_owned()
            } else {
                policies.join(", ")
            };
            answer.advice = Some(format!("policies that allow: {named}; none of their rules fits"));
            Some(format!("{name} allows it to others, not to {who}: 403"))
        }
        Verdict::Unknown => {
            answer.unknown.push(format!("whether a policy of {name} allows it depends on a token or on metadata"));
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

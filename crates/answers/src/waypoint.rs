//! The step of a request at a waypoint.

use std::net::SocketAddr;

use navarch_proto::envoy::config::listener::v3::FilterChain;
use navarch_push::proxy::ProxyKind;
use navarch_registry::model::Service;
use navarch_walk::policy::Peer;
use navarch_walk::{Connection, Entry, HttpRequest};

use super::evaluation::{Evaluation, Visit, evaluate, forwarded_request};
use super::inbound::{offers_http, trace_endpoints};
use super::why::WhyNot;
use super::why_not::{
    Others, ProxySnapshot, TracedRequest, identity, outbound_reason, own_response,
};
use super::wording::{forwarding, service_of};

/// A connection that comes out of a tunnel.
fn tunnelled(destination: SocketAddr, http: Option<HttpRequest>) -> Connection {
    Connection {
        entry: Entry::Tunnel,
        destination,
        source: None,
        tls: None,
        http,
    }
}

/// The waypoint that serves a service at an address, according to its listeners; the first by name.
pub(super) fn waypoint_of(
    others: &Others<'_>,
    service: &Service,
    connection: &Connection,
) -> Option<ProxySnapshot> {
    let serves = |place: &ProxySnapshot| {
        let walkable = others.walkable(&place.had);
        let chain = walkable
            .resources()
            .chain(&tunnelled(connection.destination, connection.http.clone()));
        chain
            .and_then(|chain| service_of(&chain.name))
            .is_some_and(|(_, _, host)| host == service.key.hostname.as_str())
    };
    let mut all = (others.waypoints)();
    all.retain(|place| place.proxy.kind == ProxyKind::Waypoint);
    all.sort_by(|one, other| one.proxy.name.cmp(&other.proxy.name));
    all.into_iter().find(serves)
}

/// Follows a request through a waypoint to its endpoints. Returns false if it fails, with the
/// reason in `answer`.
pub(super) fn trace_waypoint(
    answer: &mut WhyNot,
    waypoint: &ProxySnapshot,
    destination: SocketAddr,
    traced: &TracedRequest<'_>,
) -> bool {
    let name = &waypoint.proxy.name;
    let connection = tunnelled(destination, traced.connection.http.clone());
    let mut walkable = traced.others.walkable(&waypoint.had);
    let Some(chain) = walkable.resources().chain(&connection) else {
        answer.reason = Some(format!(
            "waypoint {name} has no filter chain for {destination}"
        ));
        answer.advice = Some(
            "check the label istio.io/waypoint-for of its Gateway, and whether the service uses the waypoint"
                .to_owned(),
        );
        return false;
    };

    answer.steps.push(format!(
        "waypoint {name} accepts the connection for {}",
        served(chain)
    ));

    // The client address that a waypoint sees is not known here.
    let visit = Visit {
        peer: Peer::Proven(traced.identity),
        source: None,
        remote: None,
        destination,
        http: connection.http.as_ref(),
    };

    let judgement = evaluate(name, chain, &visit, answer);
    if judgement == Evaluation::Denied {
        return false;
    }

    let walk = walkable.walk(&connection);
    if let Some(route) = walk.route.as_ref().filter(|route| !route.is_empty()) {
        answer.steps.push(format!("its route {route:?} matches"));
    }

    answer.steps.push(forwarding(
        &walk,
        traced.called,
        waypoint.proxy.namespace.as_str(),
    ));

    if let Some((reason, advice)) = outbound_reason(&walk, traced.context) {
        answer.reason = Some(reason);
        answer.advice = advice;
        answer.response = own_response(&walk);
        return false;
    }

    // A request passes at most one waypoint; afterwards the waypoint is the client.
    let identity = identity(&waypoint.proxy, traced.context);
    let http = connection
        .http
        .as_ref()
        .map(|request| forwarded_request(request, judgement));
    let connection = Connection { http, ..connection };
    let source = waypoint.proxy.ips.first().copied();

    let behind = TracedRequest {
        connection: &connection,
        identity: &identity,
        source,
        remote: None,
        offers_http: offers_http(walkable.resources(), &connection),
        may_use_waypoint: false,
        ..*traced
    };

    trace_endpoints(answer, &walk, &behind)
}

/// The service of a waypoint's filter chain, as text.
fn served(chain: &FilterChain) -> String {
    match service_of(&chain.name) {
        Some((port, _, host)) => format!("{host}:{port}"),
        None => "the workload itself".to_owned(),
    }
}

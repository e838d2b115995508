//! Requests of pods without a sidecar: in ambient mode, or outside of the mesh.

use std::net::{IpAddr, SocketAddr};

use navarch_api::object::NamespacedName;
use navarch_push::context::PushContext;
use navarch_registry::model::{Health, Resolution, Service};
use navarch_walk::Transport;

use super::{TracedRequest, unready};
use crate::inbound::{FirstFailure, accepts_hbone, trace_endpoint};
use crate::waypoint::{trace_waypoint, waypoint_of};
use crate::why::WhyNot;

/// The label of services and namespaces with the name of their waypoint.
const USE_WAYPOINT: &str = "istio.io/use-waypoint";

/// Follows a request of an ambient pod: to the waypoint of the service, or to its endpoints.
pub(super) fn from_ztunnel(
    answer: &mut WhyNot,
    found: Option<&Service>,
    request: &TracedRequest<'_>,
) {
    answer
        .steps
        .push("ztunnel on its node accepts the connection".to_owned());
    let Some(service) = found else {
        answer
            .steps
            .push("it is forwarded to its original destination in plain text".to_owned());
        to_original(answer, request);
        return;
    };

    if let Some(waypoint) = waypoint_of(&request.others, service, request.connection) {
        trace_waypoint(answer, &waypoint, request.connection.destination, request);
        return;
    }

    if let Some(name) = use_waypoint(service, request.context) {
        answer.unknown.push(format!(
            "{} uses waypoint {name}, but no waypoint that serves it is connected to this replica",
            service.origin
        ));
    }

    // ztunnel sends plain text to endpoints that do not accept HBONE.
    let transport = |destination: SocketAddr| {
        if accepts_hbone(request.context, destination.ip()) {
            Transport::Tunnel
        } else {
            Transport::Plain
        }
    };
    to_endpoints(answer, service, transport, request);
}

/// Follows a request of a pod outside of the mesh to the endpoints of the service.
pub(super) fn from_outside(
    answer: &mut WhyNot,
    found: Option<&Service>,
    request: &TracedRequest<'_>,
) {
    answer
        .steps
        .push("its pod has no proxy: it is sent in plain text".to_owned());
    match found {
        Some(service) => to_endpoints(answer, service, |_| Transport::Plain, request),
        None => to_original(answer, request),
    }
}

/// Notes that a request goes to the address that the application connected to.
fn to_original(answer: &mut WhyNot, request: &TracedRequest<'_>) {
    let address = request.connection.destination.to_string();
    answer.destinations.insert(address, 1000);
}

/// Follows a request to all ready endpoints of a service.
fn to_endpoints(
    answer: &mut WhyNot,
    service: &Service,
    transport: impl Fn(SocketAddr) -> Transport,
    request: &TracedRequest<'_>,
) {
    let ready = ready_endpoints(service, request);
    let has_one_destination = matches!(
        service.resolution,
        Resolution::Passthrough | Resolution::DynamicDns
    );
    if has_one_destination && !(service.is_headless() && ready.is_empty()) {
        let destination = request.connection.destination;
        answer.steps.push(format!(
            "it is forwarded to {destination}, the address that the application has chosen"
        ));
        to_original(answer, request);
        if !trace_endpoint(answer, destination, transport(destination), request) {
            answer.refused_at.insert(destination.to_string());
        }
        return;
    }

    if ready.is_empty() {
        answer.reason = Some(format!("{} has no endpoints", service.origin));
        answer.advice = Some(unready(request.context, service.key.hostname.as_str()));
        return;
    }

    answer.steps.push(format!(
        "it is forwarded to {} endpoints of {}",
        ready.len(),
        service.origin
    ));
    let share = u64::try_from(ready.len())
        .ok()
        .and_then(|count| 1000_u64.checked_div(count))
        .unwrap_or_default();
    for address in &ready {
        answer.destinations.insert(address.clone(), share);
    }

    // Endpoints of ServiceEntries may be names, whose addresses are not known here.
    let destinations = ready
        .iter()
        .filter_map(|address| address.parse::<SocketAddr>().ok());
    let mut failure = FirstFailure::default();
    for destination in destinations {
        if !trace_endpoint(answer, destination, transport(destination), request) {
            failure.note(answer, destination.to_string());
            if !request.to_all {
                break;
            }
        }
    }
    failure.end(answer);
}

/// Address and port of the ready endpoints of the requested port of a service.
fn ready_endpoints(service: &Service, request: &TracedRequest<'_>) -> Vec<String> {
    let known = request.context.directory.endpoints.get(&service.key);
    let port = service
        .port(request.called.port)
        .map(|port| port.name.clone());
    let ready = known
        .into_iter()
        .flat_map(|known| &known.endpoints)
        .filter(|one| {
            Some(&one.port_name) == port.as_ref()
                && !matches!(one.health, Health::Unhealthy | Health::Terminating)
        });

    ready
        .filter_map(|one| {
            let address = one.addresses.first()?;
            Some(match address.parse::<IpAddr>() {
                Ok(ip) => SocketAddr::new(ip, one.port).to_string(),
                Err(_) => format!("{address}:{}", one.port),
            })
        })
        .collect()
}

/// The waypoint that a service, or its namespace, references.
fn use_waypoint(service: &Service, context: &PushContext) -> Option<String> {
    let objects = &context.objects;
    let key = NamespacedName::new("", service.key.namespace.as_str());
    let object = objects.any(&service.origin);
    let is_of_mesh_gateway = object
        .as_ref()
        .is_some_and(|object| navarch_ambient::is_of_mesh_gateway(&object.meta().labels));
    if is_of_mesh_gateway {
        return None;
    }

    let own = object.as_ref().and_then(|object| {
        object
            .meta()
            .labels
            .get(USE_WAYPOINT)
            .map(|name| name.to_string())
    });

    let of_namespace = || {
        Some(
            objects
                .namespaces
                .get(&key)?
                .meta
                .labels
                .get(USE_WAYPOINT)?
                .to_string(),
        )
    };

    own.or_else(of_namespace)
        .filter(|name| !matches!(name.as_str(), "" | "none"))
}

//! Conditions about the enforcement of an AuthorizationPolicy by ztunnel or by waypoints.

use navarch_api::gateway_api::GatewayClass;
use navarch_api::istio::{AuthorizationPolicy, PolicyTargetReference, ServiceEntry};
use navarch_api::kubernetes::Service;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::view::View;

use super::{Condition, Conditions};
use crate::mesh::MeshFacts;
use crate::policies::{Acceptance, acceptance, targets};
use crate::service_facts::visibility;
use crate::waypoint::{self, Before, WaypointOf};

/// Whether ztunnel enforces it.
const ZTUNNEL: &str = "ZtunnelAccepted";
/// Whether waypoints enforce it.
const WAYPOINT: &str = "WaypointAccepted";
/// The controller of the classes of waypoints.
const MESH_CONTROLLER: &str = "istio.io/mesh-controller";
/// The reason of a condition that is true.
const ACCEPTED: &str = "Accepted";
/// The reason if a target does not exist.
const NOT_FOUND: &str = "TargetNotFound";
/// The reason if a target is invalid.
const INVALID: &str = "Invalid";

pub(super) fn of_policy(name: &NamespacedName, view: &View<'_>) -> Option<Conditions> {
    let object = view.object::<AuthorizationPolicy>(name)?;
    let generation = Some(object.meta.generation);
    let mesh = view.get(&MeshFacts);
    let by_ztunnel = acceptance(object, &mesh).map(|acceptance| match acceptance {
        Acceptance::Whole => Condition::new(true, ACCEPTED, "attached to ztunnel"),
        Acceptance::InPart(message) => Condition::new(true, "UnsupportedValue", message),
        Acceptance::Rejected(message) => Condition::new(false, "UnsupportedValue", message),
    });

    let targets = targets(&object.spec);
    let all: Vec<(&PolicyTargetReference, Condition)> = targets
        .iter()
        .map(|target| {
            (
                target,
                of_target(target, &name.namespace, &mesh.root_namespace, view),
            )
        })
        .collect();

    let by_waypoint = (!all.is_empty()).then(|| of_all(all, &name.namespace));
    let of_generation = |condition: Option<Condition>| {
        condition.map(|condition| Condition {
            generation,
            ..condition
        })
    };

    Some(vec![
        (ZTUNNEL, of_generation(by_ztunnel)),
        (WAYPOINT, of_generation(by_waypoint)),
    ])
}

fn of_target(
    target: &PolicyTargetReference,
    own: &Namespace,
    root: &Namespace,
    view: &View<'_>,
) -> Condition {
    let name = NamespacedName::of(namespace_of(target, own), target.name.as_str().into());

    match target.kind.as_str() {
        "GatewayClass" if name.namespace != *root => Condition::new(
            false,
            INVALID,
            format!(
                "AuthorizationPolicy must be in the root namespace `{root}` when referencing a GatewayClass"
            ),
        ),
        "GatewayClass" => match view.object::<GatewayClass>(&NamespacedName::new("", &target.name))
        {
            None => Condition::new(
                false,
                NOT_FOUND,
                format!("GatewayClass {} was not found", target.name),
            ),
            Some(class) if class.spec.controller_name != MESH_CONTROLLER => Condition::new(
                false,
                INVALID,
                format!("GatewayClass must use controller name `{MESH_CONTROLLER}` for waypoints"),
            ),
            Some(_) => bound_to(&target.name),
        },
        "Gateway" => match &*view.get(&WaypointOf(ClusterRef::Config, name.clone())) {
            Some(waypoint) => bound_to(&waypoint.name),
            None => Condition::new(
                false,
                NOT_FOUND,
                format!("Gateway {name} was not found, or has no address yet"),
            ),
        },
        "Service" => of_service(
            "Service",
            &name,
            view.object::<Service>(&name).map(|service| {
                waypoint::before_service(&ClusterRef::Config, &service.meta, None, view)
            }),
        ),
        "ServiceEntry" => {
            let visibility = visibility(&name.namespace, view);
            let entry = view.object::<ServiceEntry>(&name);
            let before = entry.map(|entry| {
                waypoint::before_service(&ClusterRef::Config, &entry.meta, Some(visibility), view)
            });
            of_service("ServiceEntry", &name, before)
        }
        kind => Condition::new(
            false,
            "unknown",
            format!("waypoints do not enforce policies for kind {kind}"),
        ),
    }
}

/// The condition of a service as a target, with its waypoint if it has one.
fn of_service(kind: &str, name: &NamespacedName, before: Option<Before>) -> Condition {
    match before {
        None => Condition::new(false, NOT_FOUND, format!("{kind} {name} was not found")),
        Some(Ok(Some(waypoint))) => bound_to(&waypoint.name),
        Some(Ok(None) | Err(_)) => Condition::new(
            false,
            "AncestorNotBound",
            format!("{kind} {name} is not bound to a waypoint"),
        ),
    }
}

/// The condition for a target that is, or has, a waypoint.
fn bound_to(waypoint: &dyn std::fmt::Display) -> Condition {
    Condition::new(true, ACCEPTED, format!("bound to {waypoint}"))
}

/// The namespace of a target; defaults to that of the policy.
fn namespace_of(target: &PolicyTargetReference, own: &Namespace) -> Namespace {
    if target.namespace.is_empty() {
        own.clone()
    } else {
        Namespace::new(&target.namespace)
    }
}

/// Combines the conditions of all targets: true if a waypoint enforces any.
fn of_all(mut all: Vec<(&PolicyTargetReference, Condition)>, own: &Namespace) -> Condition {
    if all.len() == 1
        && let Some((_, only)) = all.pop()
    {
        return only;
    }
    let describe = |(target, _): &(&PolicyTargetReference, Condition)| {
        let group = if target.group.is_empty() {
            "core"
        } else {
            &target.group
        };
        format!(
            "{}.{group}:{}/{}",
            target.kind,
            namespace_of(target, own),
            target.name
        )
    };

    let unbound: Vec<String> = all
        .iter()
        .filter(|(_, condition)| !condition.is_true)
        .map(describe)
        .collect();
    let is_any_bound = unbound.len() < all.len();
    let reason = match (is_any_bound, unbound.is_empty()) {
        (true, true) => ACCEPTED,
        (true, false) => "PartiallyInvalid",
        (false, _) => INVALID,
    };

    let message = if unbound.is_empty() {
        String::new()
    } else {
        format!("Invalid targetRefs: {}", unbound.join(", "))
    };

    Condition::new(is_any_bound, reason, message)
}

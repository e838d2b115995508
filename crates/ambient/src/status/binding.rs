//! Conditions about the waypoint of a Service, a ServiceEntry or a WorkloadEntry.

use std::fmt::Write;

use navarch_api::istio::{ServiceEntry, WorkloadEntry};
use navarch_api::kubernetes::{Service, ServiceType};
use navarch_api::mesh::Visibility;
use navarch_api::names::Hostname;
use navarch_api::object::{NamespacedName, ObjectMeta};
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

use super::{Condition, Conditions};
use crate::service_facts::{Origin, origin, visibility};
use crate::services::{ingress_use_waypoint, namespace};
use crate::waypoint::{self, AttachmentError, Before};
use crate::workloads::labels_of_entry;

const BOUND: &str = "istio.io/WaypointBound";
/// It has no effect without a waypoint.
const MISSING: &str = "istio.io/WaypointMissing";
/// The visibility of a ServiceEntry.
const VISIBILITY: &str = "istio.io/VisibilityApplied";

pub(super) fn of_service(name: &NamespacedName, view: &View<'_>) -> Option<Conditions> {
    let object = view.object::<Service>(name)?;
    let is_alias = matches!(object.spec.service_type, ServiceType::ExternalName(_));
    let before = if is_alias {
        Ok(None)
    } else {
        waypoint::before_service(&ClusterRef::Config, &object.meta, None, view)
    };
    Some(vec![(BOUND, of_both(before, &object.meta, view))])
}

/// The conditions of a ServiceEntry; all are removed if other objects own all of its hosts.
pub(super) fn of_service_entry(name: &NamespacedName, view: &View<'_>) -> Option<Conditions> {
    let object = view.object::<ServiceEntry>(name)?;
    let meta = &object.meta;
    let spec = &object.spec;
    let own = Origin::ServiceEntry(name.clone());
    let is_own = |hostname: &&Hostname| {
        let key = ServiceKey {
            namespace: meta.key.namespace.clone(),
            hostname: (*hostname).clone(),
        };
        origin(&key, view).as_ref() == Some(&own)
    };

    let hosts: Vec<Hostname> = spec.hosts.iter().map(Hostname::new).collect();
    let hosts: Vec<&Hostname> = hosts.iter().filter(is_own).collect();
    if hosts.is_empty() {
        return Some(vec![(BOUND, None), (MISSING, None), (VISIBILITY, None)]);
    }

    let visibility = visibility(&meta.key.namespace, view);
    let before = waypoint::before_service(&ClusterRef::Config, meta, Some(visibility), view);
    let is_bound = matches!(before, Ok(Some(_)));
    let races = view.services_of(&ServiceKey {
        namespace: meta.key.namespace.clone(),
        hostname: hosts.first().copied()?.clone(),
    });
    let races = races
        .iter()
        .any(|service| service.origin.name == *name && service.races_connections);

    let missing = if is_bound {
        None
    } else if races {
        let message = "ServiceEntry has a non-default connect strategy but no waypoint bound. A waypoint is required for \
                       connect strategies to take effect for ambient clients.";
        Some(Condition::new(
            true,
            "NoWaypointForRacingConnectStrategy",
            message,
        ))
    } else {
        hosts.iter().any(|host| host.is_wildcard()).then(|| {
            let message = "ServiceEntry will not apply until it is bound to a valid waypoint.";
            Condition::new(true, "NoWaypointForWildcardService", message)
        })
    };

    let seen = view.mesh().config.service_entry_visibility.is_some().then(|| match visibility {
        Visibility::Namespace => Condition::new(
            true,
            "Namespace",
            "ServiceEntry is visible only within its own namespace (NAMESPACE), per mesh serviceEntryVisibility.",
        ),
        Visibility::Unspecified | Visibility::Public | Visibility::None => {
            Condition::new(true, "Public", "ServiceEntry is visible to the entire mesh (PUBLIC).")
        }
    });

    Some(vec![
        (BOUND, of_both(before, meta, view)),
        (MISSING, missing),
        (VISIBILITY, seen),
    ])
}

pub(super) fn of_workload_entry(name: &NamespacedName, view: &View<'_>) -> Option<Conditions> {
    let object = view.object::<WorkloadEntry>(name)?;
    let bound =
        match waypoint::before_entry(&labels_of_entry(object), &object.meta.key.namespace, view) {
            Ok(waypoint) => waypoint.map(|waypoint| attached(&waypoint.name)),
            Err(error) => Some(not_attached(&error)),
        };
    Some(vec![(BOUND, bound)])
}

/// The condition for a service with a waypoint and a canary.
fn of_both(before: Before, meta: &ObjectMeta, view: &View<'_>) -> Option<Condition> {
    // Without a waypoint, the one that is to be prepared for it may be impossible.
    let before = match before {
        Ok(None) => waypoint::prepared_for(&ClusterRef::Config, meta, view).map(|_| None),
        Ok(Some(_)) | Err(_) => before,
    };
    let waypoint = match before {
        Ok(waypoint) => waypoint?,
        Err(error) => return Some(not_attached(&error)),
    };
    let mut condition = attached(&waypoint.name);
    let message = &mut condition.message;

    match ingress_use_waypoint(meta, namespace(&meta.key.namespace, view)) {
        Some(true) => message.push_str(". Ingress traffic will traverse the waypoint"),
        Some(false) => message.push_str(
            ". Ingress traffic is not using the waypoint, set the istio.io/ingress-use-waypoint label to true if desired.",
        ),
        None => {}
    }

    if let Err(error) = waypoint::weighted(&waypoint, meta, view) {
        // Connections still use the primary waypoint.
        _ = write!(message, ". Canary waypoint not attached: {error}");
    }

    Some(condition)
}

/// The condition for a bound object.
fn attached(waypoint: &NamespacedName) -> Condition {
    Condition::new(
        true,
        "WaypointAccepted",
        format!("Successfully attached to waypoint {waypoint}"),
    )
}

/// The condition for a waypoint that is referenced but not used.
fn not_attached(error: &AttachmentError) -> Condition {
    Condition::new(false, error.reason(), error.to_string())
}

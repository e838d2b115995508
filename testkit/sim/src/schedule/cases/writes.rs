//! What the control plane writes, while that fails or another leader begins.

use std::time::Duration;

use super::{at, create, put, stop};
use crate::api_server::{FailedWrite, Fault};
use crate::link::Condition;
use crate::schedule::{Action, Event, Schedule};
use crate::world::{Edit, ObjectKey, Slot};

/// Writes of a resource are rejected for some seconds.
fn writes_fail(resource: &str, lasts: u64) -> Action {
    Action::Api(Fault::FailWrites {
        resource: Some(resource.to_owned()),
        how: FailedWrite::Rejected(503),
        lasts: Duration::from_secs(lasts),
    })
}

/// The root cannot be stored when the first replica starts.
pub(super) fn ca_while_writes_fail() -> Schedule {
    Schedule {
        replicas: 1,
        events: vec![
            at(0, writes_fail("secrets", 20)),
            at(60, create(Slot::Namespace, 0)),
        ],
    }
}

/// The status of an Ingress cannot be written, and nothing changes afterwards.
pub(super) fn ingress_while_writes_fail() -> Schedule {
    let ingress = put(Slot::Ingress, 0, |object| {
        object.to_string().contains(r#"ingress.class":"istio""#)
    });
    while_writes_fail("ingresses", vec![at(65, ingress)])
}

/// The roots of a new namespace cannot be written, and nothing changes afterwards.
pub(super) fn roots_while_writes_fail() -> Schedule {
    while_writes_fail("configmaps", vec![at(62, create(Slot::Namespace, 0))])
}

/// The status of a route cannot be written, and nothing changes afterwards.
pub(super) fn status_while_writes_fail() -> Schedule {
    let route = put(Slot::HttpRoute, 0, |object| {
        object.to_string().contains(r#""name":"gateway-0""#)
    });
    let events = vec![at(20, create(Slot::KubernetesGateway, 0)), at(62, route)];
    while_writes_fail("httproutes", events)
}

/// Some events, of which those after a minute are in a time in which writes of a resource fail. It is
/// too short for two attempts to renew a lock, as a new leader writes everything.
fn while_writes_fail(resource: &str, events: Vec<Event>) -> Schedule {
    let mut all = vec![
        at(60, writes_fail(resource, 6)),
        // Faults end with the last event.
        at(75, create(Slot::Endpoints, 0)),
    ];
    all.extend(events);
    Schedule::of(1, all)
}

/// A ServiceEntry gets addresses from one leader, and another one from the next leader.
pub(super) fn addresses_of_two_leaders() -> Schedule {
    let entry = |number| {
        let slot = Slot::ServiceEntry;
        Action::Edit(Edit::Put {
            object: ObjectKey { slot, number },
            content: number,
        })
    };
    Schedule {
        replicas: 1,
        events: vec![
            at(20, entry(0)),
            at(40, stop(0, 2)),
            at(80, entry(1)),
            at(100, create(Slot::Namespace, 0)),
        ],
    }
}

/// The leader deletes the report of a crashed replica over a connection that has become half-open,
/// and loses its lock meanwhile. It leads since the others have been restarted.
pub(super) fn report_deleted_in_silence() -> Schedule {
    let crash = Action::Crash {
        replica: 2,
        connections: Condition::Cut,
        lasts: Duration::from_secs(600),
    };
    let silence = |replica, seconds| Action::Link {
        replica,
        condition: Condition::Silent,
        lasts: Duration::from_secs(seconds),
    };

    Schedule {
        replicas: 3,
        events: vec![
            // The first one takes their locks before they are back.
            at(2, stop(1, 10)),
            at(2, stop(2, 10)),
            at(30, crash),
            // A report is deleted after a minute, in rounds of 15 s.
            at(78, silence(0, 90)),
        ],
    }
}

//! Rollouts while a replica starts.

use std::time::Duration;

use navarch_push::rollout::slots::MAX_OF_NAMESPACE;

use super::{ANCHOR, Version, at, at_millis, create, restart_of_second, stop, virtual_service};
use crate::api_server::Fault;
use crate::schedule::{Action, Schedule};
use crate::world::{NAMESPACES, Slot};

/// The ConfigMaps with rollouts cannot be listed for some milliseconds. The mesh config is read all
/// the same.
fn lists_of_rollouts_fail(millis: u64) -> Action {
    Action::Api(Fault::FailLists {
        resource: Some("configmaps".to_owned()),
        code: 503,
        lasts: Duration::from_millis(millis),
    })
}

/// A rollout begins while a replica starts: when it has read the stored rollouts, and not the
/// objects. When it has read these, the stored rollouts cannot be read for some seconds.
pub(super) fn begins_at_start() -> Schedule {
    let failing = Fault::Fail {
        resource: Some("virtualservices".to_owned()),
        code: 503,
        lasts: Duration::from_secs(5),
    };
    let mut events = restart_of_second(30, 10);
    events.extend([
        at(20, virtual_service(0, ANCHOR, Version::Plain)),
        at(39, Action::Api(failing)),
        // It starts after 40 s, and reads them each second.
        at_millis(40_200, virtual_service(0, ANCHOR, Version::RolledOut)),
        at_millis(40_600, lists_of_rollouts_fail(10_000)),
        at(100, create(Slot::Namespace, 0)),
    ]);
    Schedule::of(2, events)
}

/// A replica starts while a change waits for its rollout, as its namespace has begun many.
pub(super) fn waits_at_start() -> Schedule {
    let mut events = restart_of_second(30, 20);
    events.push(at(20, virtual_service(0, ANCHOR, Version::Plain)));
    for index in 1..=u64::try_from(MAX_OF_NAMESPACE).unwrap_or(u64::MAX) {
        let number = index * NAMESPACES.len() as u64;
        events.push(at(
            36,
            virtual_service(number, "ext.example.com", Version::RolledOut),
        ));
    }
    events.extend([
        at(37, virtual_service(0, ANCHOR, Version::RolledOut)),
        at(100, create(Slot::Namespace, 0)),
    ]);
    Schedule::of(2, events)
}

/// A replica starts during a rollout, and cannot read its stage at once.
pub(super) fn restored_late() -> Schedule {
    Schedule {
        replicas: 1,
        events: vec![
            at(20, virtual_service(0, ANCHOR, Version::Plain)),
            at(30, virtual_service(0, ANCHOR, Version::RolledOut)),
            // The second stage, which half of the proxies are in.
            at(64, stop(0, 1)),
            at(64, lists_of_rollouts_fail(8_000)),
            at(100, create(Slot::Namespace, 0)),
        ],
    }
}

//! Rotations of the root.

use std::time::Duration;

use super::{PROXIES, at, create};
use crate::proxy::Command;
use crate::schedule::{Action, Schedule};
use crate::world::Slot;

/// The root is rotated, until the former one is gone.
pub(super) fn rotated() -> Schedule {
    Schedule {
        replicas: 2,
        events: vec![
            at(60, Action::Rotate { replica: 1 }),
            at(1200, create(Slot::Namespace, 0)),
        ],
    }
}

/// The next root signs while the connections of some proxies are half-open: for some seconds they do
/// not renew their certificates of the former one, which others must trust.
pub(super) fn rotated_while_away() -> Schedule {
    let mut events = vec![
        // The next one signs three minutes later.
        at(52, Action::Rotate { replica: 1 }),
        at(1200, create(Slot::Namespace, 0)),
    ];
    for proxy in (0..PROXIES).step_by(2) {
        let command = Command::Vanish(Duration::from_secs(60));
        events.push(at(230, Action::Proxy { proxy, command }));
    }
    Schedule::of(2, events)
}

/// The root is rotated while proxies take minutes for each response: the next one signs when they
/// have it.
pub(super) fn waits_for_proxies() -> Schedule {
    let mut events = vec![
        at(60, Action::Rotate { replica: 1 }),
        at(1200, create(Slot::Namespace, 0)),
    ];
    for proxy in 0..PROXIES {
        let command = Command::SlowDown(Duration::from_secs(400));
        events.push(at(55, Action::Proxy { proxy, command }));
    }
    Schedule::of(2, events)
}

//! Objects that proxies reject.

use super::{ANCHOR, Version, at, create, stop, virtual_service};
use crate::proxy::Command;
use crate::schedule::{Action, Schedule};
use crate::world::Slot;

/// Proxies of one replica reject an object, and others connect to a second one while it is
/// quarantined. That one must know who is connected to the first, or it takes them for gone, and the
/// object goes back and forth.
pub(super) fn by_one_replica() -> Schedule {
    /// In the seed of the cases they are of another namespace than the object, and connect to the
    /// second replica in the last round.
    const OTHERS: [usize; 2] = [0, 1];
    let mut events = vec![
        at(5, stop(1, 60)),
        at(20, virtual_service(0, ANCHOR, Version::Plain)),
        at(40, virtual_service(0, ANCHOR, Version::Rejected)),
        at(100, create(Slot::Namespace, 0)),
    ];
    for seconds in 71..74 {
        for proxy in OTHERS {
            let command = Command::Reconnect;
            events.push(at(seconds, Action::Proxy { proxy, command }));
        }
    }
    Schedule::of(2, events)
}

/// Proxies of two replicas reject an object. One of these stores that it is quarantined, and the
/// other one follows.
pub(super) fn at_two_replicas() -> Schedule {
    Schedule {
        replicas: 2,
        events: vec![
            at(20, virtual_service(0, ANCHOR, Version::Plain)),
            at(40, virtual_service(0, ANCHOR, Version::Rejected)),
            at(100, create(Slot::Namespace, 0)),
        ],
    }
}

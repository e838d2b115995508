//! Schedules of faults that were found, with which each happens for certain: the schedule of a seed
//! is another whenever the generator changes.

use std::time::Duration;

use super::{Action, Event, Schedule};
use crate::api_server::Fault;
use crate::link::Condition;
use crate::world::{Edit, ObjectKey, Slot};

impl Schedule {
    /// The schedule of a fault that was found; `None` if there is none of this name.
    #[must_use]
    pub fn of_case(name: &str) -> Option<Self> {
        match name {
            "ingress-while-writes-fail" => Some(ingress_while_writes_fail()),
            "report-deleted-in-silence" => Some(report_deleted_in_silence()),
            _ => None,
        }
    }
}

fn at(seconds: u64, action: Action) -> Event {
    Event {
        at: Duration::from_secs(seconds),
        action,
    }
}

/// Creates the first object of a kind.
fn create(slot: Slot, content: u64) -> Action {
    Action::Edit(Edit::Put {
        object: ObjectKey { slot, number: 0 },
        content,
    })
}

/// The status of an Ingress cannot be written, and nothing changes afterwards.
fn ingress_while_writes_fail() -> Schedule {
    let failing = Fault::Fail {
        resource: Some("ingresses".to_owned()),
        code: 503,
        lasts: Duration::from_secs(20),
    };

    Schedule {
        replicas: 1,
        events: vec![
            at(60, Action::Api(failing)),
            at(65, create(Slot::Ingress, 3)),
            // Faults end with the last event.
            at(90, create(Slot::Namespace, 0)),
        ],
    }
}

/// The leader deletes the report of a crashed replica over a connection that has become half-open,
/// and loses its lock meanwhile.
fn report_deleted_in_silence() -> Schedule {
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
        events: vec![at(30, crash), at(85, silence(0, 90)), at(85, silence(1, 1))],
    }
}

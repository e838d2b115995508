//! Schedules of faults that were found, with which each happens for certain: the schedule of a seed
//! is another whenever the generator changes.

use std::time::Duration;

use navarch_api::rollout::ROLLOUT;

use super::{Action, Event, Schedule};
use crate::api_server::{FailedWrite, Fault};
use crate::link::Condition;
use crate::proxy::POISON;
use crate::random::Random;
use crate::world::{Edit, ObjectKey, Slot};

impl Schedule {
    /// The schedule of a fault that was found; `None` if there is none of this name.
    #[must_use]
    pub fn of_case(name: &str) -> Option<Self> {
        match name {
            "ingress-while-writes-fail" => Some(ingress_while_writes_fail()),
            "ca-while-writes-fail" => Some(ca_while_writes_fail()),
            "rollout-restored-late" => Some(rollout_restored_late()),
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

/// The root cannot be stored when the first replica starts.
fn ca_while_writes_fail() -> Schedule {
    let failing = Fault::FailWrites {
        resource: Some("secrets".to_owned()),
        how: FailedWrite::Rejected(503),
        lasts: Duration::from_secs(20),
    };

    Schedule {
        replicas: 1,
        events: vec![
            at(0, Action::Api(failing)),
            at(60, create(Slot::Namespace, 0)),
        ],
    }
}

/// A replica starts during a rollout, and cannot read its stage at once.
fn rollout_restored_late() -> Schedule {
    let object = ObjectKey {
        slot: Slot::VirtualService,
        number: 0,
    };
    let mut random = Random::new(1, "rollout restored late");
    let mut version = |is_rolled_out: bool| {
        let content = object.content_with(&mut random, |object| {
            let text = object.to_string();
            let is_for_all = text.contains(r#""exportTo":["*"]"#);
            is_for_all && !text.contains(POISON) && text.contains(ROLLOUT) == is_rolled_out
        });
        Action::Edit(Edit::Put { object, content })
    };

    let stop = Action::Stop {
        replica: 0,
        lasts: Duration::from_secs(1),
    };
    let failing = Fault::Fail {
        resource: Some("configmaps".to_owned()),
        code: 503,
        lasts: Duration::from_secs(4),
    };
    Schedule {
        replicas: 1,
        events: vec![
            at(20, version(false)),
            at(30, version(true)),
            // The second stage, which half of the proxies are in.
            at(64, stop),
            at(64, Action::Api(failing)),
            at(100, create(Slot::Namespace, 0)),
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

//! Schedules of faults that were found, with which each happens for certain: the schedule of a seed
//! is another whenever the generator changes.

use std::time::Duration;

use navarch_api::rollout::ROLLOUT;
use navarch_push::rollout::slots::MAX_OF_NAMESPACE;

use super::{Action, Event, Schedule};
use crate::api_server::{FailedWrite, Fault};
use crate::link::Condition;
use crate::proxy::{Command, POISON};
use crate::random::Random;
use crate::world::{ANCHOR, Edit, NAMESPACES, ObjectKey, Slot};

/// The proxies of each seed are at least as many.
const PROXIES: usize = 5;

/// Makes the schedule of a case.
type MakeSchedule = fn() -> Schedule;

/// All cases, by name.
const CASES: [(&str, MakeSchedule); 10] = [
    ("ca-while-writes-fail", ca_while_writes_fail),
    ("control-plane-away", control_plane_away),
    ("control-plane-away-for-hours", control_plane_away_for_hours),
    ("ingress-while-writes-fail", ingress_while_writes_fail),
    ("quarantine-by-one-replica", quarantine_by_one_replica),
    ("report-deleted-in-silence", report_deleted_in_silence),
    ("rollout-begins-at-start", rollout_begins_at_start),
    ("rollout-restored-late", rollout_restored_late),
    ("rollout-waits-at-start", rollout_waits_at_start),
    ("root-rotated", root_rotated),
];

impl Schedule {
    /// The names of the cases.
    pub fn cases() -> impl Iterator<Item = &'static str> {
        CASES.iter().map(|(name, _)| *name)
    }

    /// The schedule of a fault that was found; `None` if there is none of this name.
    #[must_use]
    pub fn of_case(name: &str) -> Option<Self> {
        let (_, schedule) = CASES.iter().find(|(case, _)| *case == name)?;
        Some(schedule())
    }
}

impl Schedule {
    /// The events in the order of their times.
    fn of(replicas: usize, mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.at);
        Self { replicas, events }
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

/// A version of a VirtualService for a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    /// All proxies accept it, and get it at once.
    Plain,
    /// All proxies accept it, and get it in stages.
    RolledOut,
    /// Proxies that reject at all reject it.
    Rejected,
}

fn virtual_service(number: u64, host: &str, version: Version) -> Action {
    let object = ObjectKey {
        slot: Slot::VirtualService,
        number,
    };
    let mut random = Random::new(number, host);
    let hosts = format!(r#""hosts":["{host}"]"#);
    let content = object.content_with(&mut random, |object| {
        let text = object.to_string();
        let is_for_all = text.contains(r#""exportTo":["*"]"#) && text.contains(&hosts);
        is_for_all
            && text.contains(POISON) == (version == Version::Rejected)
            && text.contains(ROLLOUT) == (version == Version::RolledOut)
    });
    Action::Edit(Edit::Put { object, content })
}

/// A restart of the second of two replicas, after which proxies connect to it.
fn restart_of_second(stops: u64, lasts: u64) -> Vec<Event> {
    let stop = Action::Stop {
        replica: 1,
        lasts: Duration::from_secs(lasts),
    };
    let mut events = vec![at(stops, stop)];
    let begin = stops + lasts + 6;
    for seconds in begin..begin + 4 {
        for proxy in 0..PROXIES {
            let command = Command::Reconnect;
            events.push(at(seconds, Action::Proxy { proxy, command }));
        }
    }
    events
}

/// No replica runs for longer than certificates live. Rotates the root afterwards: before, agents
/// would renew their certificates because of it.
fn control_plane_away() -> Schedule {
    let stop = Action::Stop {
        replica: 0,
        lasts: Duration::from_mins(30),
    };
    Schedule {
        replicas: 1,
        events: vec![
            at(90, stop),
            at(2100, Action::Rotate { replica: 0 }),
            at(2400, create(Slot::Namespace, 0)),
        ],
    }
}

/// No replica runs for three hours. Meanwhile an Envoy restarts, which holds nothing, and users change
/// objects; afterwards everything is as if all had been there.
fn control_plane_away_for_hours() -> Schedule {
    const HOUR: u64 = 3600;
    let stop = |replica| Action::Stop {
        replica,
        lasts: Duration::from_secs(3 * HOUR),
    };
    let restart = |proxy| Action::Proxy {
        proxy,
        command: Command::Restart,
    };
    let mut events = vec![at(90, stop(0)), at(90, stop(1))];
    for proxy in 0..PROXIES {
        let begin = u64::try_from(proxy).unwrap_or_default() * HOUR / 2;
        events.push(at(HOUR / 2 + begin, restart(proxy)));
    }
    events.extend([
        at(HOUR, virtual_service(0, ANCHOR, Version::Plain)),
        at(2 * HOUR, create(Slot::Endpoints, 0)),
        at(3 * HOUR + 300, create(Slot::Namespace, 0)),
    ]);
    Schedule::of(2, events)
}

/// Proxies of one replica reject an object, and some of them connect to another one while it is
/// quarantined. That one must know who is connected to the first, or it takes them for gone, and the
/// object goes back and forth.
fn quarantine_by_one_replica() -> Schedule {
    let mut events = restart_of_second(5, 60);
    events.extend([
        at(20, virtual_service(0, ANCHOR, Version::Plain)),
        at(40, virtual_service(0, ANCHOR, Version::Rejected)),
        at(100, create(Slot::Namespace, 0)),
    ]);
    Schedule::of(2, events)
}

/// A rollout begins while a replica starts: when it has read the stored rollouts, and not the
/// objects.
fn rollout_begins_at_start() -> Schedule {
    let failing = Fault::Fail {
        resource: Some("virtualservices".to_owned()),
        code: 503,
        lasts: Duration::from_secs(5),
    };
    let mut events = restart_of_second(30, 10);
    events.extend([
        at(20, virtual_service(0, ANCHOR, Version::Plain)),
        at(39, Action::Api(failing)),
        at(42, virtual_service(0, ANCHOR, Version::RolledOut)),
        at(100, create(Slot::Namespace, 0)),
    ]);
    Schedule::of(2, events)
}

/// A replica starts while a change waits for its rollout, as its namespace has begun many.
fn rollout_waits_at_start() -> Schedule {
    let mut events = restart_of_second(30, 10);
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
fn rollout_restored_late() -> Schedule {
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
            at(20, virtual_service(0, ANCHOR, Version::Plain)),
            at(30, virtual_service(0, ANCHOR, Version::RolledOut)),
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

/// The root is rotated, until the former one is gone.
fn root_rotated() -> Schedule {
    Schedule {
        replicas: 2,
        events: vec![
            at(60, Action::Rotate { replica: 1 }),
            at(1200, create(Slot::Namespace, 0)),
        ],
    }
}

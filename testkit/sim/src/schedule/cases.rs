//! Schedules of faults that were found, with which each happens for certain: the schedule of a seed
//! is another whenever the generator changes.

mod quarantine;
mod reads;
mod rollouts;
mod roots;
mod writes;

use std::time::Duration;

use navarch_api::rollout::ROLLOUT;
use serde_json::Value;

use super::{Action, Event, Schedule};
use crate::proxy::{Command, POISON};
use crate::random::Random;
use crate::world::{ANCHOR, Edit, ObjectKey, Slot};

/// The proxies of each seed are at least as many.
const PROXIES: usize = 5;

/// Makes the schedule of a case.
type MakeSchedule = fn() -> Schedule;

/// All cases, by name.
const CASES: [(&str, MakeSchedule); 20] = [
    ("addresses-of-two-leaders", writes::addresses_of_two_leaders),
    ("ca-while-writes-fail", writes::ca_while_writes_fail),
    ("control-plane-away", control_plane_away),
    ("control-plane-away-for-hours", control_plane_away_for_hours),
    ("deletion-while-away", reads::deletion_while_away),
    (
        "ingress-while-writes-fail",
        writes::ingress_while_writes_fail,
    ),
    ("labels-edited", reads::labels_edited),
    ("lists-break-off", reads::lists_break_off),
    ("private-rule", reads::private_rule),
    ("quarantine-at-two-replicas", quarantine::at_two_replicas),
    ("quarantine-by-one-replica", quarantine::by_one_replica),
    (
        "report-deleted-in-silence",
        writes::report_deleted_in_silence,
    ),
    ("rollout-begins-at-start", rollouts::begins_at_start),
    ("rollout-restored-late", rollouts::restored_late),
    ("rollout-waits-at-start", rollouts::waits_at_start),
    ("root-rotated", roots::rotated),
    ("root-rotated-while-away", roots::rotated_while_away),
    ("root-waits-for-proxies", roots::waits_for_proxies),
    ("roots-while-writes-fail", writes::roots_while_writes_fail),
    ("status-while-writes-fail", writes::status_while_writes_fail),
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
    at_millis(seconds * 1000, action)
}

fn at_millis(millis: u64, action: Action) -> Event {
    Event {
        at: Duration::from_millis(millis),
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

/// Creates or changes an object, with a content that is as wanted.
fn put(slot: Slot, number: u64, is_wanted: impl Fn(&Value) -> bool) -> Action {
    let object = ObjectKey { slot, number };
    let mut random = Random::new(number, "case");
    let content = object.content_with(&mut random, is_wanted);
    Action::Edit(Edit::Put { object, content })
}

/// A replica stops, and its successor starts after some seconds.
fn stop(replica: usize, lasts: u64) -> Action {
    Action::Stop {
        replica,
        lasts: Duration::from_secs(lasts),
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
    let mut events = vec![at(stops, stop(1, lasts))];
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
    Schedule {
        replicas: 1,
        events: vec![
            at(90, stop(0, 1800)),
            at(2100, Action::Rotate { replica: 0 }),
            at(2400, create(Slot::Namespace, 0)),
        ],
    }
}

/// No replica runs for three hours. Meanwhile an Envoy restarts, which holds nothing, and users change
/// objects; afterwards everything is as if all had been there.
fn control_plane_away_for_hours() -> Schedule {
    const HOUR: u64 = 3600;
    let restart = |proxy| Action::Proxy {
        proxy,
        command: Command::Restart,
    };
    let mut events = vec![at(90, stop(0, 3 * HOUR)), at(90, stop(1, 3 * HOUR))];
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

//! Events that belong together: what single random events do in the needed order only once in
//! hundreds of seeds.

use std::time::Duration;

use navarch_api::rollout::ROLLOUT;

use super::generator::{Users, failed_write};
use super::{Action, Event};
use crate::api_server::{FailedWrite, Fault};
use crate::proxy::{Command, POISON};
use crate::random::Random;
use crate::world::{ObjectKey, Slot};

/// The kinds that the control plane writes something for, and the resource that it writes.
const WRITTEN: [(Slot, &str); 7] = [
    (Slot::Namespace, "configmaps"),
    (Slot::ServiceEntry, "serviceentries"),
    (Slot::Ingress, "ingresses"),
    (Slot::HttpRoute, "httproutes"),
    (Slot::KubernetesGateway, "gateways"),
    (Slot::KubernetesGateway, "deployments"),
    (Slot::VirtualService, "virtualservices"),
];

/// The kinds that are read by watches of their own, and the resource of these.
const WATCHED: [(Slot, &str); 8] = [
    (Slot::Service, "services"),
    (Slot::Endpoints, "endpointslices"),
    (Slot::Pod, "pods"),
    (Slot::VirtualService, "virtualservices"),
    (Slot::ServiceEntry, "serviceentries"),
    (Slot::HttpRoute, "httproutes"),
    (Slot::Ingress, "ingresses"),
    (Slot::Namespace, "namespaces"),
];

/// Writes fail for no more milliseconds than this: only one attempt to renew a lock is in this time,
/// so that no new leader begins, which would write everything.
const MAX_FAILED_WRITES: u64 = 7_000;

/// Adds events, each some time after the one before.
struct Episode<'a> {
    events: &'a mut Vec<Event>,
    at: Duration,
}

impl Episode<'_> {
    fn then(&mut self, pause: Duration, action: Action) {
        self.at += pause;
        self.events.push(Event {
            at: self.at,
            action,
        });
    }
}

/// Adds an episode that begins at a time; returns the time of its last event.
pub(super) fn add(
    events: &mut Vec<Event>,
    at: Duration,
    users: &mut Users,
    random: &mut Random,
    replicas: usize,
) -> Duration {
    let mut episode = Episode { events, at };
    match random.below(7) {
        0 | 1 => edit_while_writes_fail(&mut episode, users, random),
        2 => edit_in_silence(&mut episode, users, random),
        3 => list_again_in_parts(&mut episode, users, random, replicas),
        4 | 5 => reject_an_edit(&mut episode, users, random, replicas),
        _ => restart_all(&mut episode, users, random, replicas),
    }
    episode.at
}

/// Adds an episode after which nothing happens that would mend what it breaks; returns the time of
/// its last event.
pub(super) fn add_last(
    events: &mut Vec<Event>,
    at: Duration,
    users: &mut Users,
    random: &mut Random,
) -> Duration {
    let mut episode = Episode { events, at };
    if random.happens(500) {
        edit_all_while_writes_fail(&mut episode, users, random);
    } else {
        edit_all_in_silence(&mut episode, users, random);
    }
    episode.at
}

/// Users edit one object of each kind that the control plane writes something for, which fails.
fn edit_all_while_writes_fail(episode: &mut Episode<'_>, users: &mut Users, random: &mut Random) {
    let lasts = Duration::from_millis(MAX_FAILED_WRITES);
    let failing = Fault::FailWrites {
        resource: None,
        how: FailedWrite::Rejected(random.of(&[500, 503, 429])),
        lasts,
    };
    episode.then(Duration::ZERO, Action::Api(failing));
    for (slot, _) in WRITTEN {
        let edit = users.put_of(slot, random);
        episode.then(random.millis(0, 500), Action::Edit(edit));
    }
    // Faults end with the last event.
    let other = users.put_of(Slot::Endpoints, random);
    episode.then(lasts, Action::Edit(other));
}

/// Some watches of each kind become half-open, and users edit what they would report.
fn edit_all_in_silence(episode: &mut Episode<'_>, users: &mut Users, random: &mut Random) {
    for (slot, resource) in WATCHED {
        for _ in 0..3 {
            let silence = Fault::Silence {
                resource: Some(resource.to_owned()),
            };
            episode.then(Duration::ZERO, Action::Api(silence));
        }
        let edit = users.put_of(slot, random);
        episode.then(random.millis(0, 2_000), Action::Edit(edit));
    }
}

/// A user edits what the control plane writes something for, which fails.
fn edit_while_writes_fail(episode: &mut Episode<'_>, users: &mut Users, random: &mut Random) {
    let (slot, resource) = random.of(&WRITTEN);
    let lasts = random.millis(3_000, MAX_FAILED_WRITES);
    let failing = Fault::FailWrites {
        resource: Some(resource.to_owned()),
        how: failed_write(random),
        lasts,
    };
    episode.then(Duration::ZERO, Action::Api(failing));
    for _ in 0..2 {
        let pause = random.millis(0, 1_000);
        episode.then(pause, Action::Edit(users.put_of(slot, random)));
    }
    // Faults end with the last event.
    let other = users.put_of(Slot::Endpoints, random);
    episode.then(lasts, Action::Edit(other));
}

/// A watch becomes half-open, and a user edits what it would report.
fn edit_in_silence(episode: &mut Episode<'_>, users: &mut Users, random: &mut Random) {
    let (slot, resource) = random.of(&WATCHED);
    let silence = Fault::Silence {
        resource: Some(resource.to_owned()),
    };
    episode.then(Duration::ZERO, Action::Api(silence));
    for _ in 0..2 {
        let pause = random.millis(100, 5_000);
        episode.then(pause, Action::Edit(users.put_of(slot, random)));
    }
}

/// Everything is listed again, by a new process or because the history is gone, and lists break
/// off.
fn list_again_in_parts(
    episode: &mut Episode<'_>,
    users: &mut Users,
    random: &mut Random,
    replicas: usize,
) {
    let lasts = random.millis(2_000, 20_000);
    let replica = random.index(replicas);
    if random.happens(500) {
        let stop = Action::Stop {
            replica,
            lasts: random.millis(500, 2_000),
        };
        episode.then(Duration::ZERO, stop);
    } else {
        let dropped = Fault::DropWatches { resource: None };
        episode.then(
            Duration::ZERO,
            Action::Edit(users.put_of(Slot::Service, random)),
        );
        episode.then(Duration::ZERO, Action::Api(Fault::Compact));
        episode.then(Duration::ZERO, Action::Api(dropped));
    }
    episode.then(Duration::ZERO, Action::Api(Fault::BreakLists { lasts }));
    episode.then(lasts, Action::Edit(users.put_of(Slot::Endpoints, random)));
}

/// Proxies of a namespace accept a version of an object, and reject the next one, which is then
/// quarantined; a user may mend it.
fn reject_an_edit(
    episode: &mut Episode<'_>,
    users: &mut Users,
    random: &mut Random,
    replicas: usize,
) {
    // Of the namespaces with sidecars.
    let object = ObjectKey {
        slot: Slot::VirtualService,
        number: random.of(&[0, 1, 3, 4]),
    };
    let mut version = |random: &mut Random, is_rejected: bool| {
        let content = object.content_with(random, |object| {
            let text = object.to_string();
            // It reaches its own namespace alone, and at once.
            let is_own = text.contains(r#""exportTo":["."]"#);
            is_own && !text.contains(ROLLOUT) && text.contains(POISON) == is_rejected
        });
        Action::Edit(users.put_content(object, content))
    };

    let accepted = version(random, false);
    let rejected = version(random, true);
    let mended = version(random, false);
    episode.then(Duration::ZERO, accepted);
    episode.then(random.millis(8_000, 15_000), rejected);

    let pause = random.millis(12_000, 30_000);
    match random.below(4) {
        0 => {
            let stop = Action::Stop {
                replica: random.index(replicas),
                lasts: random.millis(1_000, 5_000),
            };
            episode.then(pause, stop);
        }
        1 => {
            let reconnect = Action::Proxy {
                proxy: random.index(3),
                command: Command::Reconnect,
            };
            episode.then(pause, reconnect);
        }
        _ => episode.then(pause, mended),
    }
}

/// All replicas are replaced, one after another, as by a new version; users create entries that
/// get addresses before and after it.
fn restart_all(episode: &mut Episode<'_>, users: &mut Users, random: &mut Random, replicas: usize) {
    let entry = Action::Edit(users.put_of(Slot::ServiceEntry, random));
    episode.then(Duration::ZERO, entry);
    for replica in 0..replicas {
        let stop = Action::Stop {
            replica,
            lasts: random.millis(1_000, 5_000),
        };
        episode.then(random.millis(5_000, 15_000), stop);
    }
    for _ in 0..2 {
        let entry = Action::Edit(users.put_of(Slot::ServiceEntry, random));
        episode.then(random.millis(1_000, 20_000), entry);
    }
}

//! The schedule of a seed.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Action, Event, RemoteEvent, Schedule, episodes};
use crate::api_server::{FailedWrite, Fault};
use crate::link::Condition;
use crate::proxy::Command;
use crate::random::Random;
use crate::world::{Edit, ObjectKey, Slot};

/// The numbers of replicas, the more likely ones more than once.
const REPLICAS: [usize; 5] = [1, 2, 2, 3, 3];

/// The number of names of each kind: few, so that objects refer to others that are there.
const NUMBERS: u64 = 6;

/// How many of a thousand steps are several events that belong together.
const EPISODES: u64 = 80;

/// The resources that faults of the API server may be limited to.
const RESOURCES: [&str; 13] = [
    "services",
    "endpointslices",
    "pods",
    "virtualservices",
    "destinationrules",
    "serviceentries",
    "gateways",
    "httproutes",
    "ingresses",
    "namespaces",
    "secrets",
    "configmaps",
    "leases",
];

impl Schedule {
    /// The schedule of a seed for so many proxies.
    #[must_use]
    pub fn of_seed(seed: u64, proxies: usize) -> Self {
        let mut random = Random::new(seed, "schedule");
        let replicas = random.of(&REPLICAS);
        let mut users = Users::default();
        let mut events: Vec<Event> = users
            .initial_edits(&mut random)
            .into_iter()
            .map(|edit| at_start(Action::Edit(edit)))
            .collect();

        // A calm simulation finds what many faults would hide, and the other way round.
        let faults = random.of(&[100, 250, 450]);
        let pause = random.of(&[2_000, 8_000, 20_000]);
        let has_remote = random.happens(400);
        let mut of_remote = Users::default();
        if has_remote {
            events.push(at_start(Action::Remote(RemoteEvent::Join)));
        }

        let mut at = Duration::from_secs(5);
        for _ in 0..30 + random.below(50) {
            at += random.millis(0, pause);
            if random.happens(EPISODES) {
                at = episodes::add(&mut events, at, &mut users, &mut random, replicas);
                continue;
            }
            let action = if has_remote && random.happens(250) {
                Action::Remote(of_remote.remote_event(&mut random, faults))
            } else if random.happens(faults) {
                fault(&mut random, replicas, proxies)
            } else {
                users.change(&mut random)
            };
            events.push(Event { at, action });
        }

        at += random.millis(0, pause);
        episodes::add_last(&mut events, at, &mut users, &mut random);

        Self { replicas, events }
    }
}

fn at_start(action: Action) -> Event {
    Event {
        at: Duration::ZERO,
        action,
    }
}

/// The users of a cluster, who know which objects are there.
#[derive(Debug, Default)]
pub(super) struct Users {
    objects: BTreeSet<ObjectKey>,
}

impl Users {
    /// What is there when the first replica starts: most services, and some objects of all kinds.
    fn initial_edits(&mut self, random: &mut Random) -> Vec<Edit> {
        let mut edits = Vec::new();
        for number in 0..NUMBERS {
            for slot in [Slot::Service, Slot::Endpoints] {
                if random.happens(700) {
                    edits.push(self.put_one(ObjectKey { slot, number }, random));
                }
            }
        }

        for _ in 0..random.below(25) {
            edits.push(self.put(random));
        }
        edits
    }

    /// Creates or changes an object, and as often as not one that is there.
    fn put(&mut self, random: &mut Random) -> Edit {
        let object = self
            .some_object(random, 500)
            .unwrap_or_else(|| new_object(random));
        self.put_one(object, random)
    }

    /// Creates or changes an object of a kind.
    pub(super) fn put_of(&mut self, slot: Slot, random: &mut Random) -> Edit {
        let number = random.below(NUMBERS);
        self.put_one(ObjectKey { slot, number }, random)
    }

    /// Creates or changes an object.
    fn put_one(&mut self, object: ObjectKey, random: &mut Random) -> Edit {
        self.put_content(object, random.below(1 << 32))
    }

    /// Creates or changes an object with this content.
    pub(super) fn put_content(&mut self, object: ObjectKey, content: u64) -> Edit {
        self.objects.insert(object);
        Edit::Put { object, content }
    }

    fn delete(&mut self, object: ObjectKey) -> Edit {
        self.objects.remove(&object);
        Edit::Delete(object)
    }

    /// One of the objects, in so many of a thousand cases.
    fn some_object(&self, random: &mut Random, per_mille: u64) -> Option<ObjectKey> {
        let is_wanted = random.happens(per_mille);
        let index = random.index(self.objects.len());
        self.objects
            .iter()
            .nth(index)
            .copied()
            .filter(|_| is_wanted)
    }

    /// A change.
    fn change(&mut self, random: &mut Random) -> Action {
        if random.happens(30) {
            return Action::MeshConfig {
                content: random.below(1 << 32),
            };
        }

        if random.happens(250)
            && let Some(object) = self.some_object(random, 900)
        {
            return Action::Edit(self.delete(object));
        }
        Action::Edit(self.put(random))
    }

    /// Something that happens to a remote cluster of these users.
    fn remote_event(&mut self, random: &mut Random, faults: u64) -> RemoteEvent {
        if random.happens(faults) {
            return remote_fault(random);
        }

        let slot = random.of(&[Slot::Service, Slot::Endpoints, Slot::Pod]);
        let number = random.below(NUMBERS);
        match random.below(8) {
            0 => RemoteEvent::Join,
            1 | 2 => match self.some_object(random, 1000) {
                None => RemoteEvent::Join,
                Some(object) => RemoteEvent::Edit(self.delete(object)),
            },
            _ => RemoteEvent::Edit(self.put_one(ObjectKey { slot, number }, random)),
        }
    }
}

/// An object that may be there already.
fn new_object(random: &mut Random) -> ObjectKey {
    let slot = match random.below(10) {
        0..=2 => random.of(&[Slot::Service, Slot::Endpoints, Slot::Endpoints, Slot::Pod]),
        // What proxies reject, and what is rolled out in stages.
        3..=5 => Slot::VirtualService,
        _ => random.of(&Slot::ALL),
    };
    ObjectKey {
        slot,
        number: random.below(NUMBERS),
    }
}

/// A way in which a connection fails.
fn failed_condition(random: &mut Random) -> Condition {
    random.of(&[Condition::Cut, Condition::Silent])
}

fn remote_fault(random: &mut Random) -> RemoteEvent {
    let lasts = random.millis(100, 60_000);
    match random.below(4) {
        0 => RemoteEvent::Leave,
        1 => RemoteEvent::Link {
            condition: failed_condition(random),
            lasts,
        },
        _ => RemoteEvent::Api(api_fault(random, lasts)),
    }
}

fn fault(random: &mut Random, replicas: usize, proxies: usize) -> Action {
    let replica = random.index(replicas);
    let lasts = random.millis(100, 90_000);

    match random.below(12) {
        0 => Action::Crash {
            replica,
            connections: failed_condition(random),
            lasts: random.millis(0, 20_000),
        },
        1 => Action::Stop {
            replica,
            lasts: random.millis(0, 20_000),
        },

        2 | 3 => Action::Link {
            replica,
            condition: failed_condition(random),
            // Locks last half a minute.
            lasts: random.millis(100, 150_000),
        },
        4 | 5 => Action::Proxy {
            proxy: random.index(proxies),
            command: proxy_command(random),
        },

        6 => Action::Rotate { replica },
        _ => Action::Api(api_fault(random, lasts)),
    }
}

fn proxy_command(random: &mut Random) -> Command {
    match random.below(4) {
        0 => Command::Reconnect,
        1 => Command::Vanish(random.millis(100, 30_000)),
        2 => Command::SlowDown(random.millis(0, 3_000)),
        _ => Command::Restart,
    }
}

fn api_fault(random: &mut Random, lasts: Duration) -> Fault {
    match random.below(12) {
        0 | 1 => Fault::DropWatches {
            resource: some_resource(random),
        },
        2 => Fault::Compact,
        3 => Fault::Fail {
            resource: some_resource(random),
            code: random.of(&[500, 503, 429, 403]),
            lasts,
        },

        4 => Fault::Lag {
            versions: 1 + random.below(10),
            lasts,
        },
        5 => Fault::Delay {
            max: random.millis(100, 10_000),
            lasts,
        },
        6 => Fault::Repeat { lasts },

        7 => Fault::Conflict {
            count: 1 + random.below(5),
        },
        8 => Fault::Silence {
            resource: some_resource(random),
        },
        9 => Fault::FailWrites {
            resource: some_resource(random),
            how: failed_write(random),
            lasts,
        },
        10 => Fault::BreakLists { lasts },
        _ => Fault::LoseAnswers {
            count: 1 + random.below(3),
        },
    }
}

/// A way in which writes fail.
pub(super) fn failed_write(random: &mut Random) -> FailedWrite {
    random.of(&[
        FailedWrite::Rejected(500),
        FailedWrite::Rejected(503),
        FailedWrite::Rejected(429),
        FailedWrite::Rejected(403),
        FailedWrite::Lost,
    ])
}

/// The resource that a fault is limited to; `None` for all.
fn some_resource(random: &mut Random) -> Option<String> {
    let resource = random.of(&RESOURCES);
    random.happens(600).then(|| resource.to_owned())
}

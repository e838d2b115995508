//! The schedule of a simulation: what users, the network and the machines do, and when. All of it
//! comes from the seed, and any part of it can be left out.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::api_server::Fault;
use crate::link::Condition;
use crate::proxy::Command;
use crate::random::Random;
use crate::world::Slot;

/// The numbers of replicas, the more likely ones more than once.
const REPLICAS: [usize; 5] = [1, 2, 2, 3, 3];

/// The number of names of each kind: few, so that objects refer to others that are there.
const NUMBERS: u64 = 6;

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, since the beginning.
    pub at: Duration,
    /// What.
    pub action: Action,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A user creates or changes an object.
    Put {
        /// Its kind.
        slot: Slot,
        /// Which of its names.
        number: u64,
        /// Its content, as a seed.
        content: u64,
    },
    /// A user deletes an object.
    Delete {
        /// Its kind.
        slot: Slot,
        /// Which of its names.
        number: u64,
    },
    /// A fault of the API server.
    Api(Fault),
    /// The link of a replica to the API server fails for a time.
    Link {
        /// The index of the replica.
        replica: usize,
        /// How it fails.
        condition: Condition,
        /// How long.
        lasts: Duration,
    },
    /// A replica crashes, and its successor starts after a time.
    Crash {
        /// The index of the replica.
        replica: usize,
        /// The condition of its connections.
        connections: Condition,
        /// How long.
        lasts: Duration,
    },
    /// A replica is asked to stop, and its successor starts after a time.
    Stop {
        /// The index of the replica.
        replica: usize,
        /// How long.
        lasts: Duration,
    },
    /// A proxy does something.
    Proxy {
        /// The index of the proxy.
        proxy: usize,
        /// What.
        command: Command,
    },
    /// An operator rotates the root.
    Rotate {
        /// The index of the replica that is asked.
        replica: usize,
    },
    /// A user edits the mesh config.
    MeshConfig {
        /// Its content, as a seed.
        content: u64,
    },
    /// Something happens to the remote cluster.
    Remote(RemoteEvent),
}

/// What happens to the remote cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteEvent {
    /// The Secret with its kubeconfig is created.
    Join,
    /// That Secret is deleted.
    Leave,
    /// A user of that cluster creates or changes an object.
    Put {
        /// Its kind.
        slot: Slot,
        /// Which of its names.
        number: u64,
        /// Its content, as a seed.
        content: u64,
    },
    /// A user of that cluster deletes an object.
    Delete {
        /// Its kind.
        slot: Slot,
        /// Which of its names.
        number: u64,
    },
    /// A fault of its API server.
    Api(Fault),
    /// The link to it fails for a time.
    Link {
        /// How it fails.
        condition: Condition,
        /// How long.
        lasts: Duration,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9.3}s {:?}", self.at.as_secs_f64(), self.action)
    }
}

/// The schedule of a seed, in order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The number of replicas.
    pub replicas: usize,
    /// What happens.
    pub events: Vec<Event>,
}

impl Schedule {
    /// The schedule of a seed for so many proxies.
    #[must_use]
    pub fn of_seed(seed: u64, proxies: usize) -> Self {
        let mut random = Random::new(seed, "schedule");
        let replicas = random.of(&REPLICAS);
        let mut events = Vec::new();

        let mut users = Users::default();

        // What is there when the first replica starts: most services, and some of all kinds.
        for number in 0..NUMBERS {
            for slot in [Slot::Service, Slot::Endpoints] {
                if random.happens(700) {
                    let action = users.put_one((slot, number), &mut random);
                    let at = Duration::ZERO;
                    events.push(Event { at, action });
                }
            }
        }
        for _ in 0..random.below(25) {
            events.push(Event {
                at: Duration::ZERO,
                action: users.put(&mut random),
            });
        }

        // A calm simulation finds what many faults would hide, and the other way round.
        let faults = random.of(&[100, 250, 450]);
        let pause = random.of(&[2_000, 8_000, 20_000]);
        let has_remote = random.happens(400);
        let mut of_remote = Users::default();
        if has_remote {
            events.push(Event {
                at: Duration::ZERO,
                action: Action::Remote(RemoteEvent::Join),
            });
        }
        let mut at = Duration::from_secs(5);
        for _ in 0..30 + random.below(70) {
            at += random.millis(0, pause);
            let action = if has_remote && random.happens(250) {
                Action::Remote(of_remote.event(&mut random, faults))
            } else if random.happens(faults) {
                fault(&mut random, replicas, proxies)
            } else {
                users.change(&mut random)
            };
            events.push(Event { at, action });
        }
        Self { replicas, events }
    }

    /// The schedule of a fault that was found, with which it happens for certain; `None` if there is
    /// none of this name. Seeds have other schedules whenever the generator changes.
    #[must_use]
    pub fn of_case(name: &str) -> Option<Self> {
        let at = |seconds: u64, action: Action| Event {
            at: Duration::from_secs(seconds),
            action,
        };
        match name {
            // The status of an Ingress cannot be written, and nothing changes afterwards.
            "ingress-while-writes-fail" => Some(Self {
                replicas: 1,
                events: vec![
                    at(
                        60,
                        Action::Api(Fault::Fail {
                            resource: Some("ingresses".to_owned()),
                            code: 503,
                            lasts: Duration::from_secs(20),
                        }),
                    ),
                    at(
                        65,
                        Action::Put {
                            slot: Slot::Ingress,
                            number: 0,
                            content: 3,
                        },
                    ),
                    // Faults end with the last event.
                    at(
                        90,
                        Action::Put {
                            slot: Slot::Namespace,
                            number: 0,
                            content: 0,
                        },
                    ),
                ],
            }),
            // The leader deletes the report of a crashed replica over a connection that has become
            // half-open, and loses its lock meanwhile.
            "report-deleted-in-silence" => {
                let silence = (0..2).map(|replica| {
                    at(
                        85,
                        Action::Link {
                            replica,
                            condition: Condition::Silent,
                            lasts: Duration::from_secs(if replica == 0 { 90 } else { 1 }),
                        },
                    )
                });
                let crash = at(
                    30,
                    Action::Crash {
                        replica: 2,
                        connections: Condition::Cut,
                        lasts: Duration::from_secs(600),
                    },
                );
                Some(Self {
                    replicas: 3,
                    events: std::iter::once(crash).chain(silence).collect(),
                })
            }
            _ => None,
        }
    }

    /// Only the events with these indices.
    #[must_use]
    pub fn keep(&self, indices: &[usize]) -> Self {
        Self {
            replicas: self.replicas,
            events: indices
                .iter()
                .filter_map(|index| self.events.get(*index))
                .cloned()
                .collect(),
        }
    }

    /// When the last event happens.
    #[must_use]
    pub fn end(&self) -> Duration {
        self.events.last().map_or(Duration::ZERO, |event| event.at)
    }
}

/// The users of a cluster, who know which objects are there.
#[derive(Debug, Default)]
struct Users {
    objects: BTreeSet<(Slot, u64)>,
}

/// The kind and name of an object that may be there already.
fn new_object(random: &mut Random) -> (Slot, u64) {
    let slot = match random.below(10) {
        0..=2 => random.of(&[Slot::Service, Slot::Endpoints, Slot::Endpoints, Slot::Pod]),
        // What proxies reject, and what is rolled out in stages.
        3..=5 => Slot::VirtualService,
        _ => random.of(&Slot::ALL),
    };
    (slot, random.below(NUMBERS))
}

impl Users {
    /// Creates or changes an object, and as often as not one that is there.
    fn put(&mut self, random: &mut Random) -> Action {
        let object = self
            .some_object(random, 500)
            .unwrap_or_else(|| new_object(random));
        self.put_one(object, random)
    }

    /// Creates or changes an object.
    fn put_one(&mut self, (slot, number): (Slot, u64), random: &mut Random) -> Action {
        self.objects.insert((slot, number));
        Action::Put {
            slot,
            number,
            content: random.below(1 << 32),
        }
    }

    /// One of the objects, in so many of a thousand cases.
    fn some_object(&self, random: &mut Random, per_mille: u64) -> Option<(Slot, u64)> {
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
            && let Some((slot, number)) = self.some_object(random, 900)
        {
            self.objects.remove(&(slot, number));
            return Action::Delete { slot, number };
        }
        self.put(random)
    }

    /// Something that happens to a remote cluster of these users.
    fn event(&mut self, random: &mut Random, faults: u64) -> RemoteEvent {
        if random.happens(faults) {
            let lasts = random.millis(100, 60_000);
            return match random.below(4) {
                0 => RemoteEvent::Leave,
                1 => RemoteEvent::Link {
                    condition: random.of(&[Condition::Cut, Condition::Silent]),
                    lasts,
                },
                _ => RemoteEvent::Api(api_fault(random, lasts)),
            };
        }

        let slot = random.of(&[Slot::Service, Slot::Endpoints, Slot::Pod]);
        let number = random.below(NUMBERS);
        match random.below(8) {
            0 => RemoteEvent::Join,
            1 | 2 => match self.some_object(random, 1000) {
                None => RemoteEvent::Join,
                Some((slot, number)) => {
                    self.objects.remove(&(slot, number));
                    RemoteEvent::Delete { slot, number }
                }
            },
            _ => {
                self.objects.insert((slot, number));
                RemoteEvent::Put {
                    slot,
                    number,
                    content: random.below(1 << 32),
                }
            }
        }
    }
}

/// A fault.
fn fault(random: &mut Random, replicas: usize, proxies: usize) -> Action {
    let replica = random.index(replicas);
    let lasts = random.millis(100, 90_000);
    match random.below(12) {
        0 => Action::Crash {
            replica,
            connections: random.of(&[Condition::Cut, Condition::Silent]),
            lasts: random.millis(0, 20_000),
        },
        1 => Action::Stop {
            replica,
            lasts: random.millis(0, 20_000),
        },
        2 | 3 => Action::Link {
            replica,
            condition: random.of(&[Condition::Cut, Condition::Silent]),
            // Locks last half a minute.
            lasts: random.millis(100, 150_000),
        },
        4 | 5 => Action::Proxy {
            proxy: random.index(proxies),
            command: match random.below(4) {
                0 => Command::Reconnect,
                1 => Command::Vanish(random.millis(100, 30_000)),
                2 => Command::SlowDown(random.millis(0, 3_000)),
                _ => Command::Restart,
            },
        },
        6 => Action::Rotate { replica },
        _ => Action::Api(api_fault(random, lasts)),
    }
}

/// A fault of the API server.
fn api_fault(random: &mut Random, lasts: Duration) -> Fault {
    let resources = [
        "services",
        "endpointslices",
        "pods",
        "virtualservices",
        "destinationrules",
        "serviceentries",
        "gateways",
        "httproutes",
        "secrets",
        "configmaps",
        "leases",
    ];
    let some = |random: &mut Random| {
        let resource = random.of(&resources).to_owned();
        random.happens(600).then_some(resource)
    };
    match random.below(9) {
        0 | 1 => Fault::DropWatches {
            resource: some(random),
            client: None,
        },
        2 => Fault::Compact,
        3 => Fault::Fail {
            resource: some(random),
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
        _ => Fault::LoseAnswers {
            count: 1 + random.below(3),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_schedule_and_parts_of_it_can_be_left_out() {
        let schedule = Schedule::of_seed(7, 4);
        assert_eq!(schedule, Schedule::of_seed(7, 4));
        assert_ne!(schedule, Schedule::of_seed(8, 4));
        assert!(schedule.events.is_sorted_by_key(|event| event.at));

        let part = schedule.keep(&[0, 2]);
        assert_eq!(part.events.first(), schedule.events.first());
        assert_eq!(part.events.get(1), schedule.events.get(2));
    }
}

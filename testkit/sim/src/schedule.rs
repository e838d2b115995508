//! The schedule of a simulation: what users, the network and the machines do, and when. All of it
//! comes from the seed, and any part of it can be left out.

mod cases;
mod episodes;
mod generator;

use std::fmt;
use std::time::Duration;

use crate::api_server::Fault;
use crate::link::Condition;
use crate::proxy::Command;
use crate::world::Edit;

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
    /// A user edits an object.
    Edit(Edit),
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
    /// A user of that cluster edits an object.
    Edit(Edit),
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

impl Action {
    /// The kind of fault that it is; `None` if users and operators do it.
    fn fault_kind(&self) -> Option<String> {
        let of_link = |condition: &Condition| format!("{condition:?} link");
        match self {
            Self::Edit(_) | Self::Rotate { .. } | Self::MeshConfig { .. } => None,
            Self::Api(fault) => Some(fault.kind().to_owned()),
            Self::Link { condition, .. } => Some(of_link(condition)),
            Self::Crash { connections, .. } => Some(format!("crash, {connections:?}")),
            Self::Stop { .. } => Some("stop".to_owned()),
            Self::Proxy { command, .. } => Some(command.kind().to_owned()),
            Self::Remote(event) => {
                let kind = match event {
                    RemoteEvent::Join | RemoteEvent::Leave | RemoteEvent::Edit(_) => return None,
                    RemoteEvent::Api(fault) => fault.kind().to_owned(),
                    RemoteEvent::Link { condition, .. } => of_link(condition),
                };
                Some(format!("remote: {kind}"))
            }
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9.3}s {:?}", self.at.as_secs_f64(), self.action)
    }
}

/// A schedule, in order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The number of replicas.
    pub replicas: usize,
    /// What happens.
    pub events: Vec<Event>,
}

impl Schedule {
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

    /// The kinds of its faults, in order of time.
    #[must_use]
    pub fn fault_kinds(&self) -> Vec<String> {
        let actions = self.events.iter().map(|event| &event.action);
        actions.filter_map(Action::fault_kind).collect()
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

    #[test]
    fn each_case_has_a_schedule_and_users_cause_no_faults() {
        for name in Schedule::cases() {
            assert!(Schedule::of_case(name).is_some(), "{name}");
        }
        assert_eq!(Schedule::of_case("none"), None);

        let kinds = Schedule::of_case("control-plane-away")
            .unwrap()
            .fault_kinds();
        assert_eq!(kinds, ["stop"]);
    }
}

//! The distribution of an object: which proxies it affects, and which of them have acknowledged it.

use std::fmt;

use navarch_base::printable::escape;
use serde::{Deserialize, Serialize};

use super::rollout::RolloutState;

/// Maximum number of listed proxies of each state.
pub const NAMED: usize = 50;

/// The distribution of an object among the proxies of one control plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// `metadata.generation` in force; 0 for objects from files.
    pub generation: i64,
    /// The number of proxies with resources that depend on the object.
    pub reached: usize,
    /// The number of proxies that acknowledged its last change.
    pub taken: usize,
    /// The number of proxies that have not answered yet.
    pub pending: usize,
    /// The first of them by name.
    pub pending_proxies: Vec<PendingProxy>,
    /// The number of proxies that rejected it.
    pub refused: usize,
    /// The first of them by name.
    pub refused_proxies: Vec<RejectingProxy>,
    /// Who rejects the object, with Envoy's error, if it is quarantined: proxies are served its
    /// previous version, or none.
    pub quarantined: Option<String>,
    /// The state of its staged rollout, if any. The other fields are about the previous version.
    #[serde(default)]
    pub rollout: Option<RolloutState>,
}

/// A proxy that has not answered yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingProxy {
    /// `<pod>.<namespace>`.
    pub proxy: String,
    /// The types that it has not acknowledged, as in `cds`.
    pub types: Vec<String>,
    /// Seconds since the unacknowledged response was sent; `None` if it was not sent yet.
    pub since_seconds: Option<f64>,
}

/// A proxy that rejected it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RejectingProxy {
    /// `<pod>.<namespace>`.
    pub proxy: String,
    /// The rejected type, as in `cds`.
    pub r#type: String,
    /// Envoy's error message.
    pub said: String,
}

/// The distribution of an object over all control planes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppliedEverywhere {
    /// `Kind namespace/name`.
    pub object: String,
    /// The answer of each control plane.
    pub replicas: Vec<Replica>,
}

/// The answer of one control plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replica {
    /// The address of the control plane.
    pub address: String,
    /// Its answer; `None` if the object is unknown to it.
    pub applied: Option<Applied>,
    /// The error, if it did not answer.
    pub error: Option<String>,
}

/// The state over all control planes, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AppliedState {
    /// A control plane gave no answer.
    Unknown,
    /// No control plane has the object.
    Missing,
    /// A proxy rejected it, it is quarantined, or its rollout was stopped.
    Rejected,
    /// A proxy has not answered yet, a control plane has not read the generation, or a rollout is
    /// in progress.
    Pending,
    /// Every affected proxy has acknowledged it.
    Taken,
}

impl AppliedEverywhere {
    /// The state for at least this generation.
    #[must_use]
    pub fn state(&self, generation: i64) -> AppliedState {
        let known: Vec<&Applied> = self
            .replicas
            .iter()
            .filter_map(|replica| replica.applied.as_ref())
            .collect();

        let newest = known
            .iter()
            .map(|applied| applied.generation)
            .max()
            .unwrap_or_default()
            .max(generation);

        if self.replicas.iter().any(|replica| replica.error.is_some()) {
            AppliedState::Unknown
        } else if known.is_empty() {
            AppliedState::Missing
        } else if known.iter().any(|applied| {
            applied.refused > 0
                || applied.quarantined.is_some()
                || applied.rollout == Some(RolloutState::Stopped)
        }) {
            AppliedState::Rejected
        } else if known.len() < self.replicas.len()
            || known.iter().any(|replica| {
                replica.pending > 0 || replica.generation < newest || replica.rollout.is_some()
            })
        {
            AppliedState::Pending
        } else {
            AppliedState::Taken
        }
    }
}

impl fmt::Display for AppliedEverywhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&Applied> = self
            .replicas
            .iter()
            .filter_map(|replica| replica.applied.as_ref())
            .collect();
        let sum =
            |of: fn(&Applied) -> usize| known.iter().map(|applied| of(applied)).sum::<usize>();

        if known.is_empty() {
            writeln!(
                f,
                "{}: not found on any control plane",
                escape(&self.object)
            )?;
        } else {
            let generation = known
                .iter()
                .map(|applied| applied.generation)
                .max()
                .unwrap_or_default();

            let generation = if generation > 0 {
                format!("generation {generation}")
            } else {
                "the current version".to_owned()
            };

            let taken = sum(|replica| replica.taken);
            let reached = sum(|replica| replica.reached);
            let pending = sum(|replica| replica.pending);
            let rejected = sum(|replica| replica.refused);
            let object = escape(&self.object);
            writeln!(
                f,
                "{object}: {generation} is acknowledged by {taken} of {reached} affected proxies, {pending} pending, {rejected} rejected"
            )?;
        }

        for applied in &known {
            if let Some(error) = &applied.quarantined {
                writeln!(
                    f,
                    "  quarantined: proxies have the previous version, or none; {}",
                    escape(error)
                )?;
            }

            if let Some(state) = applied.rollout {
                let word = state.word();
                writeln!(f, "  its rollout is {word}; see navarch rollout status")?;
            }

            for one in &applied.pending_proxies {
                let since = match one.since_seconds {
                    Some(seconds) => format!("since {seconds:.0} s"),
                    None => "not sent yet".to_owned(),
                };
                writeln!(
                    f,
                    "  pending  {} {} {since}",
                    escape(&one.proxy),
                    escape(&one.types.join(","))
                )?;
            }

            for one in &applied.refused_proxies {
                let proxy = escape(&one.proxy);
                let resource_type = escape(&one.r#type);
                writeln!(
                    f,
                    "  rejected  {proxy} {resource_type}: {}",
                    escape(&one.said)
                )?;
            }
        }

        let answered = self
            .replicas
            .iter()
            .filter(|replica| replica.error.is_none())
            .count();

        writeln!(
            f,
            "  requested from {} control planes by address, {answered} responded:",
            self.replicas.len()
        )?;

        for replica in &self.replicas {
            let status = match (&replica.applied, &replica.error) {
                (Some(one), _) => format!(
                    "generation {}, {} of {}",
                    one.generation, one.taken, one.reached
                ),
                (None, Some(error)) => escape(error).into_owned(),
                (None, None) => "the object does not exist".to_owned(),
            };
            writeln!(f, "    {}: {status}", escape(&replica.address))?;
        }

        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(generation: i64, taken: usize, rejected: usize) -> Replica {
        let applied = Applied {
            generation,
            reached: 10,
            taken,
            pending: 10 - taken - rejected,
            refused: rejected,
            ..Applied::default()
        };
        Replica {
            address: "a:1".to_owned(),
            applied: Some(applied),
            error: None,
        }
    }

    #[test]
    fn texts_of_proxies_add_no_lines() {
        let forged = || "a\n  rejected  forged\u{1b}[2J".to_owned();
        let applied = Applied {
            quarantined: Some(forged()),
            pending_proxies: vec![PendingProxy {
                proxy: forged(),
                types: vec![forged()],
                since_seconds: None,
            }],
            refused_proxies: vec![RejectingProxy {
                proxy: forged(),
                r#type: forged(),
                said: forged(),
            }],
            ..Applied::default()
        };
        let silent = Replica {
            address: forged(),
            applied: None,
            error: Some(forged()),
        };
        let answered = Replica {
            address: forged(),
            applied: Some(applied),
            error: None,
        };

        let text = AppliedEverywhere {
            object: forged(),
            replicas: vec![answered, silent],
        }
        .to_string();
        assert_eq!(text.lines().count(), 7, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn the_worst_of_all_replicas_counts() {
        let all = |replicas: Vec<Replica>| AppliedEverywhere {
            object: "x".to_owned(),
            replicas,
        };
        assert_eq!(
            all(vec![replica(3, 10, 0), replica(3, 10, 0)]).state(0),
            AppliedState::Taken
        );

        assert_eq!(
            all(vec![replica(3, 10, 0), replica(3, 10, 0)]).state(4),
            AppliedState::Pending
        );
        assert_eq!(
            all(vec![replica(3, 10, 0), replica(2, 10, 0)]).state(0),
            AppliedState::Pending
        );

        assert_eq!(
            all(vec![replica(3, 10, 0), replica(3, 9, 1)]).state(0),
            AppliedState::Rejected
        );
        let unread = Replica {
            address: "b:1".to_owned(),
            ..Replica::default()
        };

        assert_eq!(
            all(vec![replica(3, 10, 0), unread.clone()]).state(0),
            AppliedState::Pending
        );
        assert_eq!(all(vec![unread.clone()]).state(0), AppliedState::Missing);
        let dead = Replica {
            error: Some("gone".to_owned()),
            ..unread
        };

        assert_eq!(
            all(vec![replica(3, 10, 0), dead]).state(0),
            AppliedState::Unknown
        );
        let text = all(vec![replica(3, 8, 1), replica(3, 10, 0)]).to_string();
        assert!(
            text.contains(
                "generation 3 is acknowledged by 18 of 20 affected proxies, 1 pending, 1 rejected"
            ),
            "{text}"
        );
    }
}

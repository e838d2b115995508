//! Staged rollouts and their progress among the proxies of one control plane.

use std::fmt;

use navarch_base::printable::{escape, escape_list};
use serde::{Deserialize, Serialize};

/// Maximum number of listed proxies.
pub const NAMED: usize = 20;

/// The staged rollouts at one control plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollouts {
    /// By kind, namespace and name.
    pub rollouts: Vec<Rollout>,
}

/// A staged rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// `Kind namespace/name`.
    pub object: String,
    /// `metadata.generation` of the new version; 0 for objects from files.
    pub generation: i64,
    /// The generation that the other proxies have; `None` if the object is new.
    pub before: Option<i64>,
    /// A rollout that is complete has no state: it is no longer listed.
    pub state: RolloutState,
    /// The stage, from 1; 0 before the first and after a stop.
    pub stage: usize,
    /// The shares of the stages, such as `5%`.
    pub stages: Vec<String>,
    /// Seconds since the stage began.
    pub seconds: f64,
    /// The number of proxies with resources of the new version.
    pub reached: usize,
    /// The number of those that have acknowledged it.
    pub taken: usize,
    /// The number of those that have not, and are no evidence: before the stage began, they had
    /// rejected the resources that it may be in.
    #[serde(default)]
    pub rejected_before: usize,
    /// The first of the proxies that have not answered yet.
    pub pending_proxies: Vec<String>,
    /// The number of clients without an identity that have not acknowledged it: the stage does not
    /// wait for them.
    #[serde(default)]
    pub without_identity: usize,
    /// The number of proxies of other namespaces that have not acknowledged it in time: the stage
    /// no longer waits for them.
    #[serde(default)]
    pub left_behind: usize,
    /// The reason for waiting, or for the stop.
    pub reason: String,
}

/// Whether a rollout advances by itself, waits for an operator, or was stopped. In JSON as
/// lower-case words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RolloutState {
    /// No proxy has the new version yet.
    Waiting,
    /// It advances from stage to stage.
    Rolling,
    /// It stays at its stage until it is promoted.
    Paused,
    /// All proxies have the previous version, until the object is edited.
    Stopped,
}

impl RolloutState {
    /// The state as text.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Rolling => "rolling",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for Rollouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rollouts.is_empty() {
            return writeln!(f, "no rollout is in progress");
        }
        self.rollouts
            .iter()
            .try_for_each(|rollout| write!(f, "{rollout}"))
    }
}

impl fmt::Display for Rollout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation = |generation: i64| match generation {
            0 => "the previous version".to_owned(),
            generation => format!("generation {generation}"),
        };
        let others = self
            .before
            .map_or_else(|| "no such object".to_owned(), generation);
        write!(f, "{}: {}", escape(&self.object), self.state.word())?;

        if let Some(share) = self.stage.checked_sub(1).and_then(|at| self.stages.get(at)) {
            write!(
                f,
                ", stage {} of {} ({})",
                self.stage,
                self.stages.len(),
                escape(share)
            )?;
            write!(f, " since {:.0} s", self.seconds)?;
        }

        writeln!(f)?;

        match self.state {
            RolloutState::Waiting | RolloutState::Stopped => {
                writeln!(f, "  all proxies have {others}")?
            }
            RolloutState::Rolling | RolloutState::Paused => {
                let new = if self.generation == 0 {
                    "the new version".to_owned()
                } else {
                    generation(self.generation)
                };
                writeln!(
                    f,
                    "  {new} is acknowledged by {} of {} affected proxies; the others have {others}",
                    self.taken, self.reached
                )?;
            }
        }

        if !self.pending_proxies.is_empty() {
            writeln!(f, "  pending: {}", escape_list(&self.pending_proxies))?;
        }

        if self.rejected_before > 0 {
            let count = self.rejected_before;
            writeln!(
                f,
                "  no evidence: {count} that had rejected the same resources before"
            )?;
        }

        let not_waited_for: Vec<String> = [
            (self.without_identity, "without an identity"),
            (self.left_behind, "outside its namespace"),
        ]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, which)| format!("{count} {which}"))
        .collect();
        if !not_waited_for.is_empty() {
            writeln!(f, "  not waited for: {}", not_waited_for.join(", "))?;
        }

        writeln!(f, "  {}", escape(&self.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rollout_state_is_printed() {
        let mut rollout = Rollout {
            object: "VirtualService shop/reviews".to_owned(),
            generation: 7,
            before: Some(6),
            state: RolloutState::Rolling,
            stage: 2,
            stages: ["5%", "25%", "100%"].map(str::to_owned).into(),
            seconds: 12.3,
            reached: 25,
            taken: 24,
            rejected_before: 0,
            pending_proxies: vec!["web-1.shop".to_owned()],
            without_identity: 0,
            left_behind: 0,
            reason: "waits for 1 proxy to acknowledge it".to_owned(),
        };

        let text = "VirtualService shop/reviews: rolling, stage 2 of 3 (25%) since 12 s\n  \
                    generation 7 is acknowledged by 24 of 25 affected proxies; the others have generation 6\n  \
                    pending: web-1.shop\n  waits for 1 proxy to acknowledge it\n";
        assert_eq!(rollout.to_string(), text);

        rollout.without_identity = 2;
        rollout.left_behind = 1;
        let text = rollout.to_string();
        assert!(
            text.contains("\n  not waited for: 2 without an identity, 1 outside its namespace\n"),
            "{text}"
        );

        rollout.without_identity = 0;
        rollout.left_behind = 0;
        rollout.rejected_before = 3;
        let text = rollout.to_string();
        assert!(
            text.contains("\n  no evidence: 3 that had rejected the same resources before\n"),
            "{text}"
        );

        rollout.rejected_before = 0;
        rollout.pending_proxies.clear();
        rollout.state = RolloutState::Stopped;
        rollout.stage = 0;
        rollout.before = None;
        rollout.reason = "web-1.shop rejected rds: no such filter".to_owned();
        let text = "VirtualService shop/reviews: stopped\n  all proxies have no such object\n  \
                    web-1.shop rejected rds: no such filter\n";
        assert_eq!(rollout.to_string(), text);

        rollout.object = "a\nb".to_owned();
        rollout.pending_proxies = vec!["web-1\n  forged".to_owned()];
        rollout.reason = "rejected\n  forged\u{1b}[2J".to_owned();
        assert_eq!(
            rollout.to_string(),
            "a\\nb: stopped\n  all proxies have no such object\n  pending: web-1\\n  forged\n  \
             rejected\\n  forged\\u{1b}[2J\n"
        );

        assert_eq!(
            Rollouts::default().to_string(),
            "no rollout is in progress\n"
        );
    }
}

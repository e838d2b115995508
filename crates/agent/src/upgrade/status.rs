//! What the agent says of its Envoy and of the last attempt to replace it: `/navarch/proxy` on the
//! status port.

use std::sync::Arc;
use std::time::SystemTime;

use navarch_base::printable::{Layout, bounded};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Maximum length of a text in the status.
const MAX_TEXT: usize = 1024;

/// The state of the last attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpgradeState {
    /// None was made.
    #[default]
    Idle,
    /// The program is fetched and checked.
    Fetching,
    /// Another Envoy still drains.
    Waiting,
    /// The new Envoy starts; the old one serves.
    Starting,
    /// The new Envoy serves, and is judged.
    Judging,
    /// The program that the annotation asks for runs.
    Done,
    /// The program was refused before it was started.
    Refused,
    /// The program was started and did not stay; the former one runs.
    Failed,
}

impl UpgradeState {
    /// The result of an attempt that is over: a label of the metric.
    #[must_use]
    pub fn result(self) -> Option<&'static str> {
        match self {
            Self::Done => Some("done"),
            Self::Refused => Some("refused"),
            Self::Failed => Some("failed"),
            Self::Idle | Self::Fetching | Self::Waiting | Self::Starting | Self::Judging => None,
        }
    }
}

/// What `/navarch/proxy` answers: which Envoy runs, and what became of the annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProxyStatus {
    /// Whether Envoy is replaced in place (`NAVARCH_PROXY_UPGRADE`).
    pub enabled: bool,
    /// The version of the running Envoy; empty while it is not known.
    pub version: String,
    /// The path of the running program.
    pub program: String,
    /// The number of hot restarts before it.
    pub epoch: u32,
    /// The numbers of Envoys that drain.
    pub draining: Vec<u32>,
    /// How often a crashed Envoy was started again.
    pub restarts: u32,
    /// The annotation that the last attempt was for; empty is the program of the image.
    pub wanted: String,
    /// How far the last attempt is.
    pub state: UpgradeState,
    /// Why the last attempt was refused or has failed; empty otherwise.
    pub reason: String,
    /// When the state began, in seconds since 1970; 0 before the first attempt.
    pub since: u64,
}

/// The status that the agent shows. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SharedStatus(Arc<Mutex<ProxyStatus>>);

impl SharedStatus {
    /// A copy of what is known now.
    #[must_use]
    pub fn get(&self) -> ProxyStatus {
        self.0.lock().clone()
    }

    /// Changes the parts about the running Envoy.
    pub fn update(&self, change: impl FnOnce(&mut ProxyStatus)) {
        change(&mut self.0.lock());
    }

    /// Begins a state of the attempt for an annotation.
    pub fn begin(&self, wanted: &str, state: UpgradeState, reason: &str, now: SystemTime) {
        let mut status = self.0.lock();
        status.wanted = bounded(wanted, MAX_TEXT, Layout::Quoted);
        status.state = state;
        status.reason = bounded(reason, MAX_TEXT, Layout::Quoted);
        status.since = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn texts_of_others_are_bounded_and_have_no_control_characters() {
        let status = SharedStatus::default();
        let long = "x".repeat(10_000);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        status.begin(&long, UpgradeState::Refused, "a\u{1b}[31m", now);

        let status = status.get();
        assert!(status.wanted.len() <= MAX_TEXT);
        assert!(!status.reason.contains('\u{1b}'));
        assert_eq!(status.since, 7);

        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["state"], "refused");
    }
}

//! The state of Envoy and of the last attempt to replace it: `/navarch/proxy` on the status port.

use std::sync::Arc;
use std::time::SystemTime;

use navarch_base::error_chain::chain;
use navarch_base::printable::{Layout, bounded};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::attempt::share;
use crate::envoy_life::RequestCount;
use crate::local_http::HttpError;

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

/// The shares of requests that failed, by which the last attempt was judged, in words. Empty before
/// they are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorShares {
    /// With the old Envoy since its start.
    pub before: String,
    /// With the new Envoy at the last count.
    pub after: String,
}

impl ErrorShares {
    /// A share, or why it is not known: without it, no Envoy is judged by it.
    #[must_use]
    pub fn describe(counted: &Result<RequestCount, HttpError>) -> String {
        match counted {
            Ok(count) => share(*count),
            Err(error) => {
                let reason = format!("unknown: {}", chain(error));
                bounded(&reason, MAX_TEXT, Layout::Quoted)
            }
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
    /// The failed requests by which the last attempt was judged.
    pub errors: ErrorShares,
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
        if state == UpgradeState::Fetching {
            status.errors = ErrorShares::default();
        }
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

    #[test]
    fn an_error_share_that_is_not_known_says_why() {
        let count = |total| {
            let errors = 3;
            ErrorShares::describe(&Ok(RequestCount { total, errors }))
        };
        assert_eq!(count(100), "3 % of 100 requests");
        assert_eq!(count(7), "7 requests are too few");

        let failed = HttpError::Timeout(Duration::from_secs(10));
        let unknown = ErrorShares::describe(&Err(failed));
        assert_eq!(unknown, "unknown: timed out after 10s");

        // An attempt begins without the shares of the one before.
        let status = SharedStatus::default();
        status.update(|status| status.errors.after = unknown);
        status.begin("/b", UpgradeState::Starting, "", SystemTime::UNIX_EPOCH);
        assert!(!status.get().errors.after.is_empty());
        status.begin("/c", UpgradeState::Fetching, "", SystemTime::UNIX_EPOCH);
        assert_eq!(status.get().errors, ErrorShares::default());
    }
}

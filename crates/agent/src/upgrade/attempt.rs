//! The judgement of a new Envoy, without clocks and processes: from its start until it stays or
//! goes.
//!
//! ```text
//! starting ─┬─ LIVE ─▶ judging ─┬─ the time is over ──────────────────▶ it stays
//!           │                   └─ NACK, errors, not LIVE, exit ──────▶ another epoch of the former program
//!           └─ NACK, exit, the time is over ─▶ it is killed ──────────▶ the former process goes on
//! ```
//!
//! Envoy tells the one before to drain at the moment in which it becomes LIVE: until then the old
//! one serves, and going back costs nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::ads::StreamReport;
use crate::envoy_life::{RequestCount, ServerInfo};

/// Requests that are needed to compare errors: with fewer, one error decides.
const MIN_REQUESTS: u64 = 50;
/// By how much the share of errors may be larger than before, in percent of requests.
const MARGIN_PERCENT: u64 = 5;
/// The types that an Envoy must have accepted.
const REQUIRED_TYPES: [&str; 2] = [
    "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "type.googleapis.com/envoy.config.listener.v3.Listener",
];

/// How long each step may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptLimits {
    /// `NAVARCH_PROXY_UPGRADE_FETCH_TIMEOUT`: until an artefact is fetched. Default 5 min.
    pub fetch: Duration,
    /// `NAVARCH_PROXY_UPGRADE_START_TIMEOUT`: until a new Envoy is LIVE. Default 60 s.
    pub start: Duration,
    /// `NAVARCH_PROXY_UPGRADE_JUDGING`: how long a LIVE Envoy is judged. Default 30 s.
    pub judging: Duration,
}

/// The measurements of the old Envoy before a new one starts.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// Its requests; `None` if they cannot be counted.
    pub requests: Option<RequestCount>,
    /// Its answers to the control plane; `None` if it has no stream.
    pub report: Option<StreamReport>,
}

/// What is seen of the new Envoy.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The exit status, if it has exited.
    pub exit: Option<String>,
    /// The answer of the Envoy that has the admin port.
    pub server: Option<ServerInfo>,
    /// Its answers to the control plane.
    pub report: Option<StreamReport>,
    /// Its requests, if they were counted this time.
    pub requests: Option<RequestCount>,
}

/// Why a new Envoy does not stay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It has exited.
    #[error("the new Envoy exited: {0}")]
    Exited(String),
    /// It was not LIVE in time.
    #[error("the new Envoy was not LIVE within {limit:?}: it is {state}")]
    NotLive {
        /// The limit of the start.
        limit: Duration,
        /// As Envoy calls it.
        state: String,
    },
    /// It was LIVE, and is not any more.
    #[error("the new Envoy is not LIVE any more: it is {0}")]
    NoLongerLive(String),
    /// It rejects configuration that the old one accepts.
    #[error("the new Envoy rejects {type_url}: {reason}")]
    Rejected {
        /// The type of the resources.
        type_url: String,
        /// Envoy's message.
        reason: String,
    },
    /// It has not accepted clusters and listeners.
    #[error("the new Envoy has not accepted {0} from the control plane")]
    NotConfigured(&'static str),
    /// Too many requests fail.
    #[error("{after} % of requests fail with the new Envoy, {before} % failed before")]
    Errors {
        /// Percent of requests.
        before: u64,
        /// Percent of requests.
        after: u64,
    },
}

/// Where an attempt is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The new Envoy starts; the old one serves.
    Starting,
    /// The new Envoy serves; the old one drains.
    Judging,
    /// The new Envoy stays.
    Stays,
    /// The new Envoy goes, and has not taken over yet.
    FailedBefore(Failure),
    /// The new Envoy goes, and has taken over: another epoch of the former program does.
    FailedAfter(Failure),
}

/// An attempt with one new Envoy.
#[derive(Debug)]
pub struct Attempt {
    /// The number of the new Envoy.
    epoch: u32,
    limits: AttemptLimits,
    before: Before,
    started: Instant,
    /// Since when it is LIVE.
    live_since: Option<Instant>,
}

impl Attempt {
    /// An attempt that starts now.
    #[must_use]
    pub fn new(epoch: u32, limits: AttemptLimits, before: Before, now: Instant) -> Self {
        Self {
            epoch,
            limits,
            before,
            started: now,
            live_since: None,
        }
    }

    /// Judges what is seen of the new Envoy.
    pub fn observe(&mut self, now: Instant, seen: &Observation) -> Verdict {
        let server = seen
            .server
            .as_ref()
            .filter(|server| server.epoch == self.epoch);
        if self.live_since.is_none() && server.is_some_and(|server| server.is_live) {
            self.live_since = Some(now);
        }

        match self.live_since {
            None => match self.fails_to_start(now, seen, server) {
                Some(failure) => Verdict::FailedBefore(failure),
                None => Verdict::Starting,
            },
            Some(since) => match self.fails_to_serve(seen, server) {
                Some(failure) => Verdict::FailedAfter(failure),
                None => self.verdict(now, since, seen, server),
            },
        }
    }

    fn fails_to_start(
        &self,
        now: Instant,
        seen: &Observation,
        server: Option<&ServerInfo>,
    ) -> Option<Failure> {
        if let Some(status) = &seen.exit {
            return Some(Failure::Exited(status.clone()));
        }
        if let Some(failure) = self.rejection(seen) {
            return Some(failure);
        }
        let is_late = now.saturating_duration_since(self.started) > self.limits.start;
        is_late.then(|| Failure::NotLive {
            limit: self.limits.start,
            state: state(server),
        })
    }

    fn fails_to_serve(&self, seen: &Observation, server: Option<&ServerInfo>) -> Option<Failure> {
        if let Some(status) = &seen.exit {
            return Some(Failure::Exited(status.clone()));
        }
        if let Some(server) = server.filter(|server| !server.is_live) {
            return Some(Failure::NoLongerLive(server.state.clone()));
        }
        self.rejection(seen).or_else(|| self.too_many_errors(seen))
    }

    /// The verdict on an Envoy that does not fail.
    fn verdict(
        &self,
        now: Instant,
        since: Instant,
        seen: &Observation,
        server: Option<&ServerInfo>,
    ) -> Verdict {
        let judged = now.saturating_duration_since(since);
        if judged < self.limits.judging {
            return Verdict::Judging;
        }
        let missing = self.missing_type(seen);
        if server.is_some() && missing.is_none() {
            return Verdict::Stays;
        }

        // The control plane, or Envoy's admin API, may just be slow.
        if judged < self.limits.judging.saturating_add(self.limits.start) {
            return Verdict::Judging;
        }
        Verdict::FailedAfter(match missing {
            Some(type_url) => Failure::NotConfigured(type_url),
            None => Failure::NoLongerLive(state(server)),
        })
    }

    /// Configuration that the new Envoy rejects, and the old one did not.
    fn rejection(&self, seen: &Observation) -> Option<Failure> {
        let before: BTreeSet<_> = self
            .before
            .report
            .iter()
            .flat_map(|report| report.rejected.keys())
            .collect();
        let rejected = &seen.report.as_ref()?.rejected;
        let (type_url, reason) = rejected.iter().find(|(url, _)| !before.contains(url))?;
        Some(Failure::Rejected {
            type_url: type_url.clone(),
            reason: reason.clone(),
        })
    }

    /// A required type that the new Envoy has not accepted, and the old one had.
    fn missing_type(&self, seen: &Observation) -> Option<&'static str> {
        let before = &self.before.report.as_ref()?.accepted;
        let accepted = |url: &str| {
            seen.report
                .as_ref()
                .is_some_and(|report| report.accepted.contains(url))
        };
        REQUIRED_TYPES
            .into_iter()
            .find(|url| before.contains(*url) && !accepted(url))
    }

    fn too_many_errors(&self, seen: &Observation) -> Option<Failure> {
        let after = seen.requests.filter(|count| count.total >= MIN_REQUESTS)?;
        // Without enough requests before, none counts as failed.
        let before = self
            .before
            .requests
            .filter(|count| count.total >= MIN_REQUESTS)
            .map_or(0, percent);
        let after = percent(after);
        (after > before + MARGIN_PERCENT).then_some(Failure::Errors { before, after })
    }
}

/// The share of errors in percent.
fn percent(count: RequestCount) -> u64 {
    let share = u128::from(count.errors) * 100 / u128::from(count.total.max(1));
    u64::try_from(share).unwrap_or(100).min(100)
}

/// The share of errors in words, as it is judged.
pub(super) fn share(count: RequestCount) -> String {
    let total = count.total;
    if total < MIN_REQUESTS {
        return format!("{total} requests are too few");
    }
    format!("{} % of {total} requests", percent(count))
}

fn state(server: Option<&ServerInfo>) -> String {
    server.map_or_else(
        || "without an answer on its admin port".to_owned(),
        |server| server.state.clone(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AttemptLimits = AttemptLimits {
        fetch: Duration::from_mins(1),
        start: Duration::from_secs(60),
        judging: Duration::from_secs(30),
    };

    fn server(epoch: u32, state: &str) -> Option<ServerInfo> {
        Some(ServerInfo {
            is_live: state == "LIVE",
            state: state.to_owned(),
            version: "c/1.40.0/Clean/RELEASE/BoringSSL".to_owned(),
            epoch,
        })
    }

    fn accepted() -> Option<StreamReport> {
        Some(StreamReport {
            accepted: REQUIRED_TYPES.map(str::to_owned).into(),
            ..StreamReport::default()
        })
    }

    fn rejected(type_url: &str) -> Option<StreamReport> {
        let reason = "no such filter".to_owned();
        Some(StreamReport {
            rejected: [(type_url.to_owned(), reason)].into(),
            ..accepted().unwrap()
        })
    }

    fn before() -> Before {
        Before {
            requests: Some(RequestCount {
                total: 1000,
                errors: 10,
            }),
            report: accepted(),
        }
    }

    /// An attempt with epoch 1, and a clock for it in seconds.
    fn attempt(before: Before) -> (Attempt, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        let at = move |seconds| start + Duration::from_secs(seconds);
        (Attempt::new(1, LIMITS, before, start), at)
    }

    fn live() -> Observation {
        Observation {
            server: server(1, "LIVE"),
            report: accepted(),
            ..Observation::default()
        }
    }

    #[test]
    fn an_envoy_that_is_live_and_configured_for_long_enough_stays() {
        let (mut attempt, at) = attempt(before());
        let old = Observation {
            server: server(0, "LIVE"),
            ..Observation::default()
        };
        assert_eq!(attempt.observe(at(0), &old), Verdict::Starting);
        assert_eq!(
            attempt.observe(at(1), &Observation::default()),
            Verdict::Starting
        );
        assert_eq!(attempt.observe(at(10), &live()), Verdict::Judging);
        assert_eq!(attempt.observe(at(39), &live()), Verdict::Judging);
        assert_eq!(attempt.observe(at(40), &live()), Verdict::Stays);
    }

    #[test]
    fn an_envoy_that_does_not_become_live_is_killed_while_the_old_one_serves() {
        let (mut late, at) = attempt(before());
        let starting = Observation {
            server: server(1, "PRE_INITIALIZING"),
            ..Observation::default()
        };
        assert_eq!(late.observe(at(60), &starting), Verdict::Starting);
        let Verdict::FailedBefore(failure) = late.observe(at(61), &starting) else {
            panic!("it goes on");
        };
        assert!(
            failure.to_string().contains("PRE_INITIALIZING"),
            "{failure}"
        );

        let (mut exits, at) = attempt(before());
        let exit = Observation {
            exit: Some("exit status: 1".to_owned()),
            ..Observation::default()
        };
        let failure = Failure::Exited("exit status: 1".to_owned());
        assert_eq!(exits.observe(at(1), &exit), Verdict::FailedBefore(failure));
    }

    #[test]
    fn a_rejection_counts_if_the_old_envoy_accepts_the_same() {
        let url = REQUIRED_TYPES[1];
        let seen = Observation {
            report: rejected(url),
            ..live()
        };
        let (mut rejects, at) = attempt(before());
        assert_eq!(rejects.observe(at(1), &live()), Verdict::Judging);
        let verdict = rejects.observe(at(2), &seen);
        assert!(
            matches!(&verdict, Verdict::FailedAfter(Failure::Rejected { type_url, .. }) if type_url == url),
            "{verdict:?}"
        );

        let starting = Observation {
            server: server(1, "INITIALIZING"),
            ..seen.clone()
        };
        let (mut early, at) = attempt(before());
        let verdict = early.observe(at(1), &starting);
        assert!(matches!(verdict, Verdict::FailedBefore(_)), "{verdict:?}");

        let both = Before {
            report: rejected(url),
            ..before()
        };
        let (mut same, at) = attempt(both);
        same.observe(at(1), &seen);
        assert_eq!(same.observe(at(31), &seen), Verdict::Stays);
    }

    #[test]
    fn an_envoy_without_configuration_gets_more_time_and_no_more() {
        let (mut attempt, at) = attempt(before());
        let seen = Observation {
            report: None,
            ..live()
        };
        assert_eq!(attempt.observe(at(0), &seen), Verdict::Judging);
        assert_eq!(attempt.observe(at(89), &seen), Verdict::Judging);
        let failure = Failure::NotConfigured(REQUIRED_TYPES[0]);
        assert_eq!(
            attempt.observe(at(90), &seen),
            Verdict::FailedAfter(failure)
        );
    }

    #[test]
    fn an_envoy_that_had_no_control_plane_needs_none() {
        let (mut attempt, at) = attempt(Before::default());
        let seen = Observation {
            report: None,
            ..live()
        };
        attempt.observe(at(0), &seen);
        assert_eq!(attempt.observe(at(30), &seen), Verdict::Stays);
    }

    #[test]
    fn errors_count_by_their_share_and_not_if_there_are_few_requests() {
        let with = |total, errors| Observation {
            requests: Some(RequestCount { total, errors }),
            ..live()
        };
        let (mut worse, at) = attempt(before());
        assert_eq!(worse.observe(at(1), &with(49, 49)), Verdict::Judging);
        assert_eq!(worse.observe(at(2), &with(1000, 69)), Verdict::Judging);
        let failure = Failure::Errors {
            before: 1,
            after: 7,
        };
        assert_eq!(
            worse.observe(at(3), &with(1000, 70)),
            Verdict::FailedAfter(failure)
        );
    }

    #[test]
    fn an_envoy_that_stops_being_live_is_replaced_by_the_former_program() {
        let (mut drains, at) = attempt(before());
        drains.observe(at(1), &live());
        let draining = Observation {
            server: server(1, "DRAINING"),
            ..live()
        };
        let failure = Failure::NoLongerLive("DRAINING".to_owned());
        assert_eq!(
            drains.observe(at(2), &draining),
            Verdict::FailedAfter(failure)
        );

        // One missing answer is not a verdict.
        let (mut silent, at) = attempt(before());
        silent.observe(at(1), &live());
        let no_answer = Observation {
            server: None,
            ..live()
        };
        assert_eq!(silent.observe(at(2), &no_answer), Verdict::Judging);
        assert_eq!(silent.observe(at(31), &no_answer), Verdict::Judging);
        assert_eq!(silent.observe(at(32), &live()), Verdict::Stays);
    }
}

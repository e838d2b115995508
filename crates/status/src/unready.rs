//! Writes an Event about why the control plane's own pod is not ready: for a failed probe,
//! `kubectl describe` shows only the status code, not the body.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Resource as _};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::denials::Denials;
use super::events::{Events, Warning};
use navarch_kubernetes::InWords;

/// Poll interval of readiness.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long something must be missing before it is reported, as a start takes time.
const DELAY: Duration = Duration::from_secs(10);
/// Minimum interval of Events.
const MIN_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of repeating an unchanged Event: the API server drops Events after an hour.
const REPEAT_INTERVAL: Duration = Duration::from_mins(30);

/// Returns what is missing for readiness; empty once ready.
pub type Missing = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Writes Events about missing readiness.
#[derive(Clone)]
pub struct UnreadyEvents {
    /// The client of the API server.
    pub cluster: Cluster,
    /// The namespace of the pod.
    pub namespace: String,
    /// This replica's own pod.
    pub pod: String,
    /// Returns what is missing for readiness.
    pub missing: Missing,
}

impl fmt::Debug for UnreadyEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnreadyEvents")
            .field("pod", &self.pod)
            .finish_non_exhaustive()
    }
}

/// What was reported, and since when something is missing.
#[derive(Debug, Default)]
struct EventHistory {
    since: Option<Instant>,
    last: Option<(Instant, String)>,
}

impl EventHistory {
    /// The note of the Event to write now, if any.
    fn next(&mut self, missing: Option<String>, now: Instant) -> Option<String> {
        let Some(missing) = missing else {
            self.since = None;
            return None;
        };

        let since = *self.since.get_or_insert(now);
        let is_repeated = self.last.as_ref().is_some_and(|(at, reported)| {
            let wait = if *reported == missing {
                REPEAT_INTERVAL
            } else {
                MIN_INTERVAL
            };
            now.duration_since(*at) < wait
        });

        if is_repeated || now.duration_since(since) < DELAY {
            return None;
        }

        self.last = Some((now, missing.clone()));
        Some(missing)
    }
}

impl UnreadyEvents {
    /// Runs until `stop` is cancelled. Events that cannot be written are logged.
    pub async fn run(self, stop: CancellationToken) {
        let mut history = EventHistory::default();
        let events = Events {
            cluster: self.cluster.clone(),
            identity: self.pod.clone(),
            denials: Denials::default(),
        };

        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(CHECK_INTERVAL) => {}
            }
            let Some(note) = history.next((self.missing)(), Instant::now()) else {
                continue;
            };

            tracing::warn!(missing = note, "not ready");
            let outcome = tokio::select! {
                () = stop.cancelled() => return,
                outcome = timeout(MIN_INTERVAL, self.write_event(&events, &note)) => outcome,
            };
            let error = match outcome {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => InWords(&error).to_string(),
                Err(late) => late.to_string(),
            };

            tracing::warn!(
                pod = self.pod,
                error,
                "failed to write a readiness Event for this pod"
            );
        }
    }

    /// Writes the Event. Events of a pod are also selected by its UID.
    async fn write_event(&self, events: &Events, note: &str) -> Result<(), kube::Error> {
        let pods = Api::<Pod>::namespaced(self.cluster.0.clone(), &self.namespace);
        let pod = pods.get(&self.pod).await?.object_ref(&());
        events
            .warn(
                pod,
                Warning {
                    reason: "NotReady",
                    action: "Start",
                    note,
                },
            )
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which something is reported, given what is missing in each.
    fn reported(missing: impl Fn(u64) -> Option<&'static str>, seconds: u64) -> Vec<(u64, String)> {
        let begin = Instant::now();
        let mut history = EventHistory::default();
        let look = |second| {
            let note = history.next(
                missing(second).map(str::to_owned),
                begin + Duration::from_secs(second),
            )?;
            Some((second, note))
        };
        (0..=seconds).filter_map(look).collect()
    }

    #[tokio::test]
    async fn only_lasting_unreadiness_is_reported() {
        assert_eq!(reported(|second| (second < 9).then_some("a"), 100), []);
        let event = |second, note: &str| (second, note.to_owned());
        assert_eq!(
            reported(|_| Some("a"), 2000),
            [event(10, "a"), event(1810, "a")]
        );
        // Even if the missing parts change each second, logs and Events stay few.
        let flapping = reported(|second| Some(if second % 2 == 0 { "a" } else { "b" }), 100);
        assert_eq!(flapping, [event(10, "a"), event(41, "b"), event(72, "a")]);
        // It was ready in between, for a moment.
        let again = reported(|second| (second != 20).then_some("a"), 100);
        assert_eq!(again, [event(10, "a")]);
        let other = reported(|second| Some(if second < 15 { "a" } else { "b" }), 100);
        assert_eq!(other, [event(10, "a"), event(40, "b")]);
    }
}

//! A staged change of pods: patches some, waits for their results, goes on or stops.

use std::cell::Cell;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use navarch_agent::upgrade::status::{ProxyStatus, UpgradeState};
use navarch_api::rollout::Stages;
use tokio::time::{Instant, sleep};

use super::report::{ChangeReport, PodResult, PodState, StageReport, StatusReport};

/// Maximum number of pods that are queried at once.
const MAX_CONCURRENT: usize = 16;

/// The pods of a cluster.
pub(super) trait Fleet {
    /// Sets the annotation of a pod; an empty value removes it.
    ///
    /// # Errors
    /// If the pod cannot be patched.
    async fn annotate(&self, pod: &str, wanted: &str) -> anyhow::Result<()>;

    /// The status of Envoy that the agent of a pod reports.
    ///
    /// # Errors
    /// If the agent does not respond, or has no such page.
    async fn status(&self, pod: &str) -> anyhow::Result<ProxyStatus>;
}

/// A change of all pods.
#[derive(Debug)]
pub(super) struct StagedChange {
    /// The value of the annotation; empty removes it.
    pub(super) wanted: String,
    pub(super) stages: Stages,
    /// How long each pod may take.
    pub(super) timeout: Duration,
    /// Interval at which a pod is asked for its result.
    pub(super) poll_interval: Duration,
}

impl StagedChange {
    /// Changes pods stage by stage, until one fails; changes that have begun are waited for.
    /// `say` receives the progress.
    pub(super) async fn run(
        &self,
        fleet: &impl Fleet,
        pods: &[String],
        say: impl Fn(String),
    ) -> ChangeReport {
        let mut report = ChangeReport::new(&self.wanted);
        let mut begun = 0;
        let has_failed = Cell::new(false);

        for share in self.stages.shares() {
            let size = size_of_stage(*share, pods.len());
            let stage = pods.get(begun..size).unwrap_or_default();
            if stage.is_empty() {
                continue;
            }
            say(format!("{share}: waiting for {} pods", stage.len()));

            let asked = stage.iter().take_while(|_| !has_failed.get());
            let results = stream::iter(asked)
                .map(|pod| self.change_noting_failure(fleet, pod, &has_failed))
                .buffered(MAX_CONCURRENT)
                .collect::<Vec<_>>()
                .await;
            begun = size;

            report.stages.push(StageReport {
                share: share.to_string(),
                pods: size,
            });
            report.pods.extend(results);
            if has_failed.get() {
                report.is_stopped = true;
                break;
            }
        }

        report.not_asked = pods.len().saturating_sub(report.pods.len());
        report
    }

    /// As [`Self::change`]; sets the flag at once if the pod does not have it, before its result is
    /// looked at in turn.
    async fn change_noting_failure(
        &self,
        fleet: &impl Fleet,
        pod: &str,
        has_failed: &Cell<bool>,
    ) -> PodResult {
        let result = self.change(fleet, pod).await;
        if result.state != PodState::Done {
            has_failed.set(true);
        }
        result
    }

    /// Changes one pod, and waits for its result.
    async fn change(&self, fleet: &impl Fleet, pod: &str) -> PodResult {
        let refused = |reason: String| PodResult {
            pod: pod.to_owned(),
            state: PodState::Unable,
            version: String::new(),
            reason,
        };

        // A pod that cannot do it is not patched.
        match fleet.status(pod).await {
            Ok(status) if !status.enabled => {
                let reason = "it was started without NAVARCH_PROXY_UPGRADE=true in proxyMetadata";
                return refused(reason.to_owned());
            }
            Ok(_) => {}
            Err(error) => return refused(format!("{error:#}")),
        }
        if let Err(error) = fleet.annotate(pod, &self.wanted).await {
            return refused(format!("{error:#}"));
        }

        self.wait(fleet, pod).await
    }

    /// Waits for the result of a pod.
    async fn wait(&self, fleet: &impl Fleet, pod: &str) -> PodResult {
        let end = Instant::now() + self.timeout;
        loop {
            let status = fleet.status(pod).await;
            if let Ok(status) = &status
                && let Some(state) = self.result(status)
            {
                return PodResult {
                    pod: pod.to_owned(),
                    state,
                    version: status.version.clone(),
                    reason: status.reason.clone(),
                };
            }

            if Instant::now() >= end {
                let last = match status {
                    Ok(status) => {
                        format!("its state is {:?} for {:?}", status.state, status.wanted)
                    }
                    Err(error) => format!("{error:#}"),
                };
                return PodResult {
                    pod: pod.to_owned(),
                    state: PodState::TimedOut,
                    version: String::new(),
                    reason: format!("no result within {:?}: {last}", self.timeout),
                };
            }
            sleep(self.poll_interval).await;
        }
    }

    /// The result that a status has for this change.
    fn result(&self, status: &ProxyStatus) -> Option<PodState> {
        if status.wanted != self.wanted {
            return None;
        }
        match status.state {
            UpgradeState::Done => Some(PodState::Done),
            // The program of the image runs, and no other was ever asked for.
            UpgradeState::Idle => self.wanted.is_empty().then_some(PodState::Done),
            UpgradeState::Refused => Some(PodState::Refused),
            UpgradeState::Failed => Some(PodState::Failed),
            UpgradeState::Fetching
            | UpgradeState::Waiting
            | UpgradeState::Starting
            | UpgradeState::Judging => None,
        }
    }
}

/// The number of pods in a share: at least one.
fn size_of_stage(share: navarch_api::rollout::Share, pods: usize) -> usize {
    let hash = |index: usize| (index as u64 * 10_000) / (pods.max(1) as u64);
    (0..pods)
        .take_while(|index| share.contains(hash(*index)))
        .count()
}

/// What all pods say.
pub(super) async fn statuses(fleet: &impl Fleet, pods: &[String]) -> StatusReport {
    let asked = stream::iter(pods).map(|pod| async move {
        let status = fleet.status(pod).await;
        (pod.clone(), status.map_err(|error| format!("{error:#}")))
    });
    StatusReport(asked.buffered(MAX_CONCURRENT).collect().await)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anyhow::bail;
    use parking_lot::Mutex;

    use super::*;

    const WANTED: &str = "/usr/local/bin/envoy-1.40";

    /// Pods whose agents take a few questions to do what their annotation asks.
    #[derive(Default)]
    struct FakeFleet {
        annotations: Mutex<BTreeMap<String, String>>,
        asked: Mutex<BTreeMap<String, usize>>,
        /// The result of a pod, if not done.
        results: BTreeMap<String, UpgradeState>,
        /// Pods without the setting.
        disabled: Vec<String>,
    }

    impl Fleet for FakeFleet {
        async fn annotate(&self, pod: &str, wanted: &str) -> anyhow::Result<()> {
            self.annotations
                .lock()
                .insert(pod.to_owned(), wanted.to_owned());
            Ok(())
        }

        async fn status(&self, pod: &str) -> anyhow::Result<ProxyStatus> {
            if pod == "gone" {
                bail!("no such pod");
            }
            let enabled = !self.disabled.iter().any(|name| name == pod);
            let mut status = ProxyStatus {
                enabled,
                ..ProxyStatus::default()
            };
            let Some(wanted) = self.annotations.lock().get(pod).cloned() else {
                return Ok(status);
            };

            let mut asked = self.asked.lock();
            let count = asked.entry(pod.to_owned()).or_default();
            *count += 1;
            if *count > 3 {
                let result = self.results.get(pod).copied();
                status.wanted = wanted;
                status.state = result.unwrap_or(UpgradeState::Done);
            }
            Ok(status)
        }
    }

    fn pods(count: usize) -> Vec<String> {
        (0..count).map(|index| format!("web-{index:02}")).collect()
    }

    fn change(stages: &str) -> StagedChange {
        StagedChange {
            wanted: WANTED.to_owned(),
            stages: Stages::parse(stages).unwrap(),
            timeout: Duration::from_millis(300),
            poll_interval: Duration::from_millis(2),
        }
    }

    #[tokio::test]
    async fn all_pods_are_changed_in_stages_of_at_least_one() {
        let fleet = FakeFleet::default();
        let report = change("5%,25%,100%").run(&fleet, &pods(10), |_| {}).await;

        let sizes: Vec<_> = report.stages.iter().map(|stage| stage.pods).collect();
        assert_eq!(sizes, [1, 3, 10]);
        assert!(!report.is_stopped && report.not_asked == 0);
        assert_eq!(fleet.annotations.lock().len(), 10);

        let one = change("5%,25%,100%").run(&fleet, &pods(1), |_| {}).await;
        assert_eq!(one.pods.len(), 1);
    }

    #[tokio::test]
    async fn the_first_failure_stops_and_later_pods_are_not_patched() {
        let fleet = FakeFleet {
            results: [("web-01".to_owned(), UpgradeState::Failed)].into(),
            ..FakeFleet::default()
        };
        let report = change("10%,30%,100%").run(&fleet, &pods(10), |_| {}).await;

        assert!(report.is_stopped);
        assert_eq!(report.not_asked, 7);
        assert_eq!(fleet.annotations.lock().len(), 3);
        let failed: Vec<_> = report
            .pods
            .iter()
            .filter(|result| result.state == PodState::Failed)
            .map(|result| result.pod.as_str())
            .collect();
        assert_eq!(failed, ["web-01"]);
    }

    #[tokio::test]
    async fn a_failure_within_a_stage_stops_the_stage() {
        let fleet = FakeFleet {
            results: [("web-00".to_owned(), UpgradeState::Failed)].into(),
            ..FakeFleet::default()
        };
        let report = change("100%").run(&fleet, &pods(100), |_| {}).await;

        assert!(report.is_stopped);
        let asked = fleet.annotations.lock().len();
        assert!(asked <= MAX_CONCURRENT + 1, "{asked}");
        assert_eq!(report.not_asked, 100 - asked);
    }

    #[tokio::test]
    async fn pods_that_cannot_do_it_are_not_patched() {
        let fleet = FakeFleet {
            disabled: vec!["web-00".to_owned()],
            ..FakeFleet::default()
        };
        for pod in ["web-00", "gone"] {
            let report = change("100%").run(&fleet, &[pod.to_owned()], |_| {}).await;
            assert!(report.is_stopped);
            assert_eq!(report.pods[0].state, PodState::Unable);
        }
        assert!(fleet.annotations.lock().is_empty());
    }

    #[tokio::test]
    async fn a_pod_without_a_result_in_time_is_a_failure() {
        let fleet = FakeFleet {
            results: [("web-00".to_owned(), UpgradeState::Judging)].into(),
            ..FakeFleet::default()
        };
        let report = change("100%").run(&fleet, &pods(1), |_| {}).await;
        assert_eq!(report.pods[0].state, PodState::TimedOut);
        assert!(report.pods[0].reason.contains("Judging"));
    }

    #[tokio::test]
    async fn the_way_back_removes_the_annotation() {
        let fleet = FakeFleet::default();
        let back = StagedChange {
            wanted: String::new(),
            ..change("100%")
        };
        let report = back.run(&fleet, &pods(2), |_| {}).await;
        assert!(!report.is_stopped);
        let annotations = fleet.annotations.lock();
        assert!(annotations.values().all(String::is_empty));
    }
}

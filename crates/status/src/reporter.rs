//! Maintains this replica's distribution report, which the leader reads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::distribution::Progresses;
use super::report;
use navarch_kubernetes::InWords;

/// Interval of renewing an unchanged report.
const RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// Debounce time of changes.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// Maximum time to delete the report at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Reports the progress of objects among this replica's proxies to other replicas.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The client of the API server.
    pub cluster: Cluster,
    /// The ConfigMaps of reports.
    pub namespace: String,
    /// The identity of this replica, as in leader locks.
    pub identity: String,
    /// The progress of objects on this replica.
    pub progresses: watch::Receiver<Progresses>,
}

impl Reporter {
    /// Runs until `stop` is cancelled; then deletes the report.
    pub async fn run(mut self, stop: CancellationToken) {
        let maps = Api::<ConfigMap>::namespaced(self.cluster.0.clone(), &self.namespace);
        let mut renewal = interval(RENEW_INTERVAL);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut written = None;
        let mut count = 0;

        loop {
            let is_renewal = tokio::select! {
                () = stop.cancelled() => break,
                changed = self.progresses.changed() => match changed {
                    Ok(()) => false,
                    Err(_) => break,
                },
                _ = renewal.tick() => true,
            };

            let now = report::write(&self.progresses.borrow_and_update().clone());
            if !is_renewal && written.as_ref() == Some(&now) {
                continue;
            }

            let outcome = tokio::select! {
                () = stop.cancelled() => break,
                outcome = self.put(&maps, &now, count) => outcome,
            };
            match outcome {
                Ok(()) => {
                    count = now.len();
                    written = Some(now);
                    renewal.reset();
                }
                Err(error) => {
                    tracing::warn!(error = %InWords(&error), "failed to report distribution status");
                    written = None;
                }
            }

            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(DEBOUNCE) => {}
            }
        }

        // The leader would notice, but only later.
        drop(timeout(SHUTDOWN_GRACE, self.take_away(&maps, 0..count)).await);
    }

    /// Writes the parts, and deletes earlier parts that are not needed any more.
    async fn put(
        &self,
        maps: &Api<ConfigMap>,
        parts: &[String],
        before: usize,
    ) -> Result<(), kube::Error> {
        for (index, part) in parts.iter().enumerate() {
            let name = self.name(index);
            let now = jiff::Timestamp::now().to_string();
            let data = report::data(part, &self.identity, now);

            let labels = BTreeMap::from([(report::LABEL.to_owned(), "true".to_owned())]);
            let mut map = ConfigMap {
                data: Some(data),
                ..ConfigMap::default()
            };
            map.metadata = ObjectMeta {
                name: Some(name.clone()),
                labels: Some(labels),
                ..ObjectMeta::default()
            };

            // Without a version it replaces any existing object, as there is no other writer.
            match maps.replace(&name, &PostParams::default(), &map).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    maps.create(&PostParams::default(), &map).await?;
                }
                outcome => drop(outcome?),
            }
        }

        self.take_away(maps, parts.len()..before).await;
        Ok(())
    }

    /// Deletes parts of the report.
    async fn take_away(&self, maps: &Api<ConfigMap>, parts: Range<usize>) {
        for index in parts {
            drop(
                maps.delete(&self.name(index), &DeleteParams::default())
                    .await,
            );
        }
    }

    /// The name of a part.
    fn name(&self, index: usize) -> String {
        match index {
            0 => format!("{}-distribution", self.identity),
            _ => format!("{}-distribution-{index}", self.identity),
        }
    }
}

//! Metrics of remote clusters, under istiod's names (`pkg/kube/multicluster`).

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::SyncStatus;
use navarch_api::names::ClusterId;
use navarch_base::label_text::LabelText;

/// Whether it is the cluster that configures the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabel {
    cluster_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabel {
    cluster: LabelText,
}

/// A cluster and its sync status.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    cluster: LabelText,
    cluster_type: &'static str,
    status: &'static str,
}

/// The event of a Secret or file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabel {
    event: &'static str,
}

/// The metrics. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    clusters: Family<TypeLabel, Gauge>,
    timeouts: Family<ClusterLabel, Counter>,
    statuses: Family<StatusLabels, Gauge>,
    events: Family<EventLabel, Counter>,
}

impl Metrics {
    /// Registers the metrics; the own cluster is counted from the start.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "istiod_managed_clusters",
            "Clusters being read",
            metrics.clusters.clone(),
        );

        registry.register(
            "remote_cluster_sync_timeouts",
            "Remote clusters that were not read within the timeout",
            metrics.timeouts.clone(),
        );

        registry.register(
            "istiod_remote_cluster_sync_status",
            "1 for the current sync status of a remote cluster",
            metrics.statuses.clone(),
        );

        registry.register(
            "remote_cluster_secret_events",
            "Secrets and files of remote clusters that were added, updated or deleted",
            metrics.events.clone(),
        );

        metrics
            .clusters
            .get_or_create(&TypeLabel {
                cluster_type: "local",
            })
            .set(1);

        metrics.managed(0);
        metrics
    }

    /// Sets the number of remote clusters.
    pub(super) fn managed(&self, clusters: usize) {
        let count = i64::try_from(clusters).unwrap_or(i64::MAX);
        self.clusters
            .get_or_create(&TypeLabel {
                cluster_type: "remote",
            })
            .set(count);
    }

    pub(super) fn timed_out(&self, cluster: &ClusterId) {
        self.timeouts
            .get_or_create(&ClusterLabel {
                cluster: cluster.to_string().into(),
            })
            .inc();
    }

    /// Sets the status of a cluster; `None` removes it.
    pub(super) fn status(&self, cluster: &ClusterId, status: Option<SyncStatus>) {
        for one in SyncStatus::ALL {
            let labels = StatusLabels {
                cluster: cluster.to_string().into(),
                cluster_type: "remote",
                status: one.as_str(),
            };
            match status {
                Some(status) => {
                    _ = self
                        .statuses
                        .get_or_create(&labels)
                        .set(i64::from(status == one))
                }
                None => _ = self.statuses.remove(&labels),
            }
        }
    }

    /// Counts an event of a Secret or file: `add`, `update` or `delete`.
    pub(super) fn event(&self, event: &'static str) {
        self.events.get_or_create(&EventLabel { event }).inc();
    }
}

//! Remote clusters: their services, endpoints and workloads are part of the mesh, which another
//! cluster configures.
//!
//! ```text
//! Secrets, or files of a directory ─▶ kubeconfigs ─▶ one reader for each cluster ─▶ push thread
//! ```
//!
//! Matches Istio's `pkg/kube/multicluster`.

mod clusters;
mod configs;
pub mod kubeconfig;
mod kubeconfig_source;
mod metrics;
mod reader;
mod status;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use clusters::Clusters;
use kubeconfig_source::KubeconfigSource;
pub use metrics::Metrics;
use navarch_api::names::{ClusterId, Namespace};
use navarch_kubernetes::ApiRate;
use navarch_push::worker::PushHandle;
use navarch_security::remote_servers::RemoteServers;
use navarch_source::{Batch, IDLE_TIMEOUT, KubernetesScope, Problems, SourceEvent};
pub use status::{ManagedCluster, ManagedClusters, SyncStatus};
use waiting::WaitingKubeconfigs;

/// Capacity of the channel of Secret and file events.
const CONFIG_EVENTS_CAPACITY: usize = 64;

/// Settings of remote clusters from flags and environment.
#[derive(Clone, Debug)]
pub struct RemotesConfig {
    /// `PILOT_MULTICLUSTER_KUBECONFIG_PATH`: a directory of kubeconfigs, which replaces the
    /// Secrets.
    pub directory: Option<PathBuf>,
    /// `--clusterRegistriesNamespace`: the namespace of the Secrets; the control plane's own
    /// namespace if unset.
    pub namespace: Option<String>,
    /// `LOCAL_CLUSTER_SECRET_WATCHER` with `EXTERNAL_ISTIOD`: whether the Secrets are in the
    /// cluster that the process runs in, instead of the one that configures the mesh. Default
    /// false.
    pub local_secrets: bool,
    /// `EXTERNAL_ISTIOD`: whether this control plane leads remote clusters that name its cluster.
    /// Default false.
    pub external: bool,
    /// `PILOT_REMOTE_CLUSTER_TIMEOUT`: how long the initial sync waits for a remote cluster; `None`
    /// is forever. Default 30s.
    pub timeout: Option<Duration>,
    /// `PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS`: insecure options that kubeconfigs may use.
    /// Default none.
    pub insecure: BTreeSet<String>,
    /// The objects of remote clusters to read.
    pub scope: KubernetesScope,
    /// Time without activity after which a connection is closed.
    pub idle_timeout: Duration,
    /// The rate limit of each API server, if there is one.
    pub rate: Option<ApiRate>,
    /// `TOKEN_AUDIENCES`: the expected audiences of tokens.
    pub audiences: Vec<String>,
}

impl Default for RemotesConfig {
    fn default() -> Self {
        Self {
            directory: None,
            namespace: None,
            local_secrets: false,
            external: false,
            timeout: Some(Duration::from_secs(30)),
            insecure: BTreeSet::new(),
            scope: KubernetesScope::default(),
            idle_timeout: IDLE_TIMEOUT,
            rate: None,
            audiences: vec!["istio-ca".to_owned()],
        }
    }
}

/// Runs the controllers of a remote cluster, with a client of its API server, until the token is
/// cancelled.
pub type Lead =
    Arc<dyn Fn(ClusterId, kube::Client, CancellationToken) -> BoxFuture<'static, ()> + Send + Sync>;

/// What the readers of remote clusters work with.
pub struct Parts {
    /// Where kubeconfigs of remote clusters are, and how they are read.
    pub config: RemotesConfig,
    /// The cluster that configures the mesh; kubeconfigs that name it are ignored.
    pub own: ClusterId,
    /// The namespace of this control plane.
    pub namespace: Namespace,
    /// The client of the cluster that configures the mesh, if there is one.
    pub client: Option<kube::Client>,
    /// The push thread, which receives the objects.
    pub push: PushHandle,
    /// Receives objects and kinds that cannot be read.
    pub problems: Problems,
    /// Receives the API servers, which review tokens.
    pub servers: RemoteServers,
    /// Counts clusters and events.
    pub metrics: Metrics,
    /// Receives the sync status of each cluster.
    pub clusters: ManagedClusters,
    /// Runs the controllers of each cluster.
    pub lead: Lead,
    /// Cancelled at shutdown.
    pub stop: CancellationToken,
}

/// The readers of remote clusters, whose futures the caller runs.
pub struct Remotes {
    /// Receives an event when the initial clusters were read, or have timed out.
    pub synced: mpsc::Receiver<Batch>,
    /// Follows kubeconfigs, and does not end; `None` if there is no source of them.
    pub kubeconfigs: Option<BoxFuture<'static, ()>>,
    /// Reads the clusters until shutdown.
    pub reading: BoxFuture<'static, ()>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("config", &self.config)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Remotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remotes").finish_non_exhaustive()
    }
}

/// The readers of remote clusters. They start to read once their futures are run.
#[must_use]
pub fn start(parts: Parts) -> Remotes {
    let (to_synced, synced) = mpsc::channel(1);
    let source = KubeconfigSource::of(&parts);
    let shown = parts.clusters.clone();
    let stop = parts.stop.clone();

    let Some(source) = source else {
        shown.set_listed();
        let reading = async move {
            _ = to_synced.send(vec![SourceEvent::FullSync]).await;
            stop.cancelled().await;
        };
        return Remotes {
            synced,
            kubeconfigs: None,
            reading: Box::pin(reading),
        };
    };

    let clusters = Clusters {
        config: parts.config,
        own: parts.own,
        push: parts.push,
        problems: parts.problems,
        servers: parts.servers,
        shown,
        metrics: parts.metrics,
        lead: parts.lead,
        managed: BTreeMap::new(),
        waiting: WaitingKubeconfigs::default(),
        next: 0,
        places: BTreeSet::new(),
        readers: JoinSet::new(),
        stop: parts.stop,
    };

    let (to_configs, configs) = mpsc::channel(CONFIG_EVENTS_CAPACITY);
    let reading = async move {
        clusters.run(configs, to_synced).await;
        stop.cancelled().await;
    };

    Remotes {
        synced,
        kubeconfigs: Some(Box::pin(source.follow(to_configs))),
        reading: Box::pin(reading),
    }
}

//! Remote clusters: their services, endpoints and workloads are part of the mesh, which another cluster configures.
//!
//! Agrees with Istio's `pkg/kube/multicluster`.

mod clusters;
mod configs;
pub(crate) mod kubeconfig;
mod leading;
pub(super) mod metrics;
mod reader;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::api_rate::ApiRate;
use super::controllers::{selected_namespaces, stays_local};
use super::{Config, Tasks, kubernetes, spawn, until};
use crate::admin::{ManagedClusters, Problems};
use clusters::Clusters;
use leading::Leading;
pub(super) use leading::{HookRoots, ToldRemotes};
use metrics::Metrics;
use navarch_push::worker::PushHandle;
use navarch_security::remote_servers::RemoteServers;
use navarch_source::{Batch, IDLE_TIMEOUT, KubernetesScope, SourceEvent};
use tokio_util::sync::CancellationToken;

/// Events of Secrets and files that may wait.
const CONFIGS: usize = 64;

/// What flags and environment say of remote clusters.
#[derive(Clone, Debug)]
pub struct RemotesConfig {
    /// `PILOT_MULTICLUSTER_KUBECONFIG_PATH`: a directory of kubeconfigs, in place of Secrets.
    pub directory: Option<PathBuf>,
    /// `--clusterRegistriesNamespace`: where the Secrets are; the control plane's own namespace where unset.
    pub namespace: Option<String>,
    /// `LOCAL_CLUSTER_SECRET_WATCHER` with `EXTERNAL_ISTIOD`: the Secrets are in the cluster that the process runs in, not in that
    /// which configures the mesh. Default false.
    pub local_secrets: bool,
    /// `EXTERNAL_ISTIOD`: remote clusters that name this control plane's cluster are led by it. Default false.
    pub external: bool,
    /// `PILOT_REMOTE_CLUSTER_TIMEOUT`: after so long the control plane goes on without a remote cluster; `None` for never.
    /// Default 30s.
    pub timeout: Option<Duration>,
    /// `PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS`: what kubeconfigs may have although it is insecure. Default nothing.
    pub insecure: BTreeSet<String>,
    /// What is read of remote clusters.
    pub scope: KubernetesScope,
    /// How long a connection may be silent before it counts as dead.
    pub idle_timeout: Duration,
    /// How often each API server may be asked, if there is a limit.
    pub rate: Option<ApiRate>,
    /// `TOKEN_AUDIENCES`: whom tokens must be for.
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

/// What others have of remote clusters.
pub(super) struct Followed {
    /// Tells when those that were there at start were read, or are late.
    pub(super) synced: mpsc::Receiver<Batch>,
    /// How far each has come.
    pub(super) clusters: ManagedClusters,
    /// Receives the configuration for remote clusters that are led.
    pub(super) told: watch::Sender<Option<ToldRemotes>>,
}

/// Starts to read remote clusters. `client` is that of the cluster that configures the mesh, where there is one.
pub(super) fn follow(
    config: &Config,
    (client, servers, problems): (Option<&kube::Client>, RemoteServers, Problems),
    push: &PushHandle,
    metrics: &mut Registry,
    (stop, tasks): (&CancellationToken, &mut Tasks),
) -> Followed {
    let (sender, told) = watch::channel(None);
    let shown = ManagedClusters::default();
    let (settings, writing) = (&config.settings, &config.writing);
    let leading = Leading {
        external: config.remotes.external,
        cluster: settings.cluster_id.clone(),
        namespace: settings.system_namespace.to_string(),
        identity: writing.identity.clone(),
        revision: writing.revision.clone(),
        elects: writing.elects,
        objects: writing.published.clone(),
        webhooks: config.webhooks.clone(),
        told,
        scope: selected_namespaces(writing.only.clone(), push, stop, tasks),
        exports: writing.exports.then(|| stays_local(push)),
    };
    let clusters = Clusters {
        config: config.remotes.clone(),
        own: settings.cluster_id.clone(),
        push: push.clone(),
        problems,
        servers,
        shown: shown.clone(),
        metrics: Metrics::register(metrics),
        leading,
        managed: BTreeMap::new(),
        next: 0,
        places: BTreeSet::new(),
        readers: JoinSet::new(),
        stop: stop.clone(),
    };
    let synced = start(clusters, Source::of(config, client), stop, tasks);
    Followed { synced, clusters: shown, told: sender }
}

/// Starts to read the clusters that a source tells of. What is given tells when those that were there at start were read, or are
/// late.
fn start(
    clusters: Clusters,
    source: Option<Source>,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) -> mpsc::Receiver<Batch> {
    let (synced, events) = mpsc::channel(1);
    let Some(source) = source else {
        // There is nowhere to hear of any.
        let stop = stop.clone();
        spawn("remote clusters", tasks, async move {
            _ = synced.send(vec![SourceEvent::FullSync]).await;
            stop.cancelled().await;
            Ok(())
        });
        return events;
    };
    let (to_configs, configs) = mpsc::channel(CONFIGS);
    let told = stop.clone();
    spawn("kubeconfigs", tasks, async move {
        until(&told, source.follow(to_configs)).await;
        Ok(())
    });
    let stop = stop.clone();
    spawn("remote clusters", tasks, async move {
        clusters.run(configs, synced).await;
        stop.cancelled().await;
        Ok(())
    });
    events
}

/// Where kubeconfigs come from.
enum Source {
    /// Files.
    Directory(PathBuf),
    /// Secrets of the cluster that configures the mesh.
    Secrets(kube::Client, String),
    /// Secrets of the cluster that the process runs in.
    LocalSecrets(String, Option<ApiRate>),
}

impl Source {
    /// Where they come from, if from anywhere.
    fn of(config: &Config, client: Option<&kube::Client>) -> Option<Self> {
        let remotes = &config.remotes;
        if let Some(directory) = &remotes.directory {
            return Some(Self::Directory(directory.clone()));
        }
        let client = client?;
        let own = config.settings.system_namespace.as_str();
        let namespace = remotes.namespace.as_deref().unwrap_or(own).to_owned();
        let local = remotes.local_secrets && remotes.external;
        Some(if local { Self::LocalSecrets(namespace, remotes.rate) } else { Self::Secrets(client.clone(), namespace) })
    }

    /// Tells of them until nobody listens.
    async fn follow(self, events: mpsc::Sender<configs::ConfigEvent>) {
        let ended = match self {
            Self::Directory(directory) => configs::follow_directory(directory, events).await,
            Self::Secrets(client, namespace) => configs::follow_secrets(client, &namespace, events).await,
            Self::LocalSecrets(namespace, rate) => match kubernetes::client(None, rate).await {
                Ok(client) => configs::follow_secrets(client, &namespace, events).await,
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(
                        error,
                        "LOCAL_CLUSTER_SECRET_WATCHER: failed to create a client for the local cluster"
                    );
                    events.send(configs::ConfigEvent::Synced).await.map_err(|_| configs::Closed)
                }
            },
        };
        if ended.is_ok() {
            // It must not end before shutdown.
            std::future::pending().await
        }
    }
}

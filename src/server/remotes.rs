//! Remote clusters: their services, endpoints and workloads are part of the mesh, which another
//! cluster configures.
//!
//! Matches Istio's `pkg/kube/multicluster`.

mod clusters;
mod configs;
pub(crate) mod kubeconfig;
mod leading;
pub(super) mod metrics;
mod reader;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::Config;
use super::boot::Boot;
use super::controllers::{selected_namespaces, stays_local};
use crate::admin::ManagedClusters;
use clusters::Clusters;
use leading::Leading;
pub(super) use leading::{HookRoots, WrittenRemotes};
use metrics::Metrics;
use navarch_api::error_chain::chain;
use navarch_kubernetes::ApiRate;
use navarch_push::worker::PushHandle;
use navarch_security::remote_servers::RemoteServers;
use navarch_source::{Batch, IDLE_TIMEOUT, KubernetesScope, SourceEvent};

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

/// The interfaces of the reader of remote clusters.
pub(super) struct Followed {
    /// Receives an event when the initial clusters were read, or have timed out.
    pub(super) synced: mpsc::Receiver<Batch>,
    /// The sync status of each.
    pub(super) clusters: ManagedClusters,
    /// Receives the configuration for remote clusters that are led.
    pub(super) written: watch::Sender<Option<WrittenRemotes>>,
}

/// Starts to read remote clusters. `client` is that of the cluster that configures the mesh, if
/// there is one.
pub(super) fn follow(
    config: &Config,
    client: Option<&kube::Client>,
    servers: RemoteServers,
    push: &PushHandle,
    boot: &mut Boot,
) -> Followed {
    let (sender, receiver) = watch::channel(None);
    let shown = ManagedClusters::default();
    let settings = &config.settings;
    let writing = &config.writing;
    let leading = Leading {
        external: config.remotes.external,
        cluster: settings.cluster_id.clone(),
        namespace: settings.system_namespace.to_string(),
        identity: writing.identity.clone(),
        revision: writing.revision.clone(),
        elects: writing.elects,
        objects: writing.published.clone(),
        webhooks: config.webhooks.clone(),
        written: receiver,
        scope: selected_namespaces(writing.only.clone(), push, boot),
        exports: writing.exports.then(|| stays_local(push)),
    };

    let clusters = Clusters {
        config: config.remotes.clone(),
        own: settings.cluster_id.clone(),
        push: push.clone(),
        problems: boot.problems.clone(),
        servers,
        shown: shown.clone(),
        metrics: boot.register(Metrics::register),
        leading,
        managed: BTreeMap::new(),
        next: 0,
        places: BTreeSet::new(),
        readers: JoinSet::new(),
        stop: boot.stop.clone(),
    };

    let synced = start(clusters, Source::of(config, client), boot);
    Followed {
        synced,
        clusters: shown,
        written: sender,
    }
}

/// Starts to read the clusters of a source. The receiver gets an event when the initial clusters
/// were read, or have timed out.
fn start(clusters: Clusters, source: Option<Source>, boot: &mut Boot) -> mpsc::Receiver<Batch> {
    let (synced, events) = mpsc::channel(1);
    let stop = boot.stop.clone();
    let Some(source) = source else {
        // There is no source of clusters.
        boot.spawn("remote clusters", async move {
            _ = synced.send(vec![SourceEvent::FullSync]).await;
            stop.cancelled().await;
        });
        return events;
    };

    let (to_configs, configs) = mpsc::channel(CONFIG_EVENTS_CAPACITY);
    boot.spawn_until_stop("kubeconfigs", source.follow(to_configs));
    boot.spawn("remote clusters", async move {
        clusters.run(configs, synced).await;
        stop.cancelled().await;
    });

    events
}

/// The source of kubeconfigs.
enum Source {
    /// Files.
    Directory(PathBuf),
    /// Secrets of the cluster that configures the mesh.
    Secrets(kube::Client, String),
    /// Secrets of the cluster that the process runs in.
    LocalSecrets(String, Option<ApiRate>),
}

impl Source {
    /// The source of kubeconfigs, if there is one.
    fn of(config: &Config, client: Option<&kube::Client>) -> Option<Self> {
        let remotes = &config.remotes;
        if let Some(directory) = &remotes.directory {
            return Some(Self::Directory(directory.clone()));
        }
        let client = client?;
        let own = config.settings.system_namespace.as_str();
        let namespace = remotes.namespace.as_deref().unwrap_or(own).to_owned();
        let local = remotes.local_secrets && remotes.external;
        Some(if local {
            Self::LocalSecrets(namespace, remotes.rate)
        } else {
            Self::Secrets(client.clone(), namespace)
        })
    }

    /// Sends kubeconfigs until the receiver is closed.
    async fn follow(self, events: mpsc::Sender<configs::ConfigEvent>) {
        let ended = match self {
            Self::Directory(directory) => configs::follow_directory(directory, events).await,
            Self::Secrets(client, namespace) => {
                configs::follow_secrets(client, &namespace, events).await
            }
            Self::LocalSecrets(namespace, rate) => {
                match navarch_kubernetes::client(None, rate).await {
                    Ok(client) => configs::follow_secrets(client, &namespace, events).await,
                    Err(error) => {
                        tracing::error!(
                            error = chain(&error),
                            "LOCAL_CLUSTER_SECRET_WATCHER: failed to create a client for the local cluster"
                        );
                        events
                            .send(configs::ConfigEvent::Synced)
                            .await
                            .map_err(|_| configs::Closed)
                    }
                }
            }
        };

        if ended.is_ok() {
            // It must not end before shutdown.
            std::future::pending().await
        }
    }
}

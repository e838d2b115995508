//! The remote clusters and their readers.
//!
//! ```text
//! Secret or file ─▶ kubeconfig ─▶ Reader ─Synced or Late─▶ it serves; the one before it ends
//! ```
//!
//! A changed kubeconfig gets a second reader beside the serving one, which continues until the new
//! one has synced. A reader that times out serves what it has read so far, and further objects as
//! they arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::configs::{ConfigEvent, Kubeconfigs};
use super::kubeconfig;
use super::metrics::Metrics;
use super::reader::{Milestone, Reader, ReaderEvent};
use super::{Lead, ManagedClusters, RemotesConfig, SyncStatus};
use navarch_api::names::ClusterId;
use navarch_base::digest::sha256_hex;
use navarch_base::error_chain::chain;
use navarch_push::mesh_state::{Change, RemoteChange};
use navarch_push::worker::PushHandle;
use navarch_security::remote_servers::RemoteServers;
use navarch_source::{Batch, KubernetesSourceConfig, Problems, SourceEvent};

/// Capacity of the channel of reader events; readers block when it is full.
const MAX_PENDING_EVENTS: usize = 64;
/// Maximum time to release the leader locks of remote clusters.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Reads remote clusters as their Secrets and files are added, changed and removed.
pub(super) struct Clusters {
    pub(super) config: RemotesConfig,
    /// The cluster that configures the mesh.
    pub(super) own: ClusterId,
    pub(super) push: PushHandle,
    pub(super) problems: Problems,
    pub(super) servers: RemoteServers,
    pub(super) shown: ManagedClusters,
    pub(super) metrics: Metrics,
    /// Runs the controllers of each cluster.
    pub(super) lead: Lead,
    /// The clusters that are read.
    pub(super) managed: BTreeMap<ClusterId, Managed>,
    /// The number of the next reader.
    pub(super) next: u64,
    /// Known names of Secrets and files, to distinguish new ones from changed ones.
    pub(super) places: BTreeSet<String>,
    pub(super) readers: JoinSet<()>,
    /// Cancelled at shutdown.
    pub(super) stop: CancellationToken,
}

/// A cluster that is read.
pub(super) struct Managed {
    /// The Secret or file of its kubeconfig.
    place: String,
    /// The hash of the kubeconfig.
    hash: String,
    /// The serving reader, if any.
    serving: Option<Started>,
    /// The next reader.
    coming: Option<Started>,
    /// Cancels the controllers of the cluster's leader.
    leading: CancellationToken,
}

/// A running reader.
struct Started {
    number: u64,
    client: kube::Client,
    serve: CancellationToken,
    stop: CancellationToken,
    /// Closed once it has ended.
    ended: mpsc::Receiver<()>,
}

impl Started {
    /// Stops it, and waits until it sends nothing any more.
    async fn end(mut self) {
        self.stop.cancel();
        while self.ended.recv().await.is_some() {}
    }
}

impl Clusters {
    /// Runs until shutdown. Sends to `synced` once the initial clusters were read or have timed
    /// out.
    pub(super) async fn run(
        mut self,
        mut configs: mpsc::Receiver<ConfigEvent>,
        synced: mpsc::Sender<Batch>,
    ) {
        let (to_news, mut news) = mpsc::channel::<ReaderEvent>(MAX_PENDING_EVENTS);
        let mut is_listed = false;
        let mut waiting = Some(synced);
        let start = tokio::time::Instant::now();

        loop {
            let limit = self
                .config
                .timeout
                .filter(|_| !is_listed)
                .map(|timeout| start + timeout);

            tokio::select! {
                () = self.stop.cancelled() => break,
                event = configs.recv() => match event {
                    Some(ConfigEvent::Put(place, kubeconfigs)) => {
                        let is_new = self.places.insert(place.clone());
                        self.metrics.event(if is_new { "add" } else { "update" });
                        self.put(&place, kubeconfigs, &to_news).await;
                    }
                    Some(ConfigEvent::Gone(place)) => {
                        self.metrics.event("delete");
                        self.places.remove(&place);
                        self.put(&place, Kubeconfigs::new(), &to_news).await;
                    }
                    Some(ConfigEvent::Synced) => {
                        is_listed = true;
                        self.shown.set_listed();
                    }
                    None => break,
                },
                Some((cluster, number, milestone)) = news.recv() => self.hear(&cluster, number, milestone).await,
                Some(ended) = self.readers.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "remote cluster reader failed");
                    }
                }
                () = tokio::time::sleep_until(limit.unwrap_or(start)), if limit.is_some() => {
                    tracing::warn!("timed out listing remote cluster Secrets; starting without them");
                    is_listed = true;
                }
            }

            if is_listed
                && self.shown.are_settled()
                && let Some(synced) = waiting.take()
            {
                // The receiver ends only with the process.
                _ = synced.send(vec![SourceEvent::FullSync]).await;
            }
        }

        for reader in self
            .managed
            .values()
            .flat_map(|managed| managed.serving.iter().chain(&managed.coming))
        {
            reader.stop.cancel();
        }
        let ended = async { while self.readers.join_next().await.is_some() {} };
        if tokio::time::timeout(RELEASE_TIMEOUT, ended).await.is_err() {
            tracing::warn!(after = ?RELEASE_TIMEOUT, "failed to release leader locks of remote clusters; they will expire");
        }

        self.readers.shutdown().await;
    }

    /// Applies the current content of a Secret or file.
    async fn put(
        &mut self,
        place: &str,
        kubeconfigs: Kubeconfigs,
        news: &mpsc::Sender<ReaderEvent>,
    ) {
        let former = self
            .managed
            .iter()
            .filter(|(_, managed)| managed.place == place);
        let gone = former
            .map(|(cluster, _)| cluster)
            .filter(|cluster| !kubeconfigs.contains_key(*cluster));
        for cluster in gone.cloned().collect::<Vec<_>>() {
            self.remove(&cluster).await;
        }

        self.shown.set_usable(place, true);
        for (cluster, content) in kubeconfigs {
            if cluster == self.own {
                tracing::info!(%cluster, place, "ignored kubeconfig: its cluster is the config cluster");
                continue;
            }

            let hash = sha256_hex(&content);

            match self.managed.get(&cluster) {
                Some(managed) if managed.place != place => {
                    let by = &managed.place;
                    tracing::warn!(%cluster, place, by, "ignored kubeconfig: another one names the same cluster");
                    continue;
                }
                Some(managed) if managed.hash == hash => continue,
                Some(_) | None => {}
            }

            match kubeconfig::client(&content, &self.config.insecure, self.config.rate).await {
                Ok(client) => self.read(cluster, place, hash, client, news).await,
                Err(error) => {
                    self.shown.set_usable(place, false);
                    tracing::error!(%cluster, place, error = chain(&error), "failed to use a kubeconfig; remote cluster is not read");
                }
            }
        }

        self.metrics.managed(self.managed.len());
    }

    /// Starts a reader of a cluster, beside the serving one.
    async fn read(
        &mut self,
        cluster: ClusterId,
        place: &str,
        hash: String,
        client: kube::Client,
        news: &mpsc::Sender<ReaderEvent>,
    ) {
        self.next += 1;
        let serve = CancellationToken::new();
        let stop = CancellationToken::new();
        let (alive, ended) = mpsc::channel(1);
        let reader = Reader {
            cluster: cluster.clone(),
            number: self.next,
            source: KubernetesSourceConfig {
                client: client.clone(),
                scope: self.config.scope.clone(),
                idle_timeout: self.config.idle_timeout,
            },
            timeout: self.config.timeout,
            push: self.push.clone(),
            problems: self.problems.clone(),
            news: news.clone(),
            serve: serve.clone(),
            stop: stop.clone(),
        };

        self.readers.spawn(async move {
            reader.run().await;
            drop(alive);
        });
        let started = Started {
            number: self.next,
            client: client.clone(),
            serve,
            stop,
            ended,
        };

        if let Some(managed) = self.managed.get_mut(&cluster) {
            tracing::info!(%cluster, place, "remote cluster kubeconfig changed");
            managed.hash = hash;
            if let Some(outdated) = managed.coming.replace(started) {
                outdated.end().await;
            }
        } else {
            tracing::info!(%cluster, place, "added remote cluster");
            let leading = self.stop.child_token();
            let lead = (self.lead)(cluster.clone(), client.clone(), leading.clone());
            self.readers.spawn(lead);
            self.servers
                .set(cluster.clone(), client, self.config.audiences.clone());

            let managed = Managed {
                place: place.to_owned(),
                hash,
                serving: None,
                coming: Some(started),
                leading,
            };

            self.managed.insert(cluster.clone(), managed);
            self.show(&cluster, Some(SyncStatus::Syncing));
        }
    }

    /// Applies the event of a reader.
    async fn hear(&mut self, cluster: &ClusterId, number: u64, milestone: Milestone) {
        let Some(managed) = self.managed.get_mut(cluster) else {
            return;
        };

        let is_coming = managed
            .coming
            .as_ref()
            .is_some_and(|coming| coming.number == number);
        let serves = managed
            .serving
            .as_ref()
            .is_some_and(|serving| serving.number == number);

        let replaces = managed.serving.is_some();

        match milestone {
            Milestone::Late if is_coming || serves => {
                let timeout = self.config.timeout;
                tracing::error!(%cluster, ?timeout, "timed out reading a remote cluster; starting without it");
                self.metrics.timed_out(cluster);
                if is_coming && !replaces {
                    self.take_over(cluster).await;
                }
                self.show(cluster, Some(SyncStatus::Timeout));
            }
            Milestone::Synced if is_coming => {
                self.take_over(cluster).await;
                self.show(cluster, Some(SyncStatus::Synced));
            }
            Milestone::Synced if serves => self.show(cluster, Some(SyncStatus::Synced)),
            // The reader was stopped.
            Milestone::Late | Milestone::Synced => {}
        }
    }

    /// Replaces the serving reader of a cluster by the next one.
    async fn take_over(&mut self, cluster: &ClusterId) {
        let Some(managed) = self.managed.get_mut(cluster) else {
            return;
        };

        let Some(coming) = managed.coming.take() else {
            return;
        };

        if let Some(serving) = managed.serving.take() {
            serving.end().await;
            self.servers.set(
                cluster.clone(),
                coming.client.clone(),
                self.config.audiences.clone(),
            );
            managed.leading.cancel();
            managed.leading = self.stop.child_token();

            let lead = (self.lead)(
                cluster.clone(),
                coming.client.clone(),
                managed.leading.clone(),
            );
            self.readers.spawn(lead);
        }

        coming.serve.cancel();
        managed.serving = Some(coming);
    }

    /// Removes a cluster and all of its objects.
    async fn remove(&mut self, cluster: &ClusterId) {
        let Some(managed) = self.managed.remove(cluster) else {
            return;
        };
        tracing::info!(%cluster, place = managed.place, "removed remote cluster");
        managed.leading.cancel();
        for reader in managed.serving.into_iter().chain(managed.coming) {
            reader.end().await;
        }
        self.servers.remove(cluster);
        // The receiver of changes ends only with the process.
        _ = self
            .push
            .change(vec![Change::Remote(cluster.clone(), RemoteChange::Gone)])
            .await;
        self.problems.forget(&format!("{cluster}: "));
        self.show(cluster, None);
    }

    /// Publishes the sync status of a cluster.
    fn show(&self, cluster: &ClusterId, status: Option<SyncStatus>) {
        let place = self
            .managed
            .get(cluster)
            .map(|managed| managed.place.clone())
            .unwrap_or_default();
        self.shown
            .set(cluster, status.map(|status| (place, status)));
        self.metrics.status(cluster, status);
    }
}

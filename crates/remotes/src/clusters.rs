//! The remote clusters and their readers.
//!
//! ```text
//! Secret or file ─▶ kubeconfig ─▶ Reader ─Synced or Late─▶ it serves; the one before it ends
//! ```
//!
//! A changed kubeconfig gets a second reader beside the serving one, which continues until the new
//! one has synced. A reader that times out serves what it has read so far, and further objects as
//! they arrive.
//!
//! Of several Secrets or files that name a cluster, the first that was received is used. When it no
//! longer names the cluster, the next one replaces it as a changed kubeconfig does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::configs::{ConfigEvent, Kubeconfigs};
use super::kubeconfig;
use super::metrics::Metrics;
use super::reader::{Milestone, Reader, ReaderEvent};
use super::waiting::{PlacedKubeconfig, WaitingKubeconfigs};
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
    /// Kubeconfigs of clusters that another Secret or file named first.
    pub(super) waiting: WaitingKubeconfigs,
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
        let gone: Vec<ClusterId> = gone.cloned().collect();

        self.waiting.remove(place);
        for cluster in gone {
            self.replace_kubeconfig(&cluster, news).await;
        }

        self.shown.set_usable(place, true);
        for (cluster, content) in kubeconfigs {
            if cluster == self.own {
                tracing::info!(%cluster, place, "ignored kubeconfig: its cluster is the config cluster");
                continue;
            }

            let kubeconfig = PlacedKubeconfig {
                place: place.to_owned(),
                content,
            };
            match self.managed.get(&cluster) {
                Some(managed) if managed.place != place => {
                    let by = &managed.place;
                    tracing::warn!(%cluster, place, by, "kubeconfig is not used as long as another one names the same cluster");
                    self.waiting.insert(cluster, kubeconfig);
                }
                Some(_) | None => _ = self.use_kubeconfig(&cluster, &kubeconfig, news).await,
            }
        }

        self.metrics.managed(self.managed.len());
    }

    /// Reads a cluster with the next kubeconfig that names it, as the former one no longer does;
    /// removes the cluster if there is none.
    async fn replace_kubeconfig(&mut self, cluster: &ClusterId, news: &mpsc::Sender<ReaderEvent>) {
        while let Some(next) = self.waiting.take(cluster) {
            if self.use_kubeconfig(cluster, &next, news).await {
                return;
            }
        }
        self.remove(cluster).await;
    }

    /// Reads a cluster with a kubeconfig. Returns whether it can be used.
    async fn use_kubeconfig(
        &mut self,
        cluster: &ClusterId,
        kubeconfig: &PlacedKubeconfig,
        news: &mpsc::Sender<ReaderEvent>,
    ) -> bool {
        let PlacedKubeconfig { place, content } = kubeconfig;
        let hash = sha256_hex(content);

        let managed = self.managed.get(cluster);
        if managed.is_none_or(|managed| managed.hash != hash) {
            match kubeconfig::client(content, &self.config.insecure, self.config.rate).await {
                Ok(client) => self.read(cluster.clone(), place, hash, client, news).await,
                Err(error) => {
                    self.shown.set_usable(place, false);
                    tracing::error!(%cluster, place, error = chain(&error), "failed to use a kubeconfig; remote cluster is not read");
                    return false;
                }
            }
        }

        if let Some(managed) = self.managed.get_mut(cluster)
            && managed.place != *place
        {
            tracing::info!(%cluster, place, before = managed.place, "another kubeconfig of the remote cluster is used");
            managed.place.clone_from(place);
            self.shown.set_place(cluster, place);
        }
        true
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
            let managed = Managed {
                place: place.to_owned(),
                hash,
                serving: None,
                coming: Some(started),
                leading: CancellationToken::new(),
            };

            self.managed.insert(cluster.clone(), managed);
            self.show(&cluster, Some(SyncStatus::Syncing));
        }

        // The client of a serving reader stays in use until the next reader has synced.
        let managed = self.managed.get(&cluster);
        if managed.is_some_and(|managed| managed.serving.is_none()) {
            self.use_client(&cluster, client);
        }
    }

    /// Reviews tokens of a cluster and runs its controllers with this client from now on.
    fn use_client(&mut self, cluster: &ClusterId, client: kube::Client) {
        let Some(managed) = self.managed.get_mut(cluster) else {
            return;
        };
        managed.leading.cancel();
        managed.leading = self.stop.child_token();

        let leading = managed.leading.clone();
        let lead = (self.lead)(cluster.clone(), client.clone(), leading);
        self.readers.spawn(lead);

        let audiences = self.config.audiences.clone();
        self.servers.set(cluster.clone(), client, audiences);
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

        let former = managed.serving.take();
        let is_replaced = former.is_some();
        if let Some(former) = former {
            former.end().await;
        }

        let client = coming.client.clone();
        coming.serve.cancel();
        managed.serving = Some(coming);
        if is_replaced {
            self.use_client(cluster, client);
        }
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

#[cfg(test)]
mod tests;

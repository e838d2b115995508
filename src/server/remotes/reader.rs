//! Reading one remote cluster: all that is there is gathered, then shown at once; from then on what changes.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::admin::Problems;
use navarch_api::any_object::AnyObject;
use navarch_api::names::ClusterId;
use navarch_api::object::ObjectRef;
use navarch_kubernetes::InWords;
use navarch_push::worker::PushHandle;
use navarch_push::world::{Change, RemoteChange};
use navarch_source::{Batch, KubernetesSource, KubernetesSourceConfig, SourceEvent};

/// Batches that may wait; then watches do.
const BATCHES: usize = 16;

/// How far the reading of a cluster has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Milestone {
    /// All that was there was read.
    Synced,
    /// It takes longer than it should.
    Late,
}

/// What a reader tells, by its number.
pub(super) type News = (ClusterId, u64, Milestone);

/// Reads one cluster.
pub(super) struct Reader {
    pub(super) cluster: ClusterId,
    /// The number of this reader: a cluster can have two, one that serves and one that is to take over.
    pub(super) number: u64,
    pub(super) source: KubernetesSourceConfig,
    /// After how long it is late; `None` for never.
    pub(super) timeout: Option<Duration>,
    pub(super) push: PushHandle,
    pub(super) problems: Problems,
    /// Told of milestones.
    pub(super) news: mpsc::Sender<News>,
    /// Cancelled when what is read is to be shown.
    pub(super) serve: CancellationToken,
    /// Cancelled when it is to end.
    pub(super) stop: CancellationToken,
}

/// What was read and is not shown yet; `None` once it is.
type Gathered = Option<BTreeMap<ObjectRef, AnyObject>>;

impl Reader {
    /// Runs until shutdown, or until the receiver is closed.
    pub(super) async fn run(self) {
        let (events, mut batches) = mpsc::channel(BATCHES);
        let source = KubernetesSource::new(self.source.clone()).run(events);
        let mut source = std::pin::pin!(source);
        let mut gathered: Gathered = Some(BTreeMap::new());
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let mut is_awaited = true;
        loop {
            let is_shown = gathered.is_none();
            let outcome = tokio::select! {
                () = self.stop.cancelled() => break,
                ended = &mut source => {
                    if let Err(error) = ended {
                        tracing::error!(cluster = %self.cluster, error = %InWords(&error), "failed to read remote cluster");
                    }
                    break;
                }
                Some(batch) = batches.recv() => {
                    let synced = self.apply(batch, &mut gathered).await;
                    match synced {
                        Ok(true) => {
                            is_awaited = false;
                            self.tell(Milestone::Synced).await
                        }
                        other => other.map(|_| ()),
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if is_awaited && deadline.is_some() => {
                    is_awaited = false;
                    self.tell(Milestone::Late).await
                }
                () = self.serve.cancelled(), if !is_shown => {
                    let objects = gathered.take().unwrap_or_default().into_values().collect();
                    self.change(vec![RemoteChange::Reset(objects)]).await
                }
            };
            if outcome.is_err() {
                break;
            }
        }
    }

    /// Takes events in; says whether all that was there has been read.
    async fn apply(&self, batch: Batch, gathered: &mut Gathered) -> Result<bool, ()> {
        let mut changes = Vec::new();
        let mut synced = false;
        for event in batch {
            match event {
                SourceEvent::Added(object) | SourceEvent::Updated(object) => {
                    let object = object.without_internal_annotations();
                    match gathered {
                        Some(gathered) => _ = gathered.insert(object.object_ref(), object),
                        None => changes.push(RemoteChange::Put(object)),
                    }
                }
                SourceEvent::Deleted(name) => match gathered {
                    Some(gathered) => _ = gathered.remove(&name),
                    None => changes.push(RemoteChange::Removed(name)),
                },
                SourceEvent::Problems { place, problems } => {
                    for problem in &problems {
                        tracing::warn!(cluster = %self.cluster, %problem, "failed to read some objects of a remote cluster");
                    }
                    self.problems.set(format!("{}: {place}", self.cluster).into(), problems);
                }
                SourceEvent::FullSync => synced = true,
                // Only the own cluster configures the mesh.
                SourceEvent::MeshConfig(_) | SourceEvent::MeshNetworks(_) | SourceEvent::Keys(..) => {}
            }
        }
        if !changes.is_empty() {
            self.change(changes).await?;
        }
        Ok(synced)
    }

    /// Hands changes on.
    async fn change(&self, changes: Vec<RemoteChange>) -> Result<(), ()> {
        let changes = changes.into_iter().map(|change| Change::Remote(self.cluster.clone(), change));
        self.push.change(changes.collect()).await.map_err(|_| ())
    }

    /// Tells how far it has come.
    async fn tell(&self, milestone: Milestone) -> Result<(), ()> {
        tokio::select! {
            sent = self.news.send((self.cluster.clone(), self.number, milestone)) => sent.map_err(|_| ()),
            // Who listens may be waiting for the end.
            () = self.stop.cancelled() => Err(()),
        }
    }
}

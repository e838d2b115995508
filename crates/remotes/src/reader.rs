//! Reads one remote cluster: the initial objects are collected and published at once, then changes
//! as they arrive.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use navarch_api::any_object::AnyObject;
use navarch_api::names::ClusterId;
use navarch_api::object::ObjectRef;
use navarch_kubernetes::InWords;
use navarch_push::mesh_state::{Change, RemoteChange};
use navarch_push::worker::PushHandle;
use navarch_source::{Batch, KubernetesSource, KubernetesSourceConfig, Problems, SourceEvent};

/// Capacity of the channel of batches; watches block when it is full.
const BATCHES_CAPACITY: usize = 16;

/// The progress of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Milestone {
    /// All initial objects were read.
    Synced,
    /// The timeout has passed.
    Late,
}

/// An event of a reader, by its number.
pub(super) type ReaderEvent = (ClusterId, u64, Milestone);

/// Reads one cluster.
pub(super) struct Reader {
    pub(super) cluster: ClusterId,
    /// The number of this reader: a cluster can have two, the serving one and the next one.
    pub(super) number: u64,
    pub(super) source: KubernetesSourceConfig,
    /// The timeout; `None` for none.
    pub(super) timeout: Option<Duration>,
    pub(super) push: PushHandle,
    pub(super) problems: Problems,
    pub(super) news: mpsc::Sender<ReaderEvent>,
    /// Cancelled when the reader must publish its objects.
    pub(super) serve: CancellationToken,
    /// Cancelled when the reader must end.
    pub(super) stop: CancellationToken,
}

/// Objects that are not published yet; `None` once they are.
type UnpublishedObjects = Option<BTreeMap<ObjectRef, AnyObject>>;

impl Reader {
    /// Runs until shutdown, or until the receiver is closed.
    pub(super) async fn run(self) {
        let (events, mut batches) = mpsc::channel(BATCHES_CAPACITY);
        let source = KubernetesSource::new(self.source.clone()).run(events);
        let mut source = std::pin::pin!(source);
        let mut gathered: UnpublishedObjects = Some(BTreeMap::new());
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
                            self.send(Milestone::Synced).await
                        }
                        other => other.map(|_| ()),
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if is_awaited && deadline.is_some() => {
                    is_awaited = false;
                    self.send(Milestone::Late).await
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

    /// Applies events; returns whether all initial objects were read.
    async fn apply(&self, batch: Batch, gathered: &mut UnpublishedObjects) -> Result<bool, ()> {
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
                    self.problems
                        .set(format!("{}: {place}", self.cluster).into(), problems);
                }
                SourceEvent::FullSync => synced = true,
                // Only the config cluster configures the mesh.
                SourceEvent::MeshConfig(_)
                | SourceEvent::MeshNetworks(_)
                | SourceEvent::Keys(..) => {}
            }
        }

        if !changes.is_empty() {
            self.change(changes).await?;
        }

        Ok(synced)
    }

    /// Sends changes.
    async fn change(&self, changes: Vec<RemoteChange>) -> Result<(), ()> {
        let changes = changes
            .into_iter()
            .map(|change| Change::Remote(self.cluster.clone(), change));
        self.push.change(changes.collect()).await.map_err(|_| ())
    }

    /// Sends a reader event.
    async fn send(&self, milestone: Milestone) -> Result<(), ()> {
        tokio::select! {
            sent = self.news.send((self.cluster.clone(), self.number, milestone)) => sent.map_err(|_| ()),
            // The receiver may be waiting for the end of this reader.
            () = self.stop.cancelled() => Err(()),
        }
    }
}

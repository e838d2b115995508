//! The Kubernetes API as a source.
//!
//! ```text
//! API server ═ one watch for each kind ═▶ frames ─▶ our own objects ─▶ diff to the sent state ─▶ batch of events
//!            ─ definitions of kinds ────▶ kinds that come later
//! ```
//!
//! Each kind is read by its own task: first all objects, streamed as events if the server supports
//! it (Kubernetes 1.32), else in pages; then changes. Objects are decoded directly into the form in
//! which they are stored. Broken or idle connections, restarts and errors of the server, expired
//! versions and kinds that are not served (yet) cost time but no data: the objects stay in force,
//! and after the next success only differences are sent. `reflector.rs` explains why this is not
//! `kube::runtime::watcher`.

mod definitions;
mod mesh_maps;
mod reflector;
pub(super) mod scope;
mod stream;
mod tags;
#[cfg(test)]
mod tests;
mod watch_state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::{Batch, SourceError, SourceEvent};
use crate::event_log::event_log;
use navarch_api::object::Kind;
use navarch_api::shared_texts::{PodNames, SharedTexts};
use reflector::{ObjectSelection, Reflector, Target};
use scope::Tags;
use stream::Connection;

pub(crate) use mesh_maps::Counting;
pub use mesh_maps::{MeshMapSource, MeshMapSourceConfig};
pub use scope::{KubernetesScope, ReadKind, ReadKinds, RemoteKinds};

/// The name of the source in problems and in the log.
const SOURCE: &str = "k8s://";

/// How long a connection may be silent. An idle watch receives a bookmark about every minute.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(100);

/// Settings of a source of Kubernetes objects.
#[derive(Clone)]
pub struct KubernetesSourceConfig {
    /// The client of the API server.
    pub client: kube::Client,
    /// Which kinds and objects are read.
    pub scope: KubernetesScope,
    /// How long a connection may be silent before it counts as dead ([`IDLE_TIMEOUT`]).
    pub idle_timeout: Duration,
}

impl std::fmt::Debug for KubernetesSourceConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubernetesSourceConfig")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// The objects of an API server as a source.
///
/// It is in sync when every kind was read once; a kind that is not served has no objects. A kind
/// that it may not read keeps it from being in sync, because an incomplete configuration is worse
/// than an older one. This is reported as a problem of the kind (`k8s://VirtualService`), as are
/// problems of an object (`k8s://VirtualService/shop/reviews`).
#[derive(Debug)]
pub struct KubernetesSource {
    config: KubernetesSourceConfig,
}

impl KubernetesSource {
    /// Creates a source. It reads nothing before it runs.
    #[must_use]
    pub fn new(config: KubernetesSourceConfig) -> Self {
        Self { config }
    }

    /// Sends the objects of the API server and then changes, until the receiver is closed or the
    /// future is dropped.
    ///
    /// When the channel is full it waits, and changes accumulate at the API server.
    ///
    /// # Errors
    /// If a task fails, which is a bug.
    pub async fn run(self, events: mpsc::Sender<Batch>) -> Result<(), SourceError> {
        let scope = Arc::new(self.config.scope);

        // Without a revision all objects are read, and tags do not matter; nor do they if no kind
        // with revisions is read.
        let without_tags = scope.revision.is_empty() || matches!(scope.kinds, ReadKinds::Remote(_));
        let (to_tags, tags) = watch::channel(without_tags.then(Tags::default));
        let client = self.config.client.clone();
        let connection = Connection::new(self.config.client, self.config.idle_timeout);
        let kinds: Vec<Kind> = scope.kinds().collect();
        let (to_sync, mut synced) = mpsc::channel(1);
        let mut waiting = BTreeMap::new();

        let pods = PodNames::default();

        // Dropped with the future, which aborts all tasks.
        let mut readers = JoinSet::new();

        for kind in &kinds {
            let redefined = Arc::new(Notify::new());
            if scope::is_defined(*kind) {
                waiting.insert(scope::definition(*kind), redefined.clone());
            }

            let target = Target {
                kind: *kind,
                paths: scope::versions(*kind)
                    .iter()
                    .map(|version| scope.path(*kind, version))
                    .collect(),
                selector: scope.selector(*kind),
                optional: scope.is_optional(*kind),
            };

            let reader = Reflector::new(
                target,
                ObjectSelection {
                    scope: scope.clone(),
                    tags: tags.clone(),
                },
                connection.clone(),
                redefined,
                events.clone(),
                to_sync.clone(),
                SharedTexts::with_pods(pods.clone()),
            );

            readers.spawn(reader.run());
        }

        drop(to_sync);

        if without_tags {
            drop(to_tags);
        } else {
            readers.spawn(tags::watch(client, scope.clone(), to_tags));
        }

        readers.spawn(async move {
            definitions::watch(connection, waiting).await;
        });
        let mut unsynced = kinds.len();
        let mut log = event_log!(SOURCE.into());

        loop {
            tokio::select! {
                Some(_) = synced.recv() => {
                    unsynced -= 1;
                    if unsynced == 0 {
                        let batch = vec![SourceEvent::FullSync];
                        log.record(&batch);
                        if events.send(batch).await.is_err() {
                            return Ok(());
                        }
                    }
                }
                Some(ended) = readers.join_next() => {
                    ended.map_err(|source| SourceError::Reader { place: "Kubernetes API".to_owned(), source })?;
                    // A reader only ends when the receiver is closed.
                    return Ok(());
                }
                () = events.closed() => return Ok(()),
            }
        }
    }
}

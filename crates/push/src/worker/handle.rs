//! The handle to the push thread.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::current::CurrentSnapshot;
use super::ended_streams::{EndedStreams, Unclaimed};
use super::{Command, Inspect, Inspection, RouteSizeQuestion};
use crate::context::PushContext;
use crate::engine::{Interest, ProxyId, Sink};
use crate::mesh_state::Change;
use crate::proxy::Proxy;
use crate::resource::ResourceType;

/// A handle to the push thread. The thread ends when the last handle is dropped.
#[derive(Clone)]
pub struct PushHandle {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) ended_streams: EndedStreams,
    /// Whether the initial state is complete and pushed.
    pub(super) synced: watch::Receiver<bool>,
    /// The snapshot in force.
    pub(super) current: CurrentSnapshot,
}

/// The push thread has ended, since the process is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the push thread has ended")]
pub struct Ended;

impl PushHandle {
    /// Adds a proxy whose collections are published to `sink`. All proxies of one address share one
    /// client's share of the thread.
    ///
    /// # Errors
    /// If the thread has ended.
    pub async fn connect(
        &self,
        proxy: Arc<Proxy>,
        address: Option<IpAddr>,
        sink: Arc<dyn Sink>,
    ) -> Result<ProxyId, Ended> {
        let (answer, id) = oneshot::channel();
        self.send(Command::Connect(proxy, address, sink, answer))
            .await?;
        id.await.ok().and_then(Unclaimed::claim).ok_or(Ended)
    }

    /// Whether a route configuration of a proxy, which need not be connected, is so large that its
    /// virtual hosts are better sent one by one. It is computed in the share of the client with this
    /// address, once the initial state is complete.
    ///
    /// # Errors
    /// If the thread has ended.
    pub async fn has_large_routes(
        &self,
        proxy: Arc<Proxy>,
        address: Option<IpAddr>,
    ) -> Result<bool, Ended> {
        let (answer, is_large) = oneshot::channel();
        let question = RouteSizeQuestion {
            proxy,
            address,
            answer,
        };
        self.send(Command::AskRouteSize(question)).await?;
        is_large.await.map_err(|_| Ended)
    }

    /// Removes a proxy. Never blocks, since it is called from destructors of streams.
    pub fn disconnect(&self, id: ProxyId) {
        self.ended_streams.add(id);
        // If the channel is full the thread is busy and checks after each round anyway.
        let _ = self.commands.try_send(Command::Disconnected);
    }

    /// Sets the subscription of a proxy to one type. One publish answers it, and replaces earlier
    /// unanswered ones of the type: they are skipped.
    ///
    /// # Errors
    /// When the thread has ended.
    pub async fn subscribe(
        &self,
        id: ProxyId,
        resource_type: ResourceType,
        interest: Interest,
    ) -> Result<(), Ended> {
        self.send(Command::Subscribe(id, resource_type, interest))
            .await
    }

    /// Removes a subscription.
    ///
    /// # Errors
    /// When the thread has ended.
    pub async fn unsubscribe(&self, id: ProxyId, resource_type: ResourceType) -> Result<(), Ended> {
        self.send(Command::Unsubscribe(id, resource_type)).await
    }

    /// Queues changes, in order.
    ///
    /// # Errors
    /// When the thread has ended.
    pub async fn change(&self, changes: Vec<Change>) -> Result<(), Ended> {
        self.send(Command::Changes(changes, Instant::now())).await
    }

    /// Declares the initial state of all sources complete: from now on proxies are answered.
    ///
    /// # Errors
    /// When the thread has ended.
    pub async fn full_sync(&self) -> Result<(), Ended> {
        self.send(Command::Synced).await
    }

    /// Whether the initial state is complete and pushed.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// The snapshot in force.
    #[must_use]
    pub fn context(&self) -> Arc<PushContext> {
        self.current.context()
    }

    /// Access to the snapshot in force that does not keep the thread running.
    #[must_use]
    pub fn current(&self) -> CurrentSnapshot {
        self.current.clone()
    }

    /// The snapshots in force from now on; one that is quickly followed by others may be skipped.
    #[must_use]
    pub fn contexts(&self) -> watch::Receiver<Arc<PushContext>> {
        self.current.context.clone()
    }

    /// Waits until the initial state is complete and pushed.
    ///
    /// # Errors
    /// When the thread ends before.
    pub async fn wait_synced(&self) -> Result<(), Ended> {
        let mut synced = self.synced.clone();
        synced
            .wait_for(|synced| *synced)
            .await
            .map(|_| ())
            .map_err(|_| Ended)
    }

    /// Recomputes all results and publishes those that differ: none, unless a dependency was
    /// missed.
    ///
    /// # Errors
    /// When the thread has ended.
    pub async fn recompute(&self) -> Result<(), Ended> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::Recompute(done)).await?;
        is_done.await.map_err(|_| Ended)
    }

    /// Runs `look` on the push thread between pushes: keep it short.
    ///
    /// # Errors
    /// When the thread has ended.
    pub async fn inspect<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Inspect<'_>) -> T + Send + 'static,
    ) -> Result<T, Ended> {
        let (answer, result) = oneshot::channel();
        let look: Inspection = Box::new(move |inspect| {
            // The caller may have stopped waiting.
            let _ = answer.send(look(inspect));
        });
        self.send(Command::Inspection(look)).await?;
        result.await.map_err(|_| Ended)
    }

    /// Queues a command, waiting while the queue is full.
    async fn send(&self, command: Command) -> Result<(), Ended> {
        self.commands.send(command).await.map_err(|_| Ended)
    }
}

impl std::fmt::Debug for PushHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushHandle")
            .field("synced", &self.is_synced())
            .finish_non_exhaustive()
    }
}

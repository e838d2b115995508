//! One simulated proxy: a connection with one stream at a time, and state that outlives streams.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use anyhow::{Result, bail};
use navarch_proto::envoy::config::core::v3::Node;
use tokio::sync::watch;
use tokio::task::unconstrained;

use crate::xds::connection::{Connection, Stop};
use crate::xds::follow::Follower;
use crate::xds::grpc::{Encoding, Message, Outbox};
use crate::xds::http2::Call;
use crate::xds::names::Names;
use crate::xds::talk::{Protocol, ProxyStreams};
use crate::xds::tally::Tally;

/// The delay before a stream that ended is opened again.
const RETRY: Duration = Duration::from_millis(200);

/// The state that all proxies must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Be connected; a new number means to reconnect.
    Connected(u32),
    Ended,
}

/// Shared by all proxies.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) server: SocketAddr,
    pub(crate) protocol: Protocol,
    /// How the server may compress its responses.
    pub(crate) encoding: Option<Encoding>,
    /// Whether the server is asked for resources without versions.
    pub(crate) omits_versions: bool,
    /// Interned names.
    pub(crate) names: Names,
    /// What they have received.
    pub(crate) tally: Tally,
    /// The state that they must reach.
    pub(crate) phase: watch::Receiver<Phase>,
}

#[derive(Debug)]
pub(crate) struct Proxy {
    /// Shared with the other proxies.
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: usize,
    pub(crate) node: Node,
    /// The delay before it handles each response.
    pub(crate) pause: Duration,
}

/// The state of a proxy that outlives its streams.
#[derive(Debug)]
struct Memory {
    /// Its resources and subscriptions.
    follower: Follower,
    /// The state of the protocol.
    talk: ProxyStreams,
    /// Whether it has been in sync on this stream.
    is_synced: bool,
}

impl Proxy {
    /// Connects, subscribes, and reconnects, until the phase is `Ended`.
    pub(crate) async fn run(self) {
        let talk = ProxyStreams::new(self.shared.protocol);
        let mut memory = Memory {
            follower: Follower::default(),
            talk,
            is_synced: false,
        };
        let mut phase = self.shared.phase.clone();
        while *phase.borrow_and_update() != Phase::Ended {
            memory.follower.restart();
            memory.is_synced = false;
            if let Err(error) = self.stream(&mut memory, &mut phase).await {
                if self.shared.tally.broken() {
                    eprintln!("the first stream broke: {error:#}");
                }
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Runs one stream on a new connection until the phase changes.
    ///
    /// # Errors
    /// If the stream ends by itself.
    async fn stream(&self, memory: &mut Memory, phase: &mut watch::Receiver<Phase>) -> Result<()> {
        let mut outbox = Outbox::default();
        memory.talk.open(
            &self.node,
            &memory.follower,
            &self.shared.names,
            &mut outbox,
        );

        let method = ProxyStreams::method(self.shared.protocol);
        let call = Call {
            server: self.shared.server,
            method,
            encoding: self.shared.encoding,
            omits_versions: self.shared.omits_versions,
        };
        let mut connection = Connection::open(&call, &outbox).await?;
        drop(outbox);
        let now = phase.clone();

        // Register the waker once: polling a new `changed()` for every message would cost more than
        // the message itself.
        let mut phase_changed = pin!(unconstrained(phase.changed()));
        let mut registered_waker: Option<Waker> = None;

        loop {
            let step = poll_fn(|context| {
                if now.has_changed().unwrap_or(true) {
                    return Poll::Ready(Ok(None));
                }

                let step = connection.poll(context, &mut |_, message, outbox| {
                    self.handle(message, memory, outbox)
                });
                if step.is_pending()
                    && !registered_waker
                        .as_ref()
                        .is_some_and(|waker| waker.will_wake(context.waker()))
                {
                    registered_waker = Some(context.waker().clone());
                    if phase_changed.as_mut().poll(context).is_ready() {
                        return Poll::Ready(Ok(None));
                    }
                }

                step.map_ok(Some)
            });

            match step.await? {
                None => {
                    connection.close();
                    return Ok(());
                }
                Some(Stop::Enough) => tokio::time::sleep(self.pause).await,
                Some(Stop::Ended) => bail!("the server ended the stream"),
            }
        }
    }

    /// Handles a response.
    ///
    /// # Errors
    /// If it is not a discovery response.
    fn handle(
        &self,
        message: &Message<'_>,
        memory: &mut Memory,
        outbox: &mut Outbox,
    ) -> Result<ControlFlow<()>> {
        let Memory {
            follower,
            talk,
            is_synced,
        } = memory;

        let Shared { names, tally, .. } = &*self.shared;

        let body = &*message.body;
        let response = talk.read(body)?;
        if let Some(resource_type) = response.resource_type {
            tally.arrived(self.number, resource_type, body);
            let removed = talk.answer(resource_type, &response, follower, names, outbox);
            tally.response(
                resource_type,
                message.wire_length,
                response.resources.len(),
                removed,
            );
        } else {
            tally.strange();
        }

        if !*is_synced && follower.is_synced() {
            *is_synced = true;
            tally.synced(self.number);
        }

        Ok(if self.pause.is_zero() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    }
}

#[cfg(test)]
mod tests;

//! One simulated proxy: a connection of its own, a stream, and what it holds over the streams that it has.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::uri::PathAndQuery;
use navarch_proto::envoy::config::core::v3::Node;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::{Request, Streaming};

use crate::connection::Beside;
use crate::follow::Follower;
use crate::names::Names;
use crate::talk::{Protocol, Talk};
use crate::tally::Tally;
use crate::wire::BytesCodec;

/// A response may be as large as Envoy takes it.
const MAX_RESPONSE: usize = 512 << 20;
/// How long to wait before a stream that ended is opened anew.
const RETRY: Duration = Duration::from_millis(200);

/// What all proxies are told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Be connected; a new number means to connect anew.
    Connected(u32),
    /// End.
    Ended,
}

/// What all proxies share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The server.
    pub(crate) server: SocketAddr,
    /// How they talk.
    pub(crate) protocol: Protocol,
    /// Names by number.
    pub(crate) names: Names,
    /// What they have seen.
    pub(crate) tally: Tally,
    /// What they shall do.
    pub(crate) phase: watch::Receiver<Phase>,
}

/// One proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// What it shares with the others.
    pub(crate) shared: Arc<Shared>,
    /// Its number.
    pub(crate) number: usize,
    /// What it says it is.
    pub(crate) node: Node,
    /// How long it lets each response lie before it reads on.
    pub(crate) pause: Duration,
}

/// How a stream ended.
enum End {
    /// As told: there is something new to do.
    Told,
    /// By itself.
    Broken,
}

impl Proxy {
    /// Connects, follows, and connects anew, until it shall end.
    pub(crate) async fn run(self) {
        let mut follower = Follower::default();
        let mut talk = Talk::new(self.shared.protocol);
        let mut phase = self.shared.phase.clone();
        while *phase.borrow_and_update() != Phase::Ended {
            follower.restart();
            match self.stream(&mut talk, &mut follower, &mut phase).await {
                Ok(End::Told) => {}
                Ok(End::Broken) | Err(_) => {
                    self.shared.tally.broken();
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// One stream, on a connection of its own.
    async fn stream(
        &self,
        talk: &mut Talk,
        follower: &mut Follower,
        phase: &mut watch::Receiver<Phase>,
    ) -> Result<End> {
        let beside = Beside::default();
        beside.run(self.speak(&beside, talk, follower, phase)).await
    }

    /// What is said and heard on a stream.
    async fn speak(
        &self,
        beside: &Beside,
        talk: &mut Talk,
        follower: &mut Follower,
        phase: &mut watch::Receiver<Phase>,
    ) -> Result<End> {
        let (requests, mut responses) = self.connect(beside).await?;
        for request in talk.open(&self.node, follower, &self.shared.names) {
            requests.send(request).await.context("the stream ended at once")?;
        }
        loop {
            let message = tokio::select! {
                _ = phase.changed() => return Ok(End::Told),
                message = responses.message() => message,
            };
            let Some(body) = message.context("the stream broke")? else { return Ok(End::Broken) };
            let answer = talk.answer(body.clone(), follower, &self.shared.names)?;
            match answer.seen {
                Some(seen) => self.shared.tally.response(self.number, seen.kind, &body, seen.resources, seen.removed),
                None => self.shared.tally.strange(),
            }
            for request in answer.requests {
                requests.send(request).await.context("the stream ended")?;
            }
            if follower.is_synced() {
                self.shared.tally.synced(self.number);
            }
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
        }
    }

    /// Opens a connection and a stream on it.
    async fn connect(&self, beside: &Beside) -> Result<(mpsc::Sender<Bytes>, Streaming<Bytes>)> {
        let calls = beside.connect(self.shared.server).await?;
        let mut client = Grpc::new(calls).max_decoding_message_size(MAX_RESPONSE);
        client.ready().await?;
        let (requests, outgoing) = mpsc::channel(16);
        let path = PathAndQuery::from_static(Talk::method(self.shared.protocol));
        let responses = client.streaming(Request::new(ReceiverStream::new(outgoing)), path, BytesCodec).await?;
        Ok((requests, responses.into_inner()))
    }
}

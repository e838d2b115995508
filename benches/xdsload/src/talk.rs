//! Either protocol behind one face.

use bytes::Bytes;
use clap::ValueEnum;
use navarch_proto::envoy::config::core::v3::Node;
use prost::DecodeError;
use serde::Serialize;

use crate::delta::Delta;
use crate::follow::Follower;
use crate::kind::Kind;
use crate::names::Names;
use crate::state::State;

/// A protocol of ADS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// Incremental.
    Delta,
    /// State of the world.
    Sotw,
}

/// What a response held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its resources.
    pub(crate) resources: usize,
    /// Names taken away.
    pub(crate) removed: usize,
}

/// What is to be done about a response.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// What it held; `None` if it was of a kind that nobody asked for.
    pub(crate) seen: Option<Seen>,
    /// What to send, encoded.
    pub(crate) requests: Vec<Bytes>,
}

/// One proxy's side of the streams that it has one after the other.
#[derive(Debug)]
pub(crate) enum Talk {
    /// In the delta protocol.
    Delta(Delta),
    /// In the state-of-the-world protocol.
    State(Box<State>),
}

impl Talk {
    /// A proxy that has not spoken yet.
    pub(crate) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Delta => Self::Delta(Delta::default()),
            Protocol::Sotw => Self::State(Box::default()),
        }
    }

    /// The gRPC method.
    pub(crate) fn method(protocol: Protocol) -> &'static str {
        match protocol {
            Protocol::Delta => "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
            Protocol::Sotw => "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
        }
    }

    /// The first requests of a stream.
    pub(crate) fn open(&mut self, node: &Node, follower: &Follower, names: &Names) -> Vec<Bytes> {
        match self {
            Self::Delta(delta) => delta.open(node, follower, names),
            Self::State(state) => state.open(node, follower, names),
        }
    }

    /// Takes a response in; says what to send.
    pub(crate) fn answer(
        &mut self,
        body: Bytes,
        follower: &mut Follower,
        names: &Names,
    ) -> Result<Answer, DecodeError> {
        match self {
            Self::Delta(delta) => delta.answer(body, follower, names),
            Self::State(state) => state.answer(body, follower, names),
        }
    }
}

//! One interface for both protocols.

use anyhow::Result;
use clap::ValueEnum;
use navarch_proto::envoy::config::core::v3::Node;
use serde::Serialize;

use crate::xds::delta::Delta;
use crate::xds::follow::Follower;
use crate::xds::grpc::Outbox;
use crate::xds::names::Names;
use crate::xds::resource_type::ResourceType;
use crate::xds::state::State;
use crate::xds::wire::Response;

/// A protocol of ADS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// Incremental.
    Delta,
    /// State of the world.
    Sotw,
}

/// One proxy's state of the protocol, across streams.
#[derive(Debug)]
pub(crate) enum ProxyStreams {
    /// The delta protocol.
    Delta(Delta),
    /// The state-of-the-world protocol.
    State(Box<State>),
}

impl ProxyStreams {
    /// A proxy before its first request.
    pub(crate) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Delta => Self::Delta(Delta::default()),
            Protocol::Sotw => Self::State(Box::default()),
        }
    }

    /// The gRPC method.
    pub(crate) fn method(protocol: Protocol) -> &'static str {
        match protocol {
            Protocol::Delta => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
            }
            Protocol::Sotw => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
            }
        }
    }

    /// The first requests of a stream.
    pub(crate) fn open(
        &mut self,
        node: &Node,
        follower: &Follower,
        names: &Names,
        outbox: &mut Outbox,
    ) {
        match self {
            Self::Delta(delta) => delta.open(node, follower, names, outbox),
            Self::State(state) => state.open(node, follower, names, outbox),
        }
    }

    /// Decodes a response.
    ///
    /// # Errors
    /// If `body` is not a response of the protocol.
    pub(crate) fn read<'a>(&self, body: &'a [u8]) -> Result<Response<'a>> {
        match self {
            Self::Delta(_) => Response::delta(body),
            Self::State(_) => Response::state(body),
        }
    }

    /// Applies and acknowledges a response, and returns how many resources it removed.
    pub(crate) fn answer(
        &mut self,
        resource_type: ResourceType,
        response: &Response<'_>,
        follower: &mut Follower,
        names: &Names,
        outbox: &mut Outbox,
    ) -> usize {
        match self {
            Self::Delta(delta) => delta.answer(resource_type, response, follower, names, outbox),
            Self::State(state) => state.answer(resource_type, response, follower, names, outbox),
        }
    }
}

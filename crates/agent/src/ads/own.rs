//! The agent's own requests and responses on a stream: subscriptions, updates and ACKs.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use navarch_base::routes_held::{NODE_KEY, RoutesHeld};
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use navarch_proto::google::rpc;
use navarch_proto::istio::mesh::v1alpha1::ProxyConfig;
use navarch_proto::istio::networking::nds::v1::NameTable;
use navarch_proto::raw::{RawDeltaDiscoveryResponse, RawDiscoveryResponse};
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Struct, Value};

use super::{AdsConfig, Health, Protocol};
use crate::mesh_metrics::{NameChanges, WORKLOAD};

pub(super) const NAME_TABLE: &str = "type.googleapis.com/istio.networking.nds.v1.NameTable";
pub(super) const PROXY_CONFIG: &str = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig";
/// The type of the workload's health.
const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";
/// Listeners: when Envoy subscribes to them, the agent sends its own subscriptions.
pub(super) const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// Extension configs, which refer to Wasm modules.
pub(super) const EXTENSION: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
/// Route configurations.
pub(super) const ROUTE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
/// The debug API of istioctl, and the prefix of its further types.
pub(super) const DEBUG: &str = "istio.io/debug";
/// The gRPC code `INTERNAL`.
const INTERNAL: i32 = 13;

/// Whether a type belongs to the debug API: the control plane answers these requests, and they do
/// not mark a stream as Envoy's.
pub(super) fn is_debug(type_url: &str) -> bool {
    type_url
        .strip_prefix(DEBUG)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The agent's ACK or NACK of a response.
#[derive(Clone, Debug, Default)]
pub(super) struct Ack<'a> {
    pub(super) type_url: &'a str,
    /// The version that is now applied; only state-of-the-world requests contain it.
    pub(super) version: String,
    /// The response's nonce.
    pub(super) nonce: String,
    /// Why the response is rejected, if it is.
    pub(super) error: Option<String>,
}

/// The request with this ACK or NACK.
pub(super) fn request(protocol: Protocol, ack: Ack<'_>) -> Bytes {
    let Ack {
        type_url,
        version,
        nonce,
        error,
    } = ack;

    let error = error.map(|message| rpc::Status {
        code: INTERNAL,
        message,
        details: Vec::new(),
    });

    match protocol {
        Protocol::State => DiscoveryRequest {
            version_info: version,
            type_url: type_url.to_owned(),
            response_nonce: nonce,
            error_detail: error,
            ..DiscoveryRequest::default()
        }
        .encode_to_vec(),
        Protocol::Delta => DeltaDiscoveryRequest {
            type_url: type_url.to_owned(),
            response_nonce: nonce,
            error_detail: error,
            ..DeltaDiscoveryRequest::default()
        }
        .encode_to_vec(),
    }
    .into()
}

/// A delta request with what Envoy has of routes added to its node. A message that occurs twice in
/// protobuf's encoding is merged, so the request is not decoded.
pub(super) fn with_routes_held(request: &Bytes, held: RoutesHeld) -> Bytes {
    let value = Value {
        kind: Some(Kind::StringValue(held.as_str().to_owned())),
    };
    let metadata = Struct {
        fields: BTreeMap::from([(NODE_KEY.to_owned(), value)]),
    };
    let addition = DeltaDiscoveryRequest {
        node: Some(Node {
            metadata: Some(metadata),
            ..Node::default()
        }),
        ..DeltaDiscoveryRequest::default()
    };

    let mut whole = BytesMut::with_capacity(request.len() + addition.encoded_len());
    whole.extend_from_slice(request);
    addition.encode_raw(&mut whole);
    whole.freeze()
}

/// The request that subscribes to peers and unsubscribes from others.
pub(super) fn peers(changes: NameChanges) -> Bytes {
    let NameChanges {
        subscribe,
        unsubscribe,
    } = changes;
    DeltaDiscoveryRequest {
        type_url: WORKLOAD.to_owned(),
        resource_names_subscribe: subscribe,
        resource_names_unsubscribe: unsubscribe,
        ..DeltaDiscoveryRequest::default()
    }
    .encode_to_vec()
    .into()
}

/// The request that reports the workload's health.
pub(super) fn health(protocol: Protocol, health: &Health) -> Bytes {
    let error = match health {
        Health::Ready => None,
        Health::NotReady(reason) => Some(reason.clone()),
    };
    request(
        protocol,
        Ack {
            type_url: HEALTH,
            error,
            ..Ack::default()
        },
    )
}

impl AdsConfig {
    /// The types that the agent subscribes to.
    pub(super) fn own_types(&self) -> impl Iterator<Item = &'static str> {
        let names = self.names.as_ref().map(|_| NAME_TABLE);
        names
            .into_iter()
            .chain(self.trust.as_ref().map(|_| PROXY_CONFIG))
    }

    /// Applies a response to one of the agent's own subscriptions. Returns the ACK or NACK.
    pub(super) fn take(
        &self,
        protocol: Protocol,
        type_url: &'static str,
        response: Bytes,
    ) -> Bytes {
        let ResponseParts {
            version,
            nonce,
            resource,
        } = parts(protocol, response).unwrap_or_else(|error| {
            tracing::warn!(%error, type_url, "failed to decode a response");
            ResponseParts::default()
        });

        let applied = resource.map_or(Ok(()), |resource| self.apply(type_url, resource));
        let error = applied.err().map(|error| error.to_string());
        if let Some(error) = &error {
            tracing::warn!(error, type_url, "rejected a response");
        }

        request(
            protocol,
            Ack {
                type_url,
                version,
                nonce,
                error,
            },
        )
    }

    /// Passes a resource to its receiver.
    fn apply(&self, type_url: &'static str, resource: Bytes) -> Result<(), prost::DecodeError> {
        if type_url == NAME_TABLE
            && let Some(names) = &self.names
        {
            names.replace(NameTable::decode(resource)?);
        } else if type_url == PROXY_CONFIG
            && let Some(secrets) = &self.trust
        {
            secrets.set_trust_bundle(ProxyConfig::decode(resource)?.ca_certificates_pem);
        }
        Ok(())
    }
}

/// What the agent reads of a response.
#[derive(Debug, Default)]
struct ResponseParts {
    /// Empty in delta.
    version: String,
    nonce: String,
    /// The first resource: the agent's own types have one.
    resource: Option<Bytes>,
}

fn parts(protocol: Protocol, response: Bytes) -> Result<ResponseParts, prost::DecodeError> {
    Ok(match protocol {
        Protocol::State => {
            let response = RawDiscoveryResponse::decode(response)?;
            let resource = response
                .resources
                .into_iter()
                .next()
                .map(|resource| resource.value);
            ResponseParts {
                version: response.version_info,
                nonce: response.nonce,
                resource,
            }
        }

        Protocol::Delta => {
            let response = RawDeltaDiscoveryResponse::decode(response)?;
            let resource = response
                .resources
                .into_iter()
                .next()
                .and_then(|resource| resource.resource);
            ResponseParts {
                version: String::new(),
                nonce: response.nonce,
                resource: resource.map(|resource| resource.value),
            }
        }
    })
}

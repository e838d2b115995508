//! The debug API over xDS, for operators' tools: `istio.io/debug`, `istio.io/debug/…` and
//! `istio.io/connections`.
//!
//! istioctl sends these requests to every istiod instance, on streams with `GENERATOR: event` in
//! the node metadata. They are no subscriptions: each request gets one response, and later changes
//! are not sent.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use navarch_proto::envoy::config::core::v3::ControlPlane;
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource,
};
use prost::Message as _;
use prost_types::Any;
use tonic::Status;

use crate::session::discovery_request::Protocol;
use crate::session::watch::SentResponse;
use navarch_push::proxy::Proxy;

/// The type whose resource names are debug pages. Other pages are types with the prefix
/// `istio.io/debug/`.
const DEBUG: &str = "istio.io/debug";
/// The type of the list of connected clients.
const CONNECTIONS: &str = "istio.io/connections";

/// A request to the debug API over xDS.
#[derive(Clone, Debug)]
pub struct DebugRequest {
    /// The type URL: `istio.io/debug`, one below it, or `istio.io/connections`.
    pub type_url: String,
    /// The requested page with its parameters, or the proxy.
    pub names: Vec<String>,
    /// The client. It is unauthenticated if it has no identity.
    pub proxy: Arc<Proxy>,
}

/// The response to a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DebugResponse {
    /// The resources, each with its name, which only the delta protocol sends.
    pub resources: Vec<(String, Any)>,
    /// `ControlPlane.identifier` of the response, if set.
    pub control_plane: Option<String>,
}

/// A response that is being computed.
pub type DebugResponseFuture<'a> =
    Pin<Box<dyn Future<Output = Result<DebugResponse, Status>> + Send + 'a>>;

/// Computes the responses of the debug API.
pub trait DebugPages: fmt::Debug + Send + Sync {
    /// Returns the response, or the status that ends the stream if the client is not authorized.
    fn answer(&self, question: DebugRequest) -> DebugResponseFuture<'_>;
}

/// Whether a type belongs to the debug API.
pub(super) fn is_debug(url: &str) -> bool {
    url == CONNECTIONS
        || url
            .strip_prefix(DEBUG)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl DebugResponse {
    pub(super) fn encode(
        self,
        protocol: Protocol,
        type_url: String,
        sent: &SentResponse,
    ) -> Vec<u8> {
        let control_plane = self
            .control_plane
            .map(|identifier| ControlPlane { identifier });
        let version = sent.version.to_string();
        let nonce = sent.nonce.to_string();

        match protocol {
            Protocol::StateOfTheWorld => DiscoveryResponse {
                version_info: version,
                resources: self
                    .resources
                    .into_iter()
                    .map(|(_, resource)| resource)
                    .collect(),
                type_url,
                nonce,
                control_plane,
                ..DiscoveryResponse::default()
            }
            .encode_to_vec(),
            Protocol::Delta => DeltaDiscoveryResponse {
                system_version_info: version,
                resources: self
                    .resources
                    .into_iter()
                    .map(|(name, resource)| named_resource(name, resource))
                    .collect(),
                type_url,
                nonce,
                control_plane,
                ..DeltaDiscoveryResponse::default()
            }
            .encode_to_vec(),
        }
    }
}

fn named_resource(name: String, resource: Any) -> Resource {
    Resource {
        name,
        resource: Some(resource),
        ..Resource::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_types_at_or_below_debug_are_questions() {
        for url in [
            "istio.io/debug",
            "istio.io/debug/syncz",
            "istio.io/debug/x",
            "istio.io/connections",
        ] {
            assert!(is_debug(url), "{url}");
        }
        for url in [
            "istio.io/debugger",
            "istio.io/nds",
            "istio.io/connections/x",
            "",
            "type.googleapis.com/istio.io/debug",
        ] {
            assert!(!is_debug(url), "{url}");
        }
    }
}

//! The agent's debug port (15004), on loopback alone: the control plane's debug API, for tools that
//! reach pods but not the control plane, such as `istioctl proxy-status --xds-via-agents`.
//!
//! ```text
//! istioctl ──ADS (SotW)────▶ ┌─────┐ ──a stream of its own────▶ the control plane that
//! curl ──GET /debug/syncz──▶ └─────┘   with the workload's      configures this proxy
//!                                      identity
//! ```
//!
//! Everybody in the pod can connect. The control plane decides what the workload may see, which is
//! no more than the agent itself can read. Types outside of the debug API are rejected here.

mod page;
mod serve;

pub(crate) use serve::serve;

use std::sync::Arc;
use std::time::Duration;

use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::DiscoveryResponse;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::Status;

use super::ads::DebugClient;
use super::node::NodeIdentity;

/// Maximum concurrent requests; further ones are rejected. A response can have many megabytes.
const MAX_CONCURRENT_REQUESTS: usize = 4;

/// Forwards debug requests to the control plane. Clones share the limit.
#[derive(Clone, Debug)]
pub(crate) struct Tap {
    client: DebugClient,
    /// Identifies this client to the control plane.
    node: Node,
    turns: Arc<Semaphore>,
}

impl Tap {
    pub(crate) fn new(client: DebugClient, identity: &NodeIdentity) -> Self {
        Self {
            client,
            node: node(identity),
            turns: Arc::new(Semaphore::new(MAX_CONCURRENT_REQUESTS)),
        }
    }

    /// Forwards a request, and waits for the response for at most `limit`.
    ///
    /// # Errors
    /// `ResourceExhausted` if too many requests are in progress; `DeadlineExceeded` without a
    /// response in time; and the errors of [`DebugClient::send`].
    async fn forward(
        &self,
        type_url: String,
        resource_names: Vec<String>,
        limit: Duration,
    ) -> Result<DiscoveryResponse, Status> {
        let _turn = self.turns.try_acquire().map_err(|_| {
            Status::resource_exhausted(format!(
                "{MAX_CONCURRENT_REQUESTS} debug requests are in progress; retry later"
            ))
        })?;

        let answered = self
            .client
            .send(self.node.clone(), type_url.clone(), resource_names);
        let answered = timeout(limit, answered).await.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!(
                "the control plane did not respond within {limit:?}"
            )))
        });
        answered.inspect_err(|status| {
            tracing::debug!(
                type_url,
                code = ?status.code(),
                reason = status.message(),
                "debug request failed"
            );
        })
    }
}

/// The node of debug requests. It is not that of Envoy: the control plane would list a second proxy
/// of the same name.
fn node(identity: &NodeIdentity) -> Node {
    let text = |text: &str| Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    let namespace = &identity.namespace;
    let fields = [("GENERATOR", "event"), ("NAMESPACE", namespace.as_str())];
    let metadata = Struct {
        fields: fields
            .map(|(key, value)| (key.to_owned(), text(value)))
            .into(),
    };

    Node {
        id: format!(
            "sidecar~127.0.0.1~debug.{namespace}~{}",
            identity.full_domain()
        ),
        metadata: Some(metadata),
        ..Node::default()
    }
}

#[cfg(test)]
mod tests;

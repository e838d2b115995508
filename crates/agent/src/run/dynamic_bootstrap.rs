//! The bootstrap that the control plane generates (`BOOTSTRAP_XDS_AGENT`): it contains patches of
//! EnvoyFilters (`applyTo: BOOTSTRAP`), and replaces the agent's own before Envoy starts.
//!
//! It comes from a control plane with a verified certificate alone, is for this proxy's node, and
//! Envoy accepts it. Until then requests are repeated, up to a time limit.

use std::io;
use std::time::Duration;

use navarch_proto::any::type_url;
use navarch_proto::envoy::config::bootstrap::v3::Bootstrap;
use navarch_proto::envoy::config::core::v3::{Locality, Node};
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use navarch_proto::json::{Codec, JsonError};
use prost_types::value::Kind;
use prost_types::{ListValue, Struct};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt as _;
use tonic::{Request, Status};

use super::prepare::Prepared;
use super::{files, watch};
use crate::upstream::{Transport, Upstream, UpstreamConfig, UpstreamError};
use crate::variables::Variables;
use navarch_net::backoff::Backoff;

/// The default of `NAVARCH_BOOTSTRAP_TIMEOUT`.
const DEFAULT_LIMIT: Duration = Duration::from_secs(60);
/// Timeout of one request. A control plane without such bootstraps may not respond at all.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// The delay after the first failed request, which doubles up to [`MAX_DELAY`].
const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(10);
/// Maximum size of a response. A bootstrap has about 20 KiB.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// What happens without a bootstrap within the time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fallback {
    /// The agent ends.
    Exit,
    /// Envoy is started with the agent's own bootstrap.
    Local,
}

/// Errors of getting the bootstrap.
#[derive(Debug, thiserror::Error)]
pub enum DynamicBootstrapError {
    /// The control plane is not verified.
    #[error(
        "BOOTSTRAP_XDS_AGENT requires TLS to the control plane, whose bootstrap is not accepted from anybody else"
    )]
    Plaintext,
    /// The setting has another value.
    #[error("NAVARCH_BOOTSTRAP_FALLBACK={0:?} is unknown: set it to exit or local")]
    Fallback(String),
    /// There was none in time.
    #[error(
        "no bootstrap from the control plane within {limit:?}; NAVARCH_BOOTSTRAP_FALLBACK=local starts Envoy without it"
    )]
    NotReceived {
        /// `NAVARCH_BOOTSTRAP_TIMEOUT`.
        limit: Duration,
        /// Why the last request failed.
        source: RequestError,
    },
    /// The file cannot be replaced.
    #[error("failed to write the bootstrap {path}")]
    File {
        /// Below `configPath`.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Connecting failed, or there are no credentials.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The control plane rejected the request.
    #[error("{}", .0.message())]
    Rejected(Status),
    /// No response in time.
    #[error("timed out after {0:?}")]
    Timeout(Duration),
    /// The response has no bootstrap, or several.
    #[error("the response has {0} resources in place of one bootstrap")]
    Count(usize),
    /// The response has another type.
    #[error("the response has the type {0:?}")]
    Type(String),
    /// The bootstrap cannot be read.
    #[error("the bootstrap is invalid")]
    Invalid(#[from] JsonError),
    /// It is that of another proxy.
    #[error("the bootstrap is for another node, {0:?}")]
    Node(String),
    /// Envoy would not start with it.
    #[error("Envoy rejects the bootstrap, for a reason in its log")]
    Envoy,
}

/// The pending request for a bootstrap.
#[derive(Debug)]
pub(super) struct DynamicBootstrap {
    upstream: Upstream,
    node: Node,
    /// The file with the agent's own bootstrap.
    path: String,
    /// The program and arguments by which Envoy validates the file.
    program: String,
    arguments: Vec<String>,
    limit: Duration,
    fallback: Fallback,
}

impl DynamicBootstrap {
    /// The request, if it is enabled, and the user does not provide the bootstrap.
    pub(super) fn planned(
        prepared: &Prepared,
        variables: &Variables,
        control_plane: UpstreamConfig,
    ) -> Result<Option<Self>, DynamicBootstrapError> {
        if !variables.flag("BOOTSTRAP_XDS_AGENT", false) || prepared.settings.disable_envoy {
            return Ok(None);
        }
        let Some(written) = &prepared.written else {
            tracing::warn!("BOOTSTRAP_XDS_AGENT has no effect with customConfigFile");
            return Ok(None);
        };
        if control_plane.transport == Transport::Plain {
            return Err(DynamicBootstrapError::Plaintext);
        }

        Ok(Some(Self {
            upstream: Upstream::new(control_plane),
            node: node(&written.node),
            path: prepared.bootstrap.clone(),
            program: prepared.config.binary_path.clone(),
            arguments: prepared.arguments.clone(),
            limit: variables.duration("NAVARCH_BOOTSTRAP_TIMEOUT", DEFAULT_LIMIT),
            fallback: fallback(&variables.text_or("NAVARCH_BOOTSTRAP_FALLBACK", "exit"))?,
        }))
    }

    /// Waits for the bootstrap, and writes it.
    ///
    /// # Errors
    /// If there is none within the time limit and no fallback, or writing it fails.
    pub(super) async fn receive(self) -> Result<(), DynamicBootstrapError> {
        let start = Instant::now();
        let local = files::text(&self.path).map_err(|source| self.file(source))?;
        let local = local.unwrap_or_default();
        let mut delays = Backoff::jittered(FIRST_DELAY, MAX_DELAY);

        loop {
            let error = match self
                .request_within(self.limit.saturating_sub(start.elapsed()))
                .await
            {
                Ok(json) => {
                    self.write(&json)?;
                    if watch::loads(&self.program, &self.arguments).await {
                        tracing::info!("received server-side bootstrap in {:?}", start.elapsed());
                        return Ok(());
                    }
                    self.write(&local)?;
                    RequestError::Envoy
                }
                Err(error) => error,
            };

            let delay = delays.next_delay();
            let reason: &dyn std::error::Error = &error;
            if start.elapsed() + delay < self.limit {
                tracing::warn!(
                    reason,
                    ?delay,
                    "no bootstrap from the control plane; retrying"
                );
                sleep(delay).await;
            } else if self.fallback == Fallback::Local {
                tracing::warn!(
                    reason,
                    "no bootstrap from the control plane; starting Envoy with the agent's own bootstrap"
                );
                return Ok(());
            } else {
                return Err(DynamicBootstrapError::NotReceived {
                    limit: self.limit,
                    source: error,
                });
            }
        }
    }

    /// Requests the bootstrap, and returns it as JSON.
    async fn request_within(&self, remaining: Duration) -> Result<String, RequestError> {
        let limit = remaining.min(REQUEST_TIMEOUT);
        let response = timeout(limit, self.request())
            .await
            .map_err(|_| RequestError::Timeout(limit))??;
        to_json(&response, &self.node.id)
    }

    async fn request(&self) -> Result<DiscoveryResponse, RequestError> {
        let channel = self.upstream.connect().await?;
        let request = DiscoveryRequest {
            node: Some(self.node.clone()),
            type_url: type_url::<Bootstrap>(),
            ..DiscoveryRequest::default()
        };
        // Without more requests the stream stays open: its end would cancel the response.
        let mut requests = Request::new(tokio_stream::once(request).chain(tokio_stream::pending()));
        self.upstream.sign(requests.metadata_mut()).await?;

        let mut client = AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(MAX_RESPONSE_BYTES);
        let responses = client.stream_aggregated_resources(requests).await;
        let mut responses = responses.map_err(RequestError::Rejected)?.into_inner();
        let response = responses.message().await.map_err(RequestError::Rejected)?;
        response.ok_or(RequestError::Count(0))
    }

    fn write(&self, text: &str) -> Result<(), DynamicBootstrapError> {
        files::write(&self.path, text.as_bytes()).map_err(|source| self.file(source))
    }

    fn file(&self, source: io::Error) -> DynamicBootstrapError {
        DynamicBootstrapError::File {
            path: self.path.clone(),
            source,
        }
    }
}

fn fallback(text: &str) -> Result<Fallback, DynamicBootstrapError> {
    match text {
        "exit" => Ok(Fallback::Exit),
        "local" => Ok(Fallback::Local),
        other => Err(DynamicBootstrapError::Fallback(other.to_owned())),
    }
}

/// The only resource of a response, which must be the bootstrap of this node.
fn to_json(response: &DiscoveryResponse, id: &str) -> Result<String, RequestError> {
    let url = type_url::<Bootstrap>();
    let [resource] = response.resources.as_slice() else {
        return Err(RequestError::Count(response.resources.len()));
    };
    for found in [&response.type_url, &resource.type_url] {
        if *found != url {
            return Err(RequestError::Type(found.clone()));
        }
    }

    let json = Codec::new().to_json(&url, &resource.value)?;
    let found = json.pointer("/node/id").and_then(Value::as_str);
    if found != Some(id) {
        return Err(RequestError::Node(found.unwrap_or_default().to_owned()));
    }
    Ok(json.to_string())
}

/// The node message of its JSON in the bootstrap.
fn node(json: &Value) -> Node {
    let text = |pointer: &str| {
        let text = json.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let metadata = json.get("metadata").and_then(Value::as_object);
    Node {
        id: text("/id"),
        cluster: text("/cluster"),
        metadata: metadata.map(to_struct),
        locality: Some(Locality {
            region: text("/locality/region"),
            zone: text("/locality/zone"),
            sub_zone: text("/locality/sub_zone"),
        }),
        ..Node::default()
    }
}

fn to_struct(fields: &Map<String, Value>) -> Struct {
    Struct {
        fields: fields
            .iter()
            .map(|(key, value)| (key.clone(), to_value(value)))
            .collect(),
    }
}

fn to_value(value: &Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(values) => Kind::ListValue(ListValue {
            values: values.iter().map(to_value).collect(),
        }),
        Value::Object(fields) => Kind::StructValue(to_struct(fields)),
    };
    prost_types::Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use navarch_proto::any::pack;
    use serde_json::json;

    use super::*;

    fn response(id: &str) -> DiscoveryResponse {
        let bootstrap = Bootstrap {
            node: Some(Node {
                id: id.to_owned(),
                ..Node::default()
            }),
            ..Bootstrap::default()
        };
        DiscoveryResponse {
            type_url: type_url::<Bootstrap>(),
            resources: vec![pack(&bootstrap)],
            ..DiscoveryResponse::default()
        }
    }

    #[test]
    fn only_the_bootstrap_of_this_node_is_accepted() {
        let text = to_json(&response("sidecar~a"), "sidecar~a").unwrap();
        assert_eq!(text, r#"{"node":{"id":"sidecar~a"}}"#);

        let other = to_json(&response("sidecar~b"), "sidecar~a").unwrap_err();
        assert!(matches!(&other, RequestError::Node(id) if id == "sidecar~b"));

        let mut several = response("sidecar~a");
        several.resources.extend(several.resources.clone());
        let several = to_json(&several, "sidecar~a").unwrap_err();
        assert!(matches!(several, RequestError::Count(2)), "{several}");
        let none = to_json(&DiscoveryResponse::default(), "sidecar~a").unwrap_err();
        assert!(matches!(none, RequestError::Count(0)), "{none}");

        let mut listener = response("sidecar~a");
        let url = "type.googleapis.com/envoy.config.listener.v3.Listener";
        listener.resources[0].type_url = url.to_owned();
        let listener = to_json(&listener, "sidecar~a").unwrap_err();
        assert!(matches!(listener, RequestError::Type(_)), "{listener}");

        let mut broken = response("sidecar~a");
        broken.resources[0].value = vec![0xff];
        let broken = to_json(&broken, "sidecar~a").unwrap_err();
        assert!(matches!(broken, RequestError::Invalid(_)), "{broken}");
    }

    #[test]
    fn the_request_has_the_whole_node() {
        let node = node(&json!({
            "id": "sidecar~a", "cluster": "web.shop", "locality": { "region": "r", "sub_zone": "s" },
            "metadata": { "NAME": "web-1", "PORT": 15020, "LABELS": { "app": "web" }, "IPS": [true, null] },
        }));
        assert_eq!(
            (node.id.as_str(), node.cluster.as_str()),
            ("sidecar~a", "web.shop")
        );
        let locality = node.locality.unwrap();
        assert_eq!(
            (locality.region.as_str(), locality.sub_zone.as_str()),
            ("r", "s")
        );

        let fields = node.metadata.unwrap().fields;
        assert_eq!(fields["PORT"].kind, Some(Kind::NumberValue(15020.0)));
        let Some(Kind::StructValue(labels)) = &fields["LABELS"].kind else {
            panic!("not an object")
        };
        assert_eq!(
            labels.fields["app"].kind,
            Some(Kind::StringValue("web".to_owned()))
        );
    }

    #[test]
    fn an_unknown_fallback_is_refused() {
        assert_eq!(fallback("exit").unwrap(), Fallback::Exit);
        assert_eq!(fallback("local").unwrap(), Fallback::Local);
        assert!(fallback("Local").is_err());
    }
}

//! The bootstrap that the control plane generates (`BOOTSTRAP_XDS_AGENT`): it contains patches of
//! EnvoyFilters (`applyTo: BOOTSTRAP`), and replaces the agent's own before Envoy starts.
//!
//! It comes from a control plane with a verified certificate alone, is for this proxy's node, and
//! Envoy accepts it. Until then requests are repeated, up to a time limit.

use std::io;
use std::path::Path;
use std::time::Duration;

use navarch_proto::any::type_url;
use navarch_proto::envoy::config::bootstrap::v3::Bootstrap;
use navarch_proto::envoy::service::discovery::v3::DiscoveryResponse;
use navarch_proto::json::{Codec, JsonError};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::files;
use super::prepare::Prepared;
use super::xds_request::{self, REQUEST_TIMEOUT, XdsRequest, XdsRequestError};
use crate::upgrade::program::ProgramCheck;
use crate::upstream::{Transport, UpstreamConfig};
use crate::variables::Variables;
use navarch_net::backoff::Backoff;

/// The default of `NAVARCH_BOOTSTRAP_TIMEOUT`.
const DEFAULT_LIMIT: Duration = Duration::from_secs(60);
/// The delay after the first failed request, which doubles up to [`MAX_DELAY`].
const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(10);

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
        /// The file below `configPath`.
        path: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There is no response with one bootstrap.
    #[error(transparent)]
    Request(#[from] XdsRequestError),
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
    request: XdsRequest,
    /// The file with the agent's own bootstrap.
    path: String,
    /// The program and arguments by which Envoy validates the file.
    program: String,
    arguments: Vec<String>,
    check: ProgramCheck,
    limit: Duration,
    fallback: Fallback,
}

impl DynamicBootstrap {
    /// The request, if it is enabled, and the user does not provide the bootstrap.
    pub(super) fn planned(
        prepared: &Prepared,
        variables: &Variables,
        control_plane: UpstreamConfig,
        check: ProgramCheck,
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
            request: XdsRequest::new(control_plane, xds_request::node(&written.node)),
            path: prepared.bootstrap.clone(),
            program: prepared.config.binary_path.clone(),
            arguments: prepared.arguments.clone(),
            check,
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
                    let program = Path::new(&self.program);
                    if self.check.accepts(program, &self.arguments).await.is_ok() {
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
        let response = self.request.send::<Bootstrap>(limit).await?;
        to_json(&response, &self.request.node().id)
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
    let resource = xds_request::resource::<Bootstrap>(response)?;
    let resource = resource.ok_or(XdsRequestError::Count(0))?;
    let json = Codec::new().to_json(&type_url::<Bootstrap>(), &resource.value)?;

    let found = json.pointer("/node/id").and_then(Value::as_str);
    if found != Some(id) {
        return Err(RequestError::Node(found.unwrap_or_default().to_owned()));
    }
    Ok(json.to_string())
}

#[cfg(test)]
mod tests {
    use navarch_proto::any::pack;
    use navarch_proto::envoy::config::core::v3::Node;

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
        assert!(
            matches!(several, RequestError::Request(XdsRequestError::Count(2))),
            "{several}"
        );
        let none = to_json(&DiscoveryResponse::default(), "sidecar~a").unwrap_err();
        assert!(
            matches!(none, RequestError::Request(XdsRequestError::Count(0))),
            "{none}"
        );

        let mut listener = response("sidecar~a");
        let url = "type.googleapis.com/envoy.config.listener.v3.Listener";
        listener.resources[0].type_url = url.to_owned();
        let listener = to_json(&listener, "sidecar~a").unwrap_err();
        assert!(
            matches!(listener, RequestError::Request(XdsRequestError::Type(_))),
            "{listener}"
        );

        let mut broken = response("sidecar~a");
        broken.resources[0].value = vec![0xff];
        let broken = to_json(&broken, "sidecar~a").unwrap_err();
        assert!(matches!(broken, RequestError::Invalid(_)), "{broken}");
    }

    #[test]
    fn an_unknown_fallback_is_rejected() {
        assert_eq!(fallback("exit").unwrap(), Fallback::Exit);
        assert_eq!(fallback("local").unwrap(), Fallback::Local);
        assert!(fallback("Local").is_err());
    }
}

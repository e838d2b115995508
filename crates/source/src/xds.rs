//! Another control plane as a source: Istio's objects over xDS (MCP), as istiod's `configSources`
//! has it.
//!
//! ```text
//! server ═ one stream ═▶ all objects of a type ─▶ diff to the sent state ─▶ batch of events
//!        ◀── ACK, or NACK with object, field and reason
//! ```
//!
//! Each response contains all objects of its type. Invalid objects are rejected by name, and their
//! last valid versions stay in force beside the valid ones. When the server is unreachable the
//! objects stay in force; after the next success only differences are sent.

mod connection;
mod metrics;
mod stream;
#[cfg(test)]
mod tests;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::event_log::{EventLog, event_log};
use super::kind_objects::KindObjects;
use super::kubernetes::KubernetesScope;
use super::problem::{FilePosition, Problem, ProblemKind};
use super::{Batch, RETRY, SourceEvent};
use navarch_api::decode::Subject;
use navarch_api::istio::ClientTlsSettings;
use navarch_api::mcp;
use navarch_api::object::Kind;
use navarch_base::error_chain::chain;

pub use metrics::XdsMetrics;
use stream::{Stream, StreamEnd};

/// The largest response: a hundred thousand objects of 2 KiB.
const MAX_RESPONSE: usize = 256 << 20;
/// How long a stream must have worked to reset the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// What is read, and how the client authenticates.
#[derive(Clone)]
pub struct XdsSourceConfig {
    /// `host:port`.
    pub address: String,
    /// TLS to the server; `None` for plain text.
    pub tls: Option<ClientTlsSettings>,
    /// Whether only services and workloads are requested (`SERVICE_REGISTRY`).
    pub services_alone: bool,
    /// The revision and the namespace of the control plane.
    pub scope: KubernetesScope,
    /// The name of this pod.
    pub pod: Arc<str>,
    /// The client for the Secret of `credentialName`, if there is a cluster.
    pub secrets: Option<kube::Client>,
    /// Shared by all sources over xDS, which their label `source` distinguishes.
    pub metrics: XdsMetrics,
}

/// Reads Istio's objects from another control plane.
pub struct XdsSource {
    config: XdsSourceConfig,
    /// The name of the source: `xds://host:port`.
    name: Arc<str>,
    /// The sent state, by kind.
    held: Vec<KindSubscription>,
    /// Whether all kinds were received once.
    synced: bool,
    /// Whether a lost connection was reported.
    unhealthy: bool,
    /// Maximum size of a response in bytes; lower in tests.
    max_response: usize,
    log: EventLog,
}

/// The subscription to one kind, with its sent state.
#[derive(Debug)]
pub(super) struct KindSubscription {
    kind: Kind,
    held: KindObjects,
    /// Whether the server has ever responded for the kind.
    answered: bool,
}

impl std::fmt::Debug for XdsSourceConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // TLS settings can contain keys.
        f.debug_struct("XdsSourceConfig")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for XdsSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdsSource")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl XdsSource {
    /// A source that connects when it runs.
    #[must_use]
    pub fn new(config: XdsSourceConfig) -> Self {
        let name: Arc<str> = Arc::from(format!("xds://{}", config.address));
        let services = [Kind::ServiceEntry, Kind::WorkloadEntry];
        let kinds = mcp::kinds().filter(|kind| !config.services_alone || services.contains(kind));
        let prefix: Arc<str> = Arc::from(format!("{name}/"));
        let held = kinds
            .map(|kind| KindSubscription {
                kind,
                held: KindObjects::new(kind, prefix.clone()),
                answered: false,
            })
            .collect();

        let log = event_log!(name.clone());
        Self {
            config,
            name,
            held,
            synced: false,
            unhealthy: false,
            max_response: MAX_RESPONSE,
            log,
        }
    }

    /// Sends the objects of the server and then changes, until the receiver is closed.
    pub async fn run(mut self, events: mpsc::Sender<Batch>) {
        let mut backoff = RETRY;

        loop {
            let begun = Instant::now();
            let ended = match self.connect().await {
                Ok(channel) => Stream::new(&mut self, &events).run(channel).await,
                Err(error) => StreamEnd::Broken(chain(&error)),
            };
            self.config.metrics.connected(&self.name, false);
            let reason = match ended {
                StreamEnd::Unheard => return,
                StreamEnd::Broken(reason) => reason,
            };
            tracing::warn!(source = %self.name, reason, "disconnected from the config source; keeping the last received configuration");

            self.unhealthy = true;
            if events.send(vec![self.problem(Some(reason))]).await.is_err() {
                return;
            }

            if begun.elapsed() >= STABLE_AFTER {
                backoff.reset();
            }

            tokio::select! {
                () = tokio::time::sleep(backoff.next_delay()) => {}
                () = events.closed() => return,
            }
        }
    }

    /// Connects with the current files and Secrets.
    async fn connect(&self) -> Result<tonic::transport::Channel, connection::ConnectError> {
        let XdsSourceConfig {
            address,
            tls,
            secrets,
            scope,
            ..
        } = &self.config;
        let tls = match tls {
            Some(settings) => {
                tls::client(settings, secrets.as_ref(), &scope.system_namespace).await?
            }
            None => None,
        };
        connection::connect(address, tls).await
    }

    /// The problem of the source as a whole; `None` clears it.
    fn problem(&self, reason: Option<String>) -> SourceEvent {
        let place = FilePosition {
            file: self.name.clone(),
            line: 0,
        };
        let problem = |reason| Problem {
            place: place.clone(),
            subject: Subject::default(),
            fault: ProblemKind::Unreadable(reason),
        };
        SourceEvent::Problems {
            place: self.name.clone(),
            problems: reason.map(problem).into_iter().collect(),
        }
    }
}

//! One stream of a configuration source: subscribes to all types, applies responses, and sends ACK
//! or NACK.

use std::fmt::Write as _;
use std::time::Duration;

use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use navarch_proto::google::rpc::Status as ErrorDetail;
use prost_types::Any;
use prost_types::value::Kind as ValueKind;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;

use super::{KindSubscription, XdsSource};
use crate::KubernetesScope;
use crate::problem::{Problem, ProblemKind};
use crate::{Batch, SourceEvent};
use navarch_api::decode::StoredObject;
use navarch_api::mcp;
use navarch_base::go_text::quoted;

/// Maximum number of objects of one type.
const MAX_OBJECTS: usize = 200_000;
/// How long a server may take to respond to the call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a new stream waits for responses for all types. Types without a response by then that
/// never had one are assumed to be empty, because a server need not support all types.
const INITIAL_FETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of rejected objects in a NACK.
const MAX_REPORTED: usize = 8;
/// Maximum length of the message of a NACK.
const MAX_REASON: usize = 4000;
/// Maximum number of waiting requests: one for each type, and an ACK or NACK for each.
const REQUESTS: usize = 64;

/// Why a stream ended.
#[derive(Debug)]
pub(super) enum StreamEnd {
    /// The receiver of events is closed.
    Unheard,
    /// The stream failed for this reason.
    Broken(String),
}

/// A stream in progress.
pub(super) struct Stream<'a> {
    source: &'a mut XdsSource,
    events: &'a mpsc::Sender<Batch>,
    /// The last accepted version of each type.
    versions: Vec<String>,
    /// Which types had a response on this stream.
    answered: Vec<bool>,
}

impl<'a> Stream<'a> {
    /// A stream without subscriptions.
    pub(super) fn new(source: &'a mut XdsSource, events: &'a mpsc::Sender<Batch>) -> Self {
        let count = source.held.len();
        Self {
            source,
            events,
            versions: vec![String::new(); count],
            answered: vec![false; count],
        }
    }

    pub(super) async fn run(mut self, channel: Channel) -> StreamEnd {
        match self.talk(channel).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    /// Subscribes to all types and applies responses.
    async fn talk(&mut self, channel: Channel) -> Result<std::convert::Infallible, StreamEnd> {
        let (requests, waiting) = mpsc::channel(REQUESTS);
        let mut node = Some(self.node());

        for subscription in &self.source.held {
            let type_url = mcp::type_url(subscription.kind).to_owned();
            let request = DiscoveryRequest {
                node: node.take(),
                type_url,
                ..DiscoveryRequest::default()
            };
            // The channel has room for one request of each type.
            _ = requests.try_send(request);
        }

        let mut client = AggregatedDiscoveryServiceClient::new(channel)
            .accept_compressed(CompressionEncoding::Zstd)
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(self.source.max_response);
        let call = timeout(
            CALL_TIMEOUT,
            client.stream_aggregated_resources(ReceiverStream::new(waiting)),
        )
        .await;
        let slow = || {
            StreamEnd::Broken(format!(
                "the server did not respond within {CALL_TIMEOUT:?}"
            ))
        };

        let mut responses = call
            .map_err(|_| slow())?
            .map_err(|status| broken(&status))?
            .into_inner();
        let until = Instant::now() + INITIAL_FETCH_TIMEOUT;
        let mut waits = true;

        loop {
            let response = tokio::select! {
                response = responses.message() => response.map_err(|status| broken(&status))?,
                () = sleep_until(until), if waits => {
                    waits = false;
                    self.on_initial_fetch_timeout().await?;
                    continue;
                }
                () = self.events.closed() => return Err(StreamEnd::Unheard),
            };

            let Some(response) = response else {
                return Err(StreamEnd::Broken("the server ended the stream".to_owned()));
            };

            let Some(answer) = self.take(response).await? else {
                continue;
            };

            if requests.send(answer).await.is_err() {
                return Err(StreamEnd::Broken(
                    "the server closed the stream for requests".to_owned(),
                ));
            }
        }
    }

    /// Applies a response; returns the ACK or NACK, or `None` for a type without subscription.
    async fn take(
        &mut self,
        response: DiscoveryResponse,
    ) -> Result<Option<DiscoveryRequest>, StreamEnd> {
        let DiscoveryResponse {
            version_info,
            resources,
            type_url,
            nonce,
            ..
        } = response;

        let place = self
            .source
            .held
            .iter()
            .position(|subscription| mcp::type_url(subscription.kind) == type_url);
        let Some(place) = place else {
            tracing::debug!(source = %self.source.name, r#type = type_url, "ignored a response of a type that was not requested");
            return Ok(None);
        };

        let (Some(subscription), Some(version), Some(answered)) = (
            self.source.held.get_mut(place),
            self.versions.get_mut(place),
            self.answered.get_mut(place),
        ) else {
            return Ok(None);
        };

        let (mut batch, rejection) = read(subscription, &resources, &self.source.config.scope);
        subscription.answered = true;
        *answered = true;
        if rejection.is_none() {
            version.clone_from(&version_info);
        }

        let version_info = version.clone();
        self.source
            .config
            .metrics
            .answered(&self.source.name, rejection.is_none());
        self.source
            .config
            .metrics
            .connected(&self.source.name, true);

        if self.source.unhealthy {
            self.source.unhealthy = false;
            batch.push(self.source.problem(None));
        }

        self.send_batch(batch).await?;
        let error_detail = rejection.map(|message| {
            tracing::warn!(source = %self.source.name, r#type = type_url, message, "rejected a response of the config source");
            ErrorDetail { code: Code::InvalidArgument as i32, message, ..ErrorDetail::default() }
        });
        let response_nonce = nonce;

        Ok(Some(DiscoveryRequest {
            version_info,
            type_url,
            response_nonce,
            error_detail,
            ..DiscoveryRequest::default()
        }))
    }

    /// Sends a batch, and reports a full sync once all types had a response.
    async fn send_batch(&mut self, mut batch: Batch) -> Result<(), StreamEnd> {
        if !self.source.synced
            && self
                .source
                .held
                .iter()
                .all(|subscription| subscription.answered)
        {
            self.source.synced = true;
            tracing::info!(source = %self.source.name, "config source synced");
            batch.push(SourceEvent::FullSync);
        }
        if batch.is_empty() {
            return Ok(());
        }

        self.source.log.record(&batch);
        self.events
            .send(batch)
            .await
            .map_err(|_| StreamEnd::Unheard)
    }

    /// Ends the wait for responses: if the server responded for some types, the others are assumed
    /// to be empty.
    async fn on_initial_fetch_timeout(&mut self) -> Result<(), StreamEnd> {
        if !self.answered.contains(&true) {
            return Err(StreamEnd::Broken(format!(
                "the server sent no response for any type within {INITIAL_FETCH_TIMEOUT:?}"
            )));
        }

        let silent = self
            .source
            .held
            .iter_mut()
            .filter(|subscription| !subscription.answered);

        let silent: Vec<_> = silent
            .map(|subscription| {
                subscription.answered = true;
                mcp::type_url(subscription.kind)
            })
            .collect();

        if !silent.is_empty() {
            tracing::warn!(source = %self.source.name, types = silent.join(", "), "the config source sent no response for some types");
        }

        self.send_batch(Batch::new()).await
    }

    /// The node of the request, as istiod sends it.
    fn node(&self) -> Node {
        let config = &self.source.config;
        let namespace = match config.scope.system_namespace.as_str() {
            "" => "istio-system",
            namespace => namespace,
        };
        let pod = if config.pod.is_empty() {
            "istiod"
        } else {
            &config.pod
        };

        let text = |text: &str| prost_types::Value {
            kind: Some(ValueKind::StringValue(text.to_owned())),
        };
        let mut fields = std::collections::BTreeMap::from([
            ("GENERATOR".to_owned(), text("api")),
            ("NAMESPACE".to_owned(), text(namespace)),
        ]);
        if !config.scope.revision.is_empty() {
            fields.insert("ISTIO_REVISION".to_owned(), text(&config.scope.revision));
        }

        Node {
            id: format!("sidecar~127.0.0.1~{pod}.{namespace}~{namespace}.svc.cluster.local"),
            metadata: Some(prost_types::Struct { fields }),
            ..Node::default()
        }
    }
}

/// Applies the resources of a response; returns the changes, and if the response is not fully
/// accepted, the reason.
fn read(
    subscription: &mut KindSubscription,
    resources: &[Any],
    scope: &KubernetesScope,
) -> (Batch, Option<String>) {
    let mut batch = Batch::new();

    if resources.len() > MAX_OBJECTS {
        let reason = format!(
            "the response has {} resources, more than the limit of {MAX_OBJECTS}; all are rejected",
            resources.len()
        );
        return (batch, Some(reason));
    }

    subscription.held.begin_round();
    let mut strangers = 0;
    let mut nameless = 0;

    for resource in resources {
        if resource.type_url != mcp::RESOURCE_URL {
            strangers += 1;
            continue;
        }

        let (subject, outcome) = mcp::decode(subscription.kind, &resource.value);
        nameless += usize::from(subject.name.is_empty());
        subscription.held.put(
            StoredObject {
                version: String::new(),
                subject,
                outcome,
            },
            scope,
            &mut batch,
        );
    }

    // An unreadable resource may be any of the known objects, so none of them is removed.
    if strangers + nameless == 0 {
        subscription.held.end_round(&mut batch);
    }

    let reason = rejection(&batch, strangers);
    (batch, reason)
}

/// Why a response is not fully accepted: the rejected objects, with field and reason.
fn rejection(batch: &Batch, strangers: usize) -> Option<String> {
    let problems = batch.iter().filter_map(|event| {
        let SourceEvent::Problems { problems, .. } = event else {
            return None;
        };
        Some(problems)
    });

    let is_rejection = |problem: &&Problem| matches!(problem.fault, ProblemKind::Rejected(_));
    let rejected: Vec<&Problem> = problems.flatten().filter(is_rejection).collect();
    let mut text = String::new();

    for problem in rejected.iter().take(MAX_REPORTED) {
        let separator = if text.is_empty() { "" } else { "; " };
        _ = write!(text, "{separator}{}: {}", problem.subject, problem.fault);
    }

    if rejected.len() > MAX_REPORTED {
        _ = write!(text, "; and {} more", rejected.len() - MAX_REPORTED);
    }

    if strangers > 0 {
        let separator = if text.is_empty() { "" } else { "; " };
        _ = write!(
            text,
            "{separator}{strangers} resources are not of type {}",
            mcp::RESOURCE_URL
        );
    }

    text.truncate(text.floor_char_boundary(MAX_REASON));
    (!text.is_empty()).then_some(text)
}

/// The failure of a call, in a form for operators.
fn broken(status: &tonic::Status) -> StreamEnd {
    StreamEnd::Broken(format!(
        "the server ended the stream with {:?}: {}",
        status.code(),
        quoted(status.message())
    ))
}

//! The service that receives Envoy's access logs.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use navarch_proto::envoy::service::accesslog::v3::StreamAccessLogsResponse;
use prost::Message as _;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::server::{ClientStreamingService, Grpc, NamedService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use super::wire::{LogMessage, text};
use super::{Cursor, Log, MeshMetrics, Workload};

/// The path of its only method.
const PATH: &str = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs";
/// Maximum size of a message: Envoy sends entries when 64 KiB are buffered, plus one entry.
const MAX_MESSAGE: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct AccessLogs(MeshMetrics);

/// The future of a call's response.
type ResponseFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// The access log service. A stream buffers one message at a time; Envoy drops entries if the agent
/// is slower.
pub(crate) fn service(metrics: MeshMetrics) -> AccessLogs {
    AccessLogs(metrics)
}

impl NamedService for AccessLogs {
    const NAME: &'static str = "envoy.service.accesslog.v3.AccessLogService";
}

impl tower_service::Service<Request<Body>> for AccessLogs {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = self.clone();
        Box::pin(async move {
            if request.uri().path() != PATH {
                return Ok(Status::unimplemented("no such method").into_http());
            }
            let codec = ProstCodec::<StreamAccessLogsResponse, LogMessage>::default();
            let mut grpc = Grpc::new(codec).apply_max_message_size_config(Some(MAX_MESSAGE), None);
            Ok(grpc.client_streaming(method, request).await)
        })
    }
}

impl ClientStreamingService<LogMessage> for AccessLogs {
    type Response = StreamAccessLogsResponse;
    type Future = ResponseFuture<tonic::Response<Self::Response>, Status>;

    fn call(&mut self, request: tonic::Request<Streaming<LogMessage>>) -> Self::Future {
        let metrics = self.0.clone();
        Box::pin(async move {
            take(&metrics, request.into_inner()).await?;
            Ok(tonic::Response::new(StreamAccessLogsResponse {}))
        })
    }
}

/// Reads a stream to its end.
async fn take(metrics: &MeshMetrics, mut messages: Streaming<LogMessage>) -> Result<(), Status> {
    let mut log = None;
    while let Some(message) = messages.message().await? {
        take_message(metrics, &mut log, message, Instant::now());
    }
    Ok(())
}

/// Counts the entries of a message. `log` is the log that the stream has identified so far.
fn take_message(
    metrics: &MeshMetrics,
    log: &mut Option<Arc<Log>>,
    message: LogMessage,
    now: Instant,
) {
    let LogMessage {
        identifier,
        http_logs,
        tcp_logs,
    } = message;
    if let Some(identifier) = identifier {
        *log = metrics.log(text(&identifier.log_name));
    }
    // Entries of other logs are ignored; an error would only make Envoy reconnect.
    let Some(log) = log else { return };
    if let Some(entries) = http_logs {
        metrics.count_requests(log, &entries.log_entry, now);
    }
    if let Some(entries) = tcp_logs {
        metrics.count_connections(log, &entries.log_entry, now);
    }
}

/// The exposition of an unknown workload after a stream of these messages, and whether all could be
/// decoded. For tests with arbitrary input.
#[must_use]
pub fn exposition_after(messages: &[Vec<u8>]) -> (String, bool) {
    let metrics = MeshMetrics::new(Workload::default(), "1");
    let mut log = None;
    let mut are_read = true;
    for message in messages {
        let Ok(message) = LogMessage::decode(message.as_slice()) else {
            are_read = false;
            break;
        };
        take_message(&metrics, &mut log, message, Instant::now());
    }
    let mut cursor = Cursor::default();
    (
        std::iter::from_fn(|| metrics.page(&mut cursor)).collect(),
        are_read,
    )
}

//! One request to a collector.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use navarch_net::http::exchange;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Code;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use crate::messages::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use crate::tls::{self, TlsError};
use crate::variables::{Config, Protocol};
use navarch_net::grpc_target::{GrpcTarget, Io};

/// The method of gRPC.
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The form of requests over HTTP.
const PROTOBUF: &str = "application/x-protobuf";
/// Maximum size of a response.
const MAX_RESPONSE: usize = 64 << 10;

pub(crate) struct Collector {
    config: Config,
    /// The gRPC channel, once there is one.
    channel: Option<Channel>,
}

/// Errors of sending spans.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The endpoint is not a valid gRPC target.
    #[error("invalid host:port {0:?}")]
    Address(String),
    /// The TLS configuration is invalid.
    #[error("failed to configure TLS")]
    Tls(#[from] TlsError),
    /// Connecting for gRPC failed.
    #[error("failed to connect")]
    Connect(#[source] tonic::transport::Error),
    /// Connecting for HTTP failed.
    #[error("failed to connect")]
    Open(#[source] io::Error),
    /// The collector's gRPC status.
    #[error("gRPC status {:?}: {}", .0.code(), .0.message())]
    Grpc(#[source] Box<tonic::Status>),
    /// The collector's HTTP status, and its `Retry-After`.
    #[error("unexpected HTTP status {0}")]
    Http(StatusCode, Option<Duration>),
    /// The HTTP exchange failed.
    #[error("HTTP request failed")]
    Conversation(#[from] hyper::Error),
    /// The request is invalid.
    #[error("failed to build the HTTP request")]
    Request(#[from] http::Error),
    /// Reading the response failed, or it is too large.
    #[error("failed to read the response body")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The timeout was exceeded.
    #[error("timed out after {0:?}")]
    Timeout(Duration),
}

impl SendError {
    /// Whether a retry may succeed, as specified by OTLP.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::Grpc(status) => matches!(
                status.code(),
                Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::Aborted
                    | Code::OutOfRange
                    | Code::Unavailable
                    | Code::DataLoss
                    | Code::ResourceExhausted
            ),
            Self::Http(status, _) => matches!(status.as_u16(), 429 | 502..=504),
            // Files may be corrected, and addresses may resolve later.
            Self::Tls(_)
            | Self::Connect(_)
            | Self::Open(_)
            | Self::Conversation(_)
            | Self::Body(_)
            | Self::Timeout(_) => true,
            Self::Address(_) | Self::Request(_) => false,
        }
    }

    /// The retry delay that the collector asked for.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        if let Self::Http(_, after) = self {
            *after
        } else {
            None
        }
    }
}

impl Collector {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            channel: None,
        }
    }

    /// Sends once. The response has the rejected spans.
    pub(crate) async fn send(
        &mut self,
        request: &ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, SendError> {
        let timeout = self.config.timeout;
        let sent = async {
            match self.config.protocol {
                Protocol::Grpc => self.call(request.clone()).await,
                Protocol::Http => post(&self.config, request).await,
            }
        };
        let outcome = tokio::time::timeout(timeout, sent)
            .await
            .unwrap_or(Err(SendError::Timeout(timeout)));
        if outcome.is_err() {
            // The next connection reads the certificates again.
            self.channel = None;
        }
        outcome
    }

    /// Sends by gRPC.
    async fn call(
        &mut self,
        request: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, SendError> {
        let channel = match &self.channel {
            Some(channel) => channel.clone(),
            None => self.channel.insert(connect(&self.config).await?).clone(),
        };
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.map_err(SendError::Connect)?;
        let mut request = tonic::Request::new(request);
        let headers = self.config.headers.0.iter().cloned().collect();
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        let codec = tonic_prost::ProstCodec::default();
        let answer = client
            .unary(request, PathAndQuery::from_static(METHOD), codec)
            .await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| SendError::Grpc(Box::new(status)))
    }
}

/// A channel of gRPC.
async fn connect(config: &Config) -> Result<Channel, SendError> {
    let authority = config.endpoint.authority();
    let target = GrpcTarget::parse(&authority).ok_or(SendError::Address(authority))?;
    let tls = if config.endpoint.tls {
        Some(tls::connector(&config.tls, b"h2").await?)
    } else {
        None
    };
    let host: Arc<str> = Arc::from(target.host());
    let secure = move |stream| speak(stream, host.clone(), tls.clone());
    target
        .connect(config.timeout, secure)
        .await
        .map_err(SendError::Connect)
}

/// The transport of a connection.
async fn speak(
    stream: TcpStream,
    host: Arc<str>,
    tls: Option<TlsConnector>,
) -> io::Result<Box<dyn Io>> {
    match tls {
        Some(tls) => Ok(Box::new(tls::secure(&tls, &host, stream).await?)),
        None => Ok(Box::new(stream)),
    }
}

/// Sends by HTTP, over a connection of its own.
async fn post(
    config: &Config,
    request: &ExportTraceServiceRequest,
) -> Result<ExportTraceServiceResponse, SendError> {
    let endpoint = &config.endpoint;
    let mut head = Request::post(&endpoint.path)
        .header(HOST, endpoint.authority())
        .header(CONTENT_TYPE, PROTOBUF);
    let mut body = Bytes::from(request.encode_to_vec());

    if config.gzip {
        head = head.header(CONTENT_ENCODING, "gzip");
        body = compressed(&body).map_err(SendError::Open)?;
    }

    for (name, value) in &config.headers.0 {
        head = head.header(name, value);
    }

    let request = head.body(Full::new(body))?;
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
        .await
        .map_err(SendError::Open)?;
    let answer = if endpoint.tls {
        let tls = tls::connector(&config.tls, b"http/1.1").await?;
        send_over(
            tls::secure(&tls, &endpoint.host, stream)
                .await
                .map_err(SendError::Open)?,
            request,
        )
        .await?
    } else {
        send_over(stream, request).await?
    };

    // A response that is not a message has no rejected spans.
    Ok(ExportTraceServiceResponse::decode(answer).unwrap_or_default())
}

fn compressed(body: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body)?;
    Ok(encoder.finish()?.into())
}

/// Sends a request over a connection.
async fn send_over<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Bytes, SendError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let read = async |response: Response<Incoming>| {
        let status = response.status();
        if !status.is_success() {
            let after = response
                .headers()
                .get(RETRY_AFTER)
                .and_then(|after| after.to_str().ok()?.parse().ok());
            return Err(SendError::Http(status, after.map(Duration::from_secs)));
        }
        let body = Limited::new(response.into_body(), MAX_RESPONSE)
            .collect()
            .await
            .map_err(SendError::Body)?;
        Ok(body.to_bytes())
    };
    exchange(stream, request, read).await?
}

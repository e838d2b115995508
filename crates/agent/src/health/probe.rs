//! A single probe of the application.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitStatus;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::Empty;
use navarch_net::http::exchange;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

use super::HealthConfig;
use crate::tls;
use navarch_api::mesh::{
    ExecHealthCheckConfig, GrpcHealthCheckConfig, HttpHealthCheckConfig, TcpHealthCheckConfig,
};

/// The source address of probes: iptables passes it to the application instead of Envoy.
const FROM_V4: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
/// The same for IPv6.
const FROM_V6: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);
/// The method path of gRPC's health protocol.
const CHECK: &str = "/grpc.health.v1.Health/Check";
/// The value of `SERVING`.
const SERVING: i32 = 1;

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct CheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct CheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    /// The probe has no valid port.
    #[error("invalid port {0}")]
    Port(u32),
    /// The probe names no program.
    #[error("the probe has no command")]
    NoCommand,
    /// The host cannot be a server name of TLS.
    #[error(transparent)]
    HostName(#[from] InvalidDnsNameError),
    /// The path, the host or a header of the probe is invalid.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The host has no address.
    #[error("failed to resolve {0}")]
    NoAddress(String),
    /// The application does not accept connections.
    #[error("failed to connect to {host}:{port}: {source}")]
    Connect {
        host: String,
        port: u16,
        source: io::Error,
    },
    /// The agent's own status server or the application's TLS fails.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is no TLS configuration.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The application did not answer.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The application's answer is no success.
    #[error("unexpected HTTP status {0}")]
    Status(StatusCode),
    /// Envoy's readiness probe failed.
    #[error("Envoy is not ready: {0}")]
    Envoy(#[source] Box<ProbeError>),
    /// The command could not be run.
    #[error("{program}: {source}")]
    Command { program: String, source: io::Error },
    /// The command failed.
    #[error("{program} ended with {status}")]
    Exit { program: String, status: ExitStatus },
    /// The connection for gRPC failed.
    #[error(transparent)]
    Channel(#[from] tonic::transport::Error),
    /// The health service returned an error.
    #[error("{}", .0.message())]
    Grpc(#[from] tonic::Status),
    /// The health service does not report `SERVING`.
    #[error("the service reports status {0}, not SERVING")]
    NotServing(i32),
    /// The application takes too long.
    #[error("timed out after {0:?}")]
    TimedOut(Duration),
}

/// Checks Envoy's readiness and the application; returns the reason if one is not ready.
pub(super) async fn run(config: &HealthConfig) -> Result<(), ProbeError> {
    if let Some(proxy) = config.proxy {
        let stream = TcpStream::connect(proxy).await?;
        let request = request("/healthz/ready", &proxy.to_string(), &[])?;
        get(stream, request)
            .await
            .map_err(|error| ProbeError::Envoy(Box::new(error)))?;
    }

    let probe = &config.probe;
    if let Some(http) = &probe.http_get {
        return by_http(http, &config.host).await;
    }

    if let Some(TcpHealthCheckConfig { host, port }) = &probe.tcp_socket {
        return connect(host_or(host, &config.host), *port, None)
            .await
            .map(drop);
    }

    if let Some(exec) = &probe.exec {
        return by_command(exec).await;
    }

    match &probe.grpc {
        Some(grpc) => by_grpc(grpc, &config.host).await,
        None => Ok(()),
    }
}

/// The host, or the default if it is empty.
fn host_or<'a>(host: &'a str, other: &'a str) -> &'a str {
    if host.is_empty() { other } else { host }
}

async fn connect(host: &str, port: u32, from: Option<()>) -> Result<TcpStream, ProbeError> {
    let port = u16::try_from(port).map_err(|_| ProbeError::Port(port))?;
    let failed = |source: io::Error| ProbeError::Connect {
        host: host.to_owned(),
        port,
        source,
    };
    let mut addresses = tokio::net::lookup_host((host, port))
        .await
        .map_err(failed)?;
    let address: SocketAddr = addresses
        .next()
        .ok_or_else(|| ProbeError::NoAddress(host.to_owned()))?;

    if from.is_none() {
        return TcpStream::connect(address).await.map_err(failed);
    }

    let (socket, local): (_, IpAddr) = match address {
        SocketAddr::V4(_) => (TcpSocket::new_v4(), FROM_V4.into()),
        SocketAddr::V6(_) => (TcpSocket::new_v6(), FROM_V6.into()),
    };
    let socket = socket.map_err(failed)?;

    // If the address is not local, the probe uses another source address, and does not bypass
    // Envoy.
    if let Err(error) = socket.bind(SocketAddr::new(local, 0)) {
        tracing::debug!(%error, "failed to bind the probe's source address; using another one");
        return TcpStream::connect(address).await.map_err(failed);
    }

    socket.connect(address).await.map_err(failed)
}

/// An HTTP probe, which succeeds with a status from 200 to 399.
async fn by_http(http: &HttpHealthCheckConfig, default_host: &str) -> Result<(), ProbeError> {
    let HttpHealthCheckConfig {
        path,
        port,
        host,
        scheme,
        http_headers,
    } = http;

    let host = host_or(host, default_host);
    let headers: Vec<_> = http_headers
        .iter()
        .map(|header| (header.name.as_str(), header.value.as_str()))
        .collect();
    let path = match path.as_str() {
        "" => "/".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("/{path}"),
    };

    let authority = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };

    let request = request(&path, &authority, &headers)?;
    let stream = connect(host, *port, Some(())).await?;
    if !scheme.eq_ignore_ascii_case("https") {
        return get(stream, request).await;
    }

    let name = ServerName::try_from(host.to_owned())?;

    // As in kubelets, which do not verify the application's certificate.
    let connector = TlsConnector::from(tls::unverified()?);
    get(connector.connect(name, stream).await?, request).await
}

/// An HTTP request with these headers.
fn request(
    path: &str,
    host: &str,
    headers: &[(&str, &str)],
) -> Result<Request<Empty<Bytes>>, http::Error> {
    let mut request = Request::get(path).header(HOST, host).body(Empty::new())?;
    request
        .headers_mut()
        .insert(USER_AGENT, HeaderValue::from_static("istio-probe/1.0"));
    for (name, value) in headers {
        let name = HeaderName::try_from(*name)?;
        let value = HeaderValue::try_from(*value)?;
        request.headers_mut().insert(name, value);
    }
    Ok(request)
}

/// Sends a request; returns the reason if the status is not a success. The body is not read.
async fn get<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<(), ProbeError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let status = exchange(stream, request, async |response| response.status()).await?;
    let good = status >= StatusCode::OK && status < StatusCode::BAD_REQUEST;
    if good {
        Ok(())
    } else {
        Err(ProbeError::Status(status))
    }
}

/// A command probe, which succeeds with exit code zero. The command is killed when the future is
/// dropped.
async fn by_command(exec: &ExecHealthCheckConfig) -> Result<(), ProbeError> {
    let (program, arguments) = exec.command.split_first().ok_or(ProbeError::NoCommand)?;
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .kill_on_drop(true)
        .stdin(std::process::Stdio::null());

    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let status = command
        .status()
        .await
        .map_err(|source| ProbeError::Command {
            program: program.clone(),
            source,
        })?;

    if status.success() {
        Ok(())
    } else {
        Err(ProbeError::Exit {
            program: program.clone(),
            status,
        })
    }
}

/// A probe over gRPC's health protocol.
async fn by_grpc(grpc: &GrpcHealthCheckConfig, host: &str) -> Result<(), ProbeError> {
    let authority = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };

    let endpoint =
        tonic::transport::Endpoint::from_shared(format!("http://{authority}:{}", grpc.port))?;
    let mut client = tonic::client::Grpc::new(endpoint.connect().await?);
    client.ready().await?;

    let request = tonic::Request::new(CheckRequest {
        service: grpc.service.clone(),
    });
    let codec = ProstCodec::<CheckRequest, CheckResponse>::default();
    let answer = client
        .unary(request, PathAndQuery::from_static(CHECK), codec)
        .await?;

    match answer.into_inner().status {
        SERVING => Ok(()),
        other => Err(ProbeError::NotServing(other)),
    }
}

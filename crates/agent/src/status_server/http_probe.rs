//! Probes over HTTP and HTTPS. Redirects are handled as in the kubelet: at most ten to the same
//! host are followed; one to another host is a success and is not followed.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::kept::{ApplicationPort, KeptConnections, ProbeConnection};
use super::probing::ProbeError;
use super::{StatusConfig, probing};
use crate::tls;

/// Maximum size of the forwarded body.
const MAX_BODY: usize = 10 << 10;
/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 10;

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) port: ApplicationPort,
    /// Path and query.
    pub(super) path: String,
}

/// What the application answered.
struct ProbeAnswer {
    status: StatusCode,
    /// The location of a redirect.
    location: Option<String>,
    /// The start of the body.
    body: Bytes,
    /// Whether that is the whole body.
    is_complete: bool,
}

/// Sends the probe, and forwards the status and the start of the body.
pub(super) async fn probe(
    config: &StatusConfig,
    kept: &KeptConnections,
    mut target: Target,
    headers: &HeaderMap,
) -> Result<Response, ProbeError> {
    for _ in 0..=MAX_REDIRECTS {
        let answer = send_probe(config, kept, &target, headers).await?;
        if !answer.status.is_redirection() {
            let mut response = Response::new(Body::from(answer.body));
            *response.status_mut() = answer.status;
            return Ok(response);
        }

        let location = answer.location;
        match location.and_then(|location| redirect(config, &target, &location)) {
            Some(next) => target = next,
            None => return Ok(Response::new(Body::empty())),
        }
    }

    Err(ProbeError::Redirects)
}

/// The target of a redirect, if it is the application itself.
fn redirect(config: &StatusConfig, from: &Target, location: &str) -> Option<Target> {
    // A scheme-relative location contains a host, although it looks like a path.
    if location.starts_with("//") {
        return None;
    }

    let uri: Uri = location.parse().ok()?;
    let path = uri
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();
    let Some(host) = uri.host() else {
        return path.starts_with('/').then(|| Target {
            path,
            ..from.clone()
        });
    };

    let tls = uri
        .scheme_str()
        .map_or(from.port.tls, |scheme| scheme == "https");
    let own = host.trim_start_matches('[').trim_end_matches(']') == config.destination;

    // A redirect to the agent's own port would make the agent probe itself.
    let number = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let port = ApplicationPort { number, tls };
    (own && number != config.port).then_some(Target { port, path })
}

/// Sends one request, over a kept connection if there is one.
async fn send_probe(
    config: &StatusConfig,
    kept: &KeptConnections,
    target: &Target,
    headers: &HeaderMap,
) -> Result<ProbeAnswer, ProbeError> {
    let mut request = request(config, target, headers)?;
    if !kept.is_enabled() {
        request
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }

    let mut idle = kept.take(target.port);
    let answer = match &mut idle {
        Some(connection) => send_over(connection, request.clone()).await.ok(),
        None => None,
    };
    // The application may have closed the kept connection, or close it just now.
    let (answer, connection) = match (answer, idle) {
        (Some(answer), Some(connection)) => (answer, connection),
        (None, _) | (_, None) => {
            let mut connection = open(config, target.port).await?;
            (send_over(&mut connection, request).await?, connection)
        }
    };

    if answer.is_complete {
        kept.put(target.port, connection);
    }

    Ok(answer)
}

/// Connects to a port of the application.
async fn open(config: &StatusConfig, port: ApplicationPort) -> Result<ProbeConnection, ProbeError> {
    let stream = probing::connect(config, port.number).await?;
    if !port.tls {
        return Ok(ProbeConnection::http1(stream).await?);
    }

    let name = ServerName::try_from(config.destination.clone())?;
    let connector = TlsConnector::from(tls::of_probes(config.http2_probes)?);
    let stream = connector.connect(name, stream).await?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        Ok(ProbeConnection::http2(stream).await?)
    } else {
        Ok(ProbeConnection::http1(stream).await?)
    }
}

/// Sends one request over a connection.
async fn send_over(
    connection: &mut ProbeConnection,
    mut request: Request<Full<Bytes>>,
) -> Result<ProbeAnswer, ProbeError> {
    if connection.is_http2() {
        for_http2(&mut request)?;
    }

    let read = async |response: http::Response<Incoming>| {
        let location = response
            .headers()
            .get(header::LOCATION)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let status = response.status();
        let (body, is_complete) = beginning(response.into_body()).await;
        ProbeAnswer {
            status,
            location,
            body,
            is_complete,
        }
    };

    Ok(connection.exchange(request, read).await?)
}

/// The request: the kubelet's headers, with the application's port instead of the agent's in
/// `Host`.
fn request(
    config: &StatusConfig,
    target: &Target,
    headers: &HeaderMap,
) -> Result<Request<Full<Bytes>>, http::Error> {
    let mut request = Request::get(target.path.as_str()).body(Full::new(Bytes::new()))?;

    // Headers that concern the connection to the agent only.
    let hop = [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::CONTENT_LENGTH,
        header::UPGRADE,
        header::HOST,
    ];

    for (name, value) in headers.iter().filter(|(name, _)| !hop.contains(name)) {
        request.headers_mut().append(name.clone(), value.clone());
    }

    let requested_host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or("localhost");
    let host = match requested_host.strip_suffix(&format!(":{}", config.port)) {
        Some(host) => format!("{host}:{}", target.port.number),
        None => requested_host.to_owned(),
    };

    request
        .headers_mut()
        .insert(header::HOST, HeaderValue::from_str(&host)?);

    Ok(request)
}

/// Adapts a request to HTTP/2: the host is part of the URI, and there is no `Connection` header.
fn for_http2(request: &mut Request<Full<Bytes>>) -> Result<(), http::Error> {
    request.headers_mut().remove(header::CONNECTION);
    let host = request.headers_mut().remove(header::HOST);
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();
    let authority = host
        .as_ref()
        .map_or(&b"localhost"[..], HeaderValue::as_bytes);
    *request.uri_mut() = Uri::builder()
        .scheme("https")
        .authority(authority)
        .path_and_query(path)
        .build()?;
    *request.version_mut() = http::Version::HTTP_2;
    Ok(())
}

/// The start of a body, up to its limit, end or error, and whether that is all of it.
async fn beginning(mut body: Incoming) -> (Bytes, bool) {
    let mut read = BytesMut::new();
    let mut is_complete = false;
    while read.len() < MAX_BODY {
        match body.frame().await {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    read.extend_from_slice(data);
                }
            }
            Some(Err(_)) => break,
            None => {
                is_complete = true;
                break;
            }
        }
    }
    read.truncate(MAX_BODY);
    (read.freeze(), is_complete)
}

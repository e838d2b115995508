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

use super::probing::ProbeError;
use super::{StatusConfig, probing};
use crate::tls;
use navarch_net::http::{exchange, exchange_http2};

/// Maximum size of the forwarded body.
const MAX_BODY: usize = 10 << 10;
/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 10;

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    /// Whether to use TLS.
    tls: bool,
    port: u16,
    /// Path and query.
    path: String,
}

/// What the application answered.
struct ProbeAnswer {
    status: StatusCode,
    /// The location of a redirect.
    location: Option<String>,
    /// The start of the body.
    body: Bytes,
}

/// Sends the probe, and forwards the status and the start of the body.
pub(super) async fn probe(
    config: &StatusConfig,
    tls: bool,
    port: u16,
    path: &str,
    headers: &HeaderMap,
) -> Result<Response, ProbeError> {
    let mut target = Target {
        tls,
        port,
        path: path.to_owned(),
    };

    for _ in 0..=MAX_REDIRECTS {
        let answer = send_probe(config, &target, headers).await?;
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
        .map_or(from.tls, |scheme| scheme == "https");
    let own = host.trim_start_matches('[').trim_end_matches(']') == config.destination;

    // A redirect to the agent's own port would make the agent probe itself.
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    (own && port != config.port).then_some(Target { tls, port, path })
}

/// Sends one request.
async fn send_probe(
    config: &StatusConfig,
    target: &Target,
    headers: &HeaderMap,
) -> Result<ProbeAnswer, ProbeError> {
    let mut request = request(config, target, headers)?;
    let stream = probing::connect(config, target.port).await?;
    let read = async |response: http::Response<Incoming>| {
        let location = response
            .headers()
            .get(header::LOCATION)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        ProbeAnswer {
            status: response.status(),
            location,
            body: beginning(response.into_body()).await,
        }
    };

    let answer = if target.tls {
        let name = ServerName::try_from(config.destination.clone())?;
        let connector = TlsConnector::from(tls::of_probes(config.http2_probes)?);
        let stream = connector.connect(name, stream).await?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            for_http2(&mut request)?;
            exchange_http2(stream, request, read).await
        } else {
            exchange(stream, request, read).await
        }
    } else {
        exchange(stream, request, read).await
    };

    Ok(answer?)
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
        Some(host) => format!("{host}:{}", target.port),
        None => requested_host.to_owned(),
    };

    request
        .headers_mut()
        .insert(header::HOST, HeaderValue::from_str(&host)?);
    request
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));

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

/// The start of a body, up to its limit, end or error.
async fn beginning(mut body: Incoming) -> Bytes {
    let mut read = BytesMut::new();
    while read.len() < MAX_BODY {
        let Some(Ok(frame)) = body.frame().await else {
            break;
        };
        if let Some(data) = frame.data_ref() {
            read.extend_from_slice(data);
        }
    }
    read.truncate(MAX_BODY);
    read.freeze()
}

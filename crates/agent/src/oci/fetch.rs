//! HTTP GET requests, each on its own connection: limited in time, size and redirects, and never to
//! a blocked address. A body is collected in memory, or written to a file while it arrives.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls;
use navarch_net::destination::AddressPolicy;

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 5;

/// Errors of a download.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The URL is not supported.
    #[error("unsupported module URL {0:?}")]
    Url(String),
    /// The address is blocked.
    #[error("{host} is not allowed: {reason}")]
    Blocked { host: String, reason: &'static str },
    /// Connecting failed.
    #[error("failed to connect to {0}")]
    Connect(String, #[source] io::Error),
    /// The TLS configuration is invalid.
    #[error("failed to configure TLS")]
    Tls(#[from] rustls::Error),
    /// The HTTP exchange failed.
    #[error("HTTP request failed")]
    Http(#[from] hyper::Error),
    /// The status is not a success.
    #[error("unexpected HTTP status {0}")]
    Status(StatusCode),
    /// The timeout was exceeded.
    #[error("timed out after {0:?}")]
    Slow(Duration),
    /// The response exceeds the size limit.
    #[error("the response exceeds {0} bytes")]
    TooLarge(u64),
    /// The file of the response cannot be written.
    #[error("failed to write the response to a file")]
    Write(#[source] io::Error),
    /// There were too many redirects.
    #[error("more than {MAX_REDIRECTS} redirects, or a redirect from HTTPS to HTTP")]
    Hops,
}

impl FetchError {
    /// Whether the error may be temporary.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Connect(..) | Self::Http(_) | Self::Slow(_) => true,
            Self::Status(status) => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            Self::Url(_)
            | Self::Blocked { .. }
            | Self::Tls(_)
            | Self::TooLarge(_)
            | Self::Write(_)
            | Self::Hops => false,
        }
    }
}

/// A download and its limits.
#[derive(Clone, Debug)]
pub(crate) struct FetchRequest<'a> {
    pub(crate) url: Uri,
    /// Request headers. Credentials are not sent to other hosts after a redirect.
    pub(crate) headers: HeaderMap,
    /// Whether to skip verification of the server certificate.
    pub(crate) insecure: bool,
    /// The addresses that may be connected to.
    pub(crate) addresses: &'a AddressPolicy,
    /// Maximum size of the response.
    pub(crate) max_bytes: u64,
    /// Timeout of the download, including redirects.
    pub(crate) timeout: Duration,
}

/// A response, whatever its status.
#[derive(Clone, Debug)]
pub(crate) struct FetchResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Sends the request and follows redirects.
pub(crate) async fn get(ask: FetchRequest<'_>) -> Result<FetchResponse, FetchError> {
    let timeout = ask.timeout;
    let max_bytes = ask.max_bytes;
    let exchange = async { collect(follow(ask).await?, max_bytes).await };
    tokio::time::timeout(timeout, exchange)
        .await
        .unwrap_or(Err(FetchError::Slow(timeout)))
}

/// Sends the request, follows redirects, and writes the body of a successful response to `file`
/// while it arrives. Returns the body's sha256 in hexadecimal.
pub(crate) async fn save(ask: FetchRequest<'_>, file: &mut File) -> Result<String, FetchError> {
    let timeout = ask.timeout;
    let max_bytes = ask.max_bytes;
    let exchange = async {
        let response = follow(ask).await?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        write(response, max_bytes, file).await
    };
    tokio::time::timeout(timeout, exchange)
        .await
        .unwrap_or(Err(FetchError::Slow(timeout)))
}

/// Follows redirects. Returns the last response without its body.
async fn follow(mut ask: FetchRequest<'_>) -> Result<Response<Incoming>, FetchError> {
    for _ in 0..=MAX_REDIRECTS {
        let response = hop(&ask).await?;
        let location = response
            .headers()
            .get(LOCATION)
            .filter(|_| response.status().is_redirection());
        let Some(location) = location else {
            return Ok(response);
        };

        let next = resolve(&ask.url, location)?;
        if ask.url.scheme_str() == Some("https")
            && next.scheme_str() != Some("https")
            && !ask.insecure
        {
            return Err(FetchError::Hops);
        }
        if next.authority() != ask.url.authority() {
            ask.headers.remove(AUTHORIZATION);
        }

        ask.url = next;
    }

    Err(FetchError::Hops)
}

/// The target of a redirect.
fn resolve(from: &Uri, location: &HeaderValue) -> Result<Uri, FetchError> {
    let text = location
        .to_str()
        .map_err(|_| FetchError::Url("a location".to_owned()))?;
    let wrong = || FetchError::Url(text.to_owned());
    let next = text.parse::<Uri>().map_err(|_| wrong())?;
    if next.scheme().is_some() {
        return Ok(next);
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = next.path_and_query().cloned();
    Uri::from_parts(parts).map_err(|_| wrong())
}

/// Sends one request. Returns the response without its body.
async fn hop(ask: &FetchRequest<'_>) -> Result<Response<Incoming>, FetchError> {
    let wrong = || FetchError::Url(ask.url.to_string());
    let authority = ask
        .url
        .authority()
        .filter(|authority| !authority.as_str().contains('@'))
        .ok_or_else(wrong)?;

    let (secure, usual) = match ask.url.scheme_str() {
        Some("https") => (true, 443),
        Some("http") => (false, 80),
        Some(_) | None => return Err(wrong()),
    };
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let stream = connect(host, authority.port_u16().unwrap_or(usual), ask.addresses).await?;

    let path = ask.url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::get(path).body(Empty::new()).map_err(|_| wrong())?;
    *request.headers_mut() = ask.headers.clone();
    let name = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?;
    request.headers_mut().insert(HOST, name);
    request
        .headers_mut()
        .insert(USER_AGENT, HeaderValue::from_static("navarch-agent"));

    if !secure {
        return send(stream, request).await;
    }

    let name = ServerName::try_from(host.to_owned()).map_err(|_| wrong())?;
    let connector = TlsConnector::from(tls::config(ask.insecure)?);
    let stream = connector.connect(name, stream).await;
    send(
        stream.map_err(|error| FetchError::Connect(host.to_owned(), error))?,
        request,
    )
    .await
}

/// Connects to the first reachable address of a host that is not blocked. The checked address is
/// the one that is connected to.
async fn connect(host: &str, port: u16, policy: &AddressPolicy) -> Result<TcpStream, FetchError> {
    let failed = |error| FetchError::Connect(host.to_owned(), error);
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
        .await
        .map_err(failed)?
        .collect();
    let mut last = None;

    for address in addresses {
        if let Some(reason) = policy.denial(address.ip()) {
            return Err(FetchError::Blocked {
                host: host.to_owned(),
                reason,
            });
        }
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }

    Err(failed(last.unwrap_or_else(|| {
        io::Error::from(io::ErrorKind::NotFound)
    })))
}

/// Sends a request on a connection. The connection is driven while the response is read.
async fn send<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Incoming>, FetchError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(async move {
        // An error of the connection is also an error of the response.
        let _ = connection.await;
    });
    let response = sender.send_request(request).await?;
    // The task ends when the body is read or dropped.
    driver.detach_all();
    Ok(response)
}

/// Reads a whole response, up to the size limit.
async fn collect(
    response: Response<Incoming>,
    max_bytes: u64,
) -> Result<FetchResponse, FetchError> {
    let (parts, mut body) = response.into_parts();
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        if u64::try_from(bytes.len() + data.len()).unwrap_or(u64::MAX) > max_bytes {
            return Err(FetchError::TooLarge(max_bytes));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(FetchResponse {
        status: parts.status,
        headers: parts.headers,
        body: bytes.freeze(),
    })
}

/// Writes a whole response to a file, up to the size limit; returns its sha256 in hexadecimal.
async fn write(
    response: Response<Incoming>,
    max_bytes: u64,
    file: &mut File,
) -> Result<String, FetchError> {
    let mut body = response.into_body();
    let mut left = max_bytes;
    let mut hash = Sha256::new();

    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
        left = left
            .checked_sub(length)
            .ok_or(FetchError::TooLarge(max_bytes))?;
        hash.update(&data);
        file.write_all(&data).await.map_err(FetchError::Write)?;
    }

    file.flush().await.map_err(FetchError::Write)?;
    let digest = hash.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

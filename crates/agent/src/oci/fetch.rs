//! HTTP GET requests, each on its own connection: limited in time, size and redirects, and never to
//! a blocked address. A server elsewhere cannot redirect to this machine, also not one that a server
//! of this machine has redirected to. A body is collected in memory, or written to a file while it
//! arrives.

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
use navarch_base::shown_url::ShownUrl;
use navarch_net::destination::AddressPolicy;
use navarch_net::system_roots;

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 5;

/// Errors of a download.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The URL is not supported.
    #[error("unsupported module URL {0:?}")]
    Url(ShownUrl),
    /// The address is blocked.
    #[error("{host} is not allowed: {reason}")]
    Blocked { host: String, reason: &'static str },
    /// Connecting failed.
    #[error("failed to connect to {0}")]
    Connect(String, #[source] io::Error),
    /// The TLS configuration is invalid.
    #[error("failed to configure TLS")]
    Tls(#[from] rustls::Error),
    /// Reading the root certificates of the system failed.
    #[error("failed to read the root certificates")]
    Roots(#[source] io::Error),
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
    /// Others could read the credentials.
    #[error("the credentials of {0} are not sent in plain text")]
    PlainText(String),
    /// There were too many redirects.
    #[error("more than {MAX_REDIRECTS} redirects, or a redirect from HTTPS to HTTP")]
    Hops,
}

impl FetchError {
    /// Whether the error may be temporary.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Connect(..) | Self::Roots(_) | Self::Http(_) | Self::Slow(_) => true,
            Self::Status(status) => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            Self::Url(_)
            | Self::Blocked { .. }
            | Self::Tls(_)
            | Self::TooLarge(_)
            | Self::Write(_)
            | Self::PlainText(_)
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
    /// Whether credentials may be sent in plain text to other machines.
    pub(crate) allows_plain_credentials: bool,
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
    /// Whether it is of a server that the one asked first redirected to.
    pub(crate) is_from_other_server: bool,
    /// Whether all servers that were asked are on this machine: the first one, and those that it
    /// redirected to.
    pub(crate) is_local: bool,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A response without its body.
struct Answered {
    response: Response<Incoming>,
    /// Whether it is of a server that the one asked first redirected to.
    is_from_other_server: bool,
    /// Whether all servers that led to it are on this machine.
    is_local: bool,
}

/// The response of one server without its body.
struct Hop {
    response: Response<Incoming>,
    /// Whether the server is on this machine.
    is_local: bool,
}

/// Sends the request and follows redirects.
pub(crate) async fn get(ask: FetchRequest<'_>) -> Result<FetchResponse, FetchError> {
    let timeout = ask.timeout;
    let max_bytes = ask.max_bytes;
    let exchange = async {
        let answered = follow(ask).await?;
        collect(answered, max_bytes).await
    };
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
        let response = follow(ask).await?.response;
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
async fn follow(mut ask: FetchRequest<'_>) -> Result<Answered, FetchError> {
    let mut addresses = ask.addresses.clone();
    let mut is_local = true;
    let mut is_from_other_server = false;
    for _ in 0..=MAX_REDIRECTS {
        let hop = hop(&ask, &addresses).await?;
        is_local &= hop.is_local;
        addresses = addresses_for(ask.addresses, is_local);
        let response = hop.response;
        let location = response
            .headers()
            .get(LOCATION)
            .filter(|_| response.status().is_redirection());
        let Some(location) = location else {
            return Ok(Answered {
                response,
                is_from_other_server,
                is_local,
            });
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
            is_from_other_server = true;
        }

        ask.url = next;
    }

    Err(FetchError::Hops)
}

/// The addresses that a server may refer to, by redirects or as a token server: this machine's own
/// only if it is there itself. Otherwise whoever runs a registry could reach what only this machine
/// should.
pub(crate) fn addresses_for(policy: &AddressPolicy, is_local: bool) -> AddressPolicy {
    AddressPolicy {
        allow_loopback: policy.allow_loopback && is_local,
        blocked: policy.blocked.clone(),
    }
}

/// The target of a redirect.
fn resolve(from: &Uri, location: &HeaderValue) -> Result<Uri, FetchError> {
    let text = location
        .to_str()
        .map_err(|_| FetchError::Url(ShownUrl::new("a location")))?;
    let wrong = || FetchError::Url(ShownUrl::new(text));
    let next = text.parse::<Uri>().map_err(|_| wrong())?;
    if next.scheme().is_some() {
        return Ok(next);
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = next.path_and_query().cloned();
    Uri::from_parts(parts).map_err(|_| wrong())
}

/// Sends one request, to one of these addresses.
async fn hop(ask: &FetchRequest<'_>, addresses: &AddressPolicy) -> Result<Hop, FetchError> {
    let wrong = || FetchError::Url(ShownUrl::new(&ask.url.to_string()));
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
    let stream = connect(host, authority.port_u16().unwrap_or(usual), addresses).await?;
    let peer = stream
        .peer_addr()
        .map_err(|error| FetchError::Connect(host.to_owned(), error))?;
    let is_local = peer.ip().to_canonical().is_loopback();

    // Each request has a connection of its own, and the name may mean another machine by now.
    let is_readable = !secure && !is_local && ask.headers.contains_key(AUTHORIZATION);
    if is_readable && !ask.allows_plain_credentials {
        return Err(FetchError::PlainText(host.to_owned()));
    }

    let path = ask.url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::get(path).body(Empty::new()).map_err(|_| wrong())?;
    *request.headers_mut() = ask.headers.clone();
    let name = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?;
    request.headers_mut().insert(HOST, name);
    request
        .headers_mut()
        .insert(USER_AGENT, HeaderValue::from_static("navarch-agent"));

    if !secure {
        let response = send(stream, request).await?;
        return Ok(Hop { response, is_local });
    }

    let name = ServerName::try_from(host.to_owned()).map_err(|_| wrong())?;
    let config = if ask.insecure {
        tls::unverified()?
    } else {
        let roots = system_roots::read().await.map_err(FetchError::Roots)?;
        tls::verified(roots)?
    };
    let connector = TlsConnector::from(config);
    let stream = connector.connect(name, stream).await;
    let stream = stream.map_err(|error| FetchError::Connect(host.to_owned(), error))?;
    let response = send(stream, request).await?;
    Ok(Hop { response, is_local })
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
async fn collect(answered: Answered, max_bytes: u64) -> Result<FetchResponse, FetchError> {
    let Answered {
        response,
        is_from_other_server,
        is_local,
    } = answered;

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
        is_from_other_server,
        is_local,
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, UdpSocket};

    use axum::response::Redirect;
    use axum::routing::get as route;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    /// Serves `/there`, `/here`, which redirects to it on loopback, and `/away`, which redirects to
    /// `/here` at this machine's outer address.
    async fn serve(tasks: &mut JoinSet<()>) -> u16 {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = format!("http://127.0.0.1:{port}/there");
        let outer = outer_address().unwrap_or(IpAddr::from([127, 0, 0, 1]));
        let away = format!("http://{outer}:{port}/here");
        let app = axum::Router::new()
            .route("/away", route(async move || Redirect::temporary(&away)))
            .route("/here", route(async move || Redirect::temporary(&target)))
            .route("/there", route(async || "for this machine alone"));
        tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
        port
    }

    /// The address that this machine has in its network, if it has one. Nothing is sent.
    fn outer_address() -> Option<IpAddr> {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("192.0.2.1:9").ok()?;
        let address = socket.local_addr().ok()?.ip();
        (!address.is_loopback() && !address.is_unspecified()).then_some(address)
    }

    async fn fetch(host: IpAddr, port: u16, path: &str) -> Result<FetchResponse, FetchError> {
        fetch_with(HeaderMap::new(), host, port, path).await
    }

    async fn fetch_with(
        headers: HeaderMap,
        host: IpAddr,
        port: u16,
        path: &str,
    ) -> Result<FetchResponse, FetchError> {
        let addresses = AddressPolicy {
            allow_loopback: true,
            ..AddressPolicy::default()
        };
        get(FetchRequest {
            url: format!("http://{host}:{port}/{path}").parse().unwrap(),
            headers,
            allows_plain_credentials: false,
            insecure: false,
            addresses: &addresses,
            max_bytes: 1000,
            timeout: Duration::from_secs(10),
        })
        .await
    }

    #[tokio::test]
    async fn only_a_server_of_this_machine_may_redirect_to_it() {
        let mut tasks = JoinSet::new();
        let port = serve(&mut tasks).await;
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let own = fetch(loopback, port, "here").await.unwrap();
        assert_eq!(&*own.body, b"for this machine alone");
        assert!(own.is_local);

        let Some(outer) = outer_address() else {
            eprintln!("skipped: this machine has no network, and so no other address");
            return;
        };
        // Also one that a server of this machine has redirected to.
        for (host, path) in [(outer, "here"), (loopback, "away")] {
            let error = fetch(host, port, path).await.unwrap_err();
            assert!(
                matches!(&error, FetchError::Blocked { host, .. } if host == "127.0.0.1"),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn credentials_are_not_sent_in_plain_text_to_another_machine() {
        let mut tasks = JoinSet::new();
        let port = serve(&mut tasks).await;
        let login = HeaderValue::from_static("Basic dTpw");
        let headers = HeaderMap::from_iter([(AUTHORIZATION, login)]);
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let own = fetch_with(headers.clone(), loopback, port, "there").await;
        assert_eq!(&*own.unwrap().body, b"for this machine alone");

        let Some(outer) = outer_address() else {
            eprintln!("skipped: this machine has no network, and so no other address");
            return;
        };
        let error = fetch_with(headers, outer, port, "there").await.unwrap_err();
        assert!(matches!(error, FetchError::PlainText(_)), "{error}");
        assert!(!error.to_string().contains("dTpw"), "{error}");
        let without = fetch(outer, port, "there").await.unwrap();
        assert_eq!(&*without.body, b"for this machine alone");
    }

    #[test]
    fn a_policy_without_loopback_stays_so() {
        for (allow_loopback, is_local, expected) in [
            (true, true, true),
            (true, false, false),
            (false, true, false),
        ] {
            let policy = AddressPolicy {
                allow_loopback,
                ..AddressPolicy::default()
            };
            let narrowed = addresses_for(&policy, is_local);
            assert_eq!(narrowed.allow_loopback, expected);
        }
    }

    #[test]
    fn a_download_is_tried_again_if_root_certificates_could_not_be_read() {
        let error = io::Error::other("too many open files");
        assert!(FetchError::Roots(error).is_temporary());
        assert!(!FetchError::Hops.is_temporary());
    }
}

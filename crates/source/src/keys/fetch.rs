//! Fetches one set of keys over HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::ACCEPT;
use http::{Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use navarch_net::cryptography;
use navarch_net::http::exchange;
use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;

use navarch_api::key_set::{KeySet, KeySetError};
use navarch_api::key_source::KeySource;
use navarch_base::regular_file::{self, MAX_SETTINGS_BYTES};
use navarch_base::shown_url::ShownUrl;
use navarch_net::destination::AddressPolicy;
use navarch_net::system_roots;
use navarch_net::url_request::{self, UserInfoError};
use navarch_pki::pem::readable_certificates;

/// Maximum size of a response in bytes.
const MAX_RESPONSE: usize = 1 << 20;

/// The path of an issuer's discovery document.
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Additional root certificates, at the path where istiod mounts them.
const EXTRA_ROOTS: &str = "/cacerts/extra.pem";

/// Why keys could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The address is not an HTTP or HTTPS URL.
    #[error("{0:?} is not an HTTP or HTTPS URL")]
    Address(ShownUrl),
    /// The host cannot be resolved.
    #[error("failed to resolve {0}")]
    Unresolved(String, #[source] io::Error),
    /// All addresses of the host are blocked.
    #[error("all addresses of {0} are blocked")]
    Forbidden(String),
    /// Connecting failed.
    #[error("failed to connect to {0}")]
    Connect(SocketAddr, #[source] io::Error),
    /// Reading the root certificates of the system failed.
    #[error("failed to read the root certificates")]
    Roots(#[source] io::Error),
    /// The host is not a valid TLS server name.
    #[error("{0:?} is not a valid TLS server name")]
    ServerName(String, #[source] InvalidDnsNameError),
    /// The HTTP request failed.
    #[error("HTTP request failed")]
    Http(#[from] hyper::Error),
    /// The user name or password of the address cannot be sent.
    #[error(transparent)]
    UserInfo(#[from] UserInfoError),
    /// The request could not be built.
    #[error("failed to build the HTTP request")]
    Request(#[from] http::Error),
    /// The status of the response is not a success. Redirects are not followed: they could bypass
    /// the address policy.
    #[error("unexpected HTTP status {0}")]
    Status(StatusCode),
    /// The response is too large or incomplete.
    #[error("failed to read the response body")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Envoy would reject the response.
    #[error("the response is not a JSON Web Key Set that Envoy accepts: {0}")]
    Keys(#[from] KeySetError),
    /// The response is not text.
    #[error("the response is not UTF-8")]
    NoText,
    /// The issuer's discovery document has no URL of keys.
    #[error("the issuer's discovery document has no jwks_uri")]
    NoPlace,
    /// The timeout has expired.
    #[error("timed out after {0:?}")]
    Timeout(Duration),
}

/// Fetches keys.
pub struct Fetcher {
    /// Which addresses may be connected to.
    addresses: AddressPolicy,
    /// Verifies the certificates of servers.
    tls: OnceCell<TlsConnector>,
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

/// Connects with the root certificates of the system and the additional ones.
///
/// # Errors
/// If reading the root certificates of the system fails.
async fn connector() -> io::Result<TlsConnector> {
    let mut roots = system_roots::read().await?;
    let extra = regular_file::read_async(EXTRA_ROOTS.as_ref(), MAX_SETTINGS_BYTES).await;
    if let Ok(extra) = extra {
        roots.add_parsable_certificates(
            readable_certificates(&extra, EXTRA_ROOTS).unwrap_or_default(),
        );
    }

    let config = ClientConfig::builder_with_provider(cryptography::provider())
        .with_safe_default_protocol_versions()
        .expect("aws-lc-rs supports the default versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Fetcher {
    /// With the root certificates of the system, which are read for the first server with TLS.
    #[must_use]
    pub fn new(addresses: AddressPolicy) -> Self {
        Self {
            addresses,
            tls: OnceCell::new(),
        }
    }

    /// The keys of a source.
    ///
    /// # Errors
    /// If they cannot be fetched within the timeout.
    pub async fn keys(
        &self,
        source: &KeySource,
        timeout: Duration,
    ) -> Result<Arc<str>, FetchError> {
        tokio::time::timeout(timeout, self.keys_of(source))
            .await
            .unwrap_or(Err(FetchError::Timeout(timeout)))
    }

    /// The text at a URL, of any type.
    ///
    /// # Errors
    /// If it cannot be fetched within the timeout.
    pub async fn document(&self, address: &str, timeout: Duration) -> Result<String, FetchError> {
        let answer = tokio::time::timeout(timeout, self.get(address)).await;
        let answer = answer.unwrap_or(Err(FetchError::Timeout(timeout)))?;
        String::from_utf8(answer.to_vec()).map_err(|_| FetchError::NoText)
    }

    /// The keys of a source, without a timeout.
    async fn keys_of(&self, source: &KeySource) -> Result<Arc<str>, FetchError> {
        let place = match source {
            KeySource::Uri(uri) => uri.to_string(),
            KeySource::Issuer(issuer) => {
                let body = self
                    .get(&format!("{}{DISCOVERY}", issuer.trim_end_matches('/')))
                    .await?;
                let body: Option<Value> = serde_json::from_slice(&body).ok();
                let place = body
                    .as_ref()
                    .and_then(|body| body.get("jwks_uri"))
                    .and_then(Value::as_str);
                place.ok_or(FetchError::NoPlace)?.to_owned()
            }
        };

        let answer = self.get(&place).await?;
        let text = std::str::from_utf8(&answer).map_err(|_| FetchError::NoText)?;
        let set = KeySet::parse(text)?;
        if !set.rejected.0.is_empty() {
            tracing::warn!(%source, "Envoy cannot use all keys of a token issuer; left out{}", set.rejected);
        }
        Ok(Arc::from(set.text))
    }

    /// Sends one GET request.
    async fn get(&self, address: &str) -> Result<Bytes, FetchError> {
        let wrong = || FetchError::Address(ShownUrl::new(address));
        let uri: Uri = address.parse().map_err(|_| wrong())?;
        let host = uri
            .host()
            .filter(|host| !host.is_empty())
            .ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');

        match uri.scheme_str() {
            Some("http") => {
                let stream = self.connect(host, uri.port_u16().unwrap_or(80)).await?;
                send_over(stream, &uri).await
            }
            Some("https") => {
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|error| FetchError::ServerName(host.to_owned(), error))?;
                let tls = self.connector().await?;
                let stream = self.connect(host, uri.port_u16().unwrap_or(443)).await?;
                let peer = stream
                    .peer_addr()
                    .unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
                let stream = tls
                    .connect(name, stream)
                    .await
                    .map_err(|error| FetchError::Connect(peer, error))?;
                send_over(stream, &uri).await
            }
            Some(_) | None => Err(wrong()),
        }
    }

    /// The client side of TLS, made for the first server with TLS.
    async fn connector(&self) -> Result<&TlsConnector, FetchError> {
        let made = self.tls.get_or_try_init(connector);
        made.await.map_err(FetchError::Roots)
    }

    /// Connects to the first address of a host that is allowed and accepts the connection.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, FetchError> {
        let found = tokio::net::lookup_host((host, port))
            .await
            .map_err(|error| FetchError::Unresolved(host.to_owned(), error))?;
        let mut failed = FetchError::Forbidden(host.to_owned());
        for address in found.filter(|address| self.addresses.allows(address.ip())) {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = FetchError::Connect(address, error),
            }
        }
        Err(failed)
    }
}

/// Sends a request over a connection.
async fn send_over<S>(stream: S, uri: &Uri) -> Result<Bytes, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = url_request::get(uri)?
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())?;

    let read = async |response: Response<Incoming>| {
        if !response.status().is_success() {
            return Err(FetchError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_RESPONSE)
            .collect()
            .await
            .map_err(FetchError::Body)?;
        Ok(body.to_bytes())
    };

    exchange(stream, request, read).await?
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A set that Envoy accepts.
    const KEYS: &str = r#"{"keys":[{"kty":"oct","k":"YWJj"}]}"#;

    const TIMEOUT: Duration = Duration::from_secs(5);
    /// Stands for what begins with a byte that stands in no text.
    const BYTE: &str = "{byte}";

    /// A server that answers each connection with the next of these; gives its address.
    #[expect(clippy::disallowed_methods, reason = "the server ends with the test")]
    async fn server(answers: Vec<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                let read = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..read]).into_owned();
                assert!(request.contains(&format!("host: {address}")), "{request}");
                let mut answer = answer
                    .replace("{address}", &address.to_string())
                    .into_bytes();

                // One byte that stands in no text, in place of as many signs as it has.
                if let Some(at) = answer
                    .windows(BYTE.len())
                    .position(|part| part == BYTE.as_bytes())
                {
                    answer[at] = 0xe9;
                }
                stream.write_all(&answer).await.unwrap();
            }
        });

        format!("http://{address}")
    }

    fn ok(body: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn local() -> Fetcher {
        Fetcher::new(AddressPolicy {
            allow_loopback: true,
            ..AddressPolicy::default()
        })
    }

    #[tokio::test]
    async fn keys_are_fetched_from_their_address() {
        let at = server(vec![ok(KEYS)]).await;
        let keys = local()
            .keys(
                &KeySource::Uri(Arc::from(format!("{at}/keys?x=1"))),
                TIMEOUT,
            )
            .await
            .unwrap();
        assert_eq!(&*keys, KEYS);
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "the server ends with the test")]
    async fn a_password_in_the_address_is_sent_as_istiod_does_and_stays_out_of_errors() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let read = stream.read(&mut request).await.unwrap();
            stream.write_all(ok("{}").as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        });

        let source = KeySource::Uri(Arc::from(format!("http://user:secret@{address}/keys")));
        let error = local().keys(&source, TIMEOUT).await.unwrap_err();
        assert!(!format!("{source} {error:?}").contains("secret"));

        let request = received.await.unwrap();
        assert!(
            request.contains(&format!("host: {address}\r\n")),
            "{request}"
        );
        // The encoded form of user:secret.
        let credentials = "authorization: Basic dXNlcjpzZWNyZXQ=\r\n";
        assert!(request.contains(credentials), "{request}");
    }

    #[tokio::test]
    async fn the_jwks_uri_comes_from_oidc_discovery() {
        // Lengths are left to the end of the connection, as the address is put in later.
        let discovery =
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"jwks_uri\":\"http://{address}/k\"}"
                .to_owned();
        let at = server(vec![discovery, ok(KEYS)]).await;
        let keys = local()
            .keys(&KeySource::Issuer(Arc::from(format!("{at}/"))), TIMEOUT)
            .await
            .unwrap();
        assert_eq!(&*keys, KEYS);
    }

    #[tokio::test]
    async fn jwks_are_not_fetched_from_blocked_addresses() {
        let at = server(Vec::new()).await;
        let strict = Fetcher::new(AddressPolicy::default());

        for uri in [
            at.clone(),
            at.replace("127.0.0.1", "localhost"),
            at.replace("127.0.0.1", "[::ffff:127.0.0.1]"),
        ] {
            let error = strict
                .keys(&KeySource::Uri(Arc::from(uri.as_str())), TIMEOUT)
                .await
                .unwrap_err();
            assert!(matches!(error, FetchError::Forbidden(_)), "{uri}: {error}");
        }

        let metadata = KeySource::Uri(Arc::from("http://169.254.169.254/latest/meta-data"));
        assert!(matches!(
            local().keys(&metadata, TIMEOUT).await,
            Err(FetchError::Forbidden(_))
        ));
    }

    #[tokio::test]
    async fn redirects_are_not_followed() {
        let redirect =
            "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"
                .to_owned();
        let at = server(vec![redirect]).await;
        let error = local()
            .keys(&KeySource::Uri(Arc::from(at)), TIMEOUT)
            .await
            .unwrap_err();
        assert!(
            matches!(error, FetchError::Status(StatusCode::FOUND)),
            "{error}"
        );
    }

    #[tokio::test]
    async fn invalid_jwks_are_rejected() {
        let unusable = r#"{"keys":[{"kty":"EC","crv":"P-999","x":"aa","y":"bb"}]}"#;
        let empty = r#"{"keys":[]}"#;
        for body in [
            "null",
            "",
            "{}",
            r#"{"keys":{}}"#,
            "<html>",
            empty,
            unusable,
        ] {
            let at = server(vec![ok(body)]).await;
            let error = local()
                .keys(&KeySource::Uri(Arc::from(at)), TIMEOUT)
                .await
                .unwrap_err();
            assert!(matches!(error, FetchError::Keys(_)), "{body}: {error}");
        }

        let at = server(vec![ok(&"x".repeat(MAX_RESPONSE + 1))]).await;
        assert!(matches!(
            local().keys(&KeySource::Uri(Arc::from(at)), TIMEOUT).await,
            Err(FetchError::Body(_))
        ));
    }

    #[tokio::test]
    async fn a_document_is_a_text() {
        let at = server(vec![ok("caf{byte}")]).await;
        let error = local().document(&at, TIMEOUT).await.unwrap_err();
        assert!(matches!(error, FetchError::NoText), "{error}");
    }

    #[tokio::test]
    async fn an_unresponsive_server_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        let short = Duration::from_millis(50);
        assert!(matches!(
            local().keys(&KeySource::Uri(Arc::from(at)), short).await,
            Err(FetchError::Timeout(_))
        ));
    }
}

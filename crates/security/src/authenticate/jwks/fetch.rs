//! Fetches one document over HTTP or HTTPS, without redirects, and with limits on size and time.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use navarch_base::blocking;
use navarch_net::cryptography;
use navarch_net::http::exchange;
use navarch_net::url_request::{self, UserInfoError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinError;
use tokio_rustls::TlsConnector;

const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a document.
const MAX_BYTES: usize = 1 << 20;
/// The root certificates of the system; the first existing file is used.
const ROOT_FILES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];
/// Additional roots that users mount.
const EXTRA_ROOTS: &str = "/cacerts/extra.pem";

/// Why a document was not fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// The address is malformed.
    #[error("not a URI")]
    Uri,
    /// The address has no host.
    #[error("the URI has no host")]
    NoHost,
    /// The address has another scheme.
    #[error("the scheme is neither http nor https")]
    Scheme,
    /// The host cannot be verified with TLS.
    #[error("not a host name")]
    HostName,
    /// Connecting failed, with or without TLS.
    #[error(transparent)]
    Connect(#[from] std::io::Error),
    /// Reading the root certificates panicked.
    #[error("failed to read the root certificates")]
    Roots(#[source] JoinError),
    /// There is no TLS configuration.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The user name or password of the address cannot be sent.
    #[error(transparent)]
    UserInfo(#[from] UserInfoError),
    /// The address cannot be requested.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The exchange failed.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The server's response is not the document.
    #[error("status {0}")]
    Status(StatusCode),
    /// The document is too large, or its transfer failed.
    #[error(transparent)]
    Body(Box<dyn Error + Send + Sync>),
    /// The server takes too long.
    #[error("timed out")]
    TimedOut,
}

/// Fetches a document.
///
/// # Errors
/// If fetching fails.
pub(super) async fn get(uri: &str) -> Result<Bytes, FetchError> {
    tokio::time::timeout(FETCH_TIMEOUT, get_in_time(uri))
        .await
        .unwrap_or(Err(FetchError::TimedOut))
}

/// Fetches a document, without a timeout.
async fn get_in_time(uri: &str) -> Result<Bytes, FetchError> {
    let uri: Uri = uri.parse().map_err(|_| FetchError::Uri)?;
    let host = uri
        .host()
        .ok_or(FetchError::NoHost)?
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();

    let is_tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(FetchError::Scheme),
    };
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port)).await?;

    if is_tls {
        let name = ServerName::try_from(host).map_err(|_| FetchError::HostName)?;
        let trust = blocking::run(trust).await.map_err(FetchError::Roots)??;
        let connector = TlsConnector::from(Arc::new(trust));
        let stream = connector.connect(name, stream).await?;
        request(stream, &uri).await
    } else {
        request(stream, &uri).await
    }
}

/// Sends the request over a connection.
async fn request<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    uri: &Uri,
) -> Result<Bytes, FetchError> {
    let request = url_request::get(uri)?
        .header(header::ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())?;

    let read = async |response: Response<Incoming>| {
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_BYTES)
            .collect()
            .await
            .map_err(FetchError::Body)?;
        Ok(body.to_bytes())
    };

    exchange(stream, request, read).await?
}

/// The TLS configuration with the system's roots and the additional ones. Blocks while it reads them.
fn trust() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    let system = ROOT_FILES
        .into_iter()
        .find(|file| std::path::Path::new(file).exists());
    for file in system.into_iter().chain([EXTRA_ROOTS]) {
        if let Ok(certificates) = CertificateDer::pem_file_iter(file) {
            roots.add_parsable_certificates(certificates.filter_map(Result::ok));
        }
    }
    let builder = ClientConfig::builder_with_provider(cryptography::provider())
        .with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_password_in_the_address_is_sent_as_credentials_and_not_in_the_host() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let read = stream.read(&mut request).await.unwrap();
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(response).await.unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        };

        let uri = format!("http://user:secret@{address}/keys");
        let (document, request) = tokio::join!(get(&uri), serve);
        assert_eq!(document.unwrap(), "{}");
        assert!(
            request.contains(&format!("host: {address}\r\n")),
            "{request}"
        );
        // The encoded form of user:secret.
        let credentials = "authorization: Basic dXNlcjpzZWNyZXQ=\r\n";
        assert!(request.contains(credentials), "{request}");
    }
}

//! Fetches one document over HTTP or HTTPS, without redirects, and with limits on size and time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use navarch_net::cryptography;
use navarch_net::http::exchange;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
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

/// Fetches a document.
///
/// # Errors
/// If fetching fails; the error is text.
pub(super) async fn get(uri: &str) -> Result<Bytes, String> {
    let getting = tokio::time::timeout(FETCH_TIMEOUT, get_in_time(uri)).await;
    getting
        .unwrap_or_else(|_| Err("timed out".to_owned()))
        .map_err(|error| format!("{uri}: {error}"))
}

/// Fetches a document, without a timeout.
async fn get_in_time(uri: &str) -> Result<Bytes, String> {
    let uri: Uri = uri.parse().map_err(|_| "not a URI".to_owned())?;
    let host = uri
        .host()
        .ok_or("the URI has no host")?
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();

    let is_tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err("the scheme is neither http nor https".to_owned()),
    };
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port))
        .await
        .map_err(|error| error.to_string())?;

    if is_tls {
        let name = ServerName::try_from(host).map_err(|_| "not a host name".to_owned())?;
        let connector = TlsConnector::from(Arc::new(trust()?));
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|error| error.to_string())?;
        request(stream, &uri).await
    } else {
        request(stream, &uri).await
    }
}

/// Sends the request over a connection.
async fn request<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    uri: &Uri,
) -> Result<Bytes, String> {
    let path = uri
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    let request = Request::get(path)
        .header(header::HOST, authority)
        .header(header::ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;

    let read = async |response: Response<Incoming>| {
        if response.status() != StatusCode::OK {
            return Err(format!("status {}", response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_BYTES)
            .collect()
            .await
            .map_err(|error| error.to_string())?;
        Ok(body.to_bytes())
    };

    exchange(stream, request, read)
        .await
        .map_err(|error| error.to_string())?
}

/// The TLS configuration with the system's roots and the additional ones.
fn trust() -> Result<ClientConfig, String> {
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
        .with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

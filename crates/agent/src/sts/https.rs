//! Requests to token servers, each on its own connection. Redirects are not followed: they would
//! take tokens to another server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::local_http::{HttpError, LocalRequest, LocalResponse};
use crate::upstream::{KeyFiles, Roots, UpstreamError, client_config};

/// Timeout of a request, as in Istio 1.14.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a response.
const MAX_RESPONSE: usize = 64 << 10;

/// Errors of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpsError {
    /// Connecting failed, or the server's certificate is invalid.
    #[error("failed to connect to {0}")]
    Connect(String, #[source] io::Error),
    /// A file with roots, certificate or key is invalid.
    #[error(transparent)]
    Tls(#[from] UpstreamError),
    /// The HTTP exchange failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The timeout was exceeded.
    #[error("timed out after {REQUEST_TIMEOUT:?}")]
    Timeout,
}

/// The URL of a token server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    host: String,
    port: u16,
    path: String,
    /// The name in the server's certificate; `None` for plain text.
    server_name: Option<ServerName<'static>>,
}

/// How servers are verified, and how the agent authenticates. Files are read again for every
/// request, so that they may be replaced at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpsClient {
    pub(crate) roots: Roots,
    pub(crate) certificate: Option<KeyFiles>,
}

impl Endpoint {
    /// Parses a URL with `https`, or with `http` if its host is loopback: tokens are not sent over
    /// a network in plain text. `None` for any other.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let authority = uri.authority()?;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        if host.is_empty() || authority.as_str().contains('@') {
            return None;
        }

        let is_loopback = matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1");
        let (usual, server_name) = match uri.scheme_str()? {
            "https" => (443, Some(ServerName::try_from(host.clone()).ok()?)),
            "http" if is_loopback => (80, None),
            _ => return None,
        };

        Some(Self {
            port: authority.port_u16().unwrap_or(usual),
            path: uri.path_and_query()?.as_str().to_owned(),
            host,
            server_name,
        })
    }
}

impl HttpsClient {
    /// Sends a POST request.
    pub(super) async fn post(
        &self,
        endpoint: &Endpoint,
        headers: HeaderMap,
        body: String,
    ) -> Result<LocalResponse, HttpsError> {
        let sent = self.send(endpoint, headers, body.into());
        timeout(REQUEST_TIMEOUT, sent)
            .await
            .unwrap_or(Err(HttpsError::Timeout))
    }

    async fn send(
        &self,
        endpoint: &Endpoint,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<LocalResponse, HttpsError> {
        let failed = |error| HttpsError::Connect(endpoint.host.clone(), error);
        let request = LocalRequest {
            method: Method::POST,
            host: endpoint.host.clone(),
            port: endpoint.port,
            path: endpoint.path.clone(),
            headers,
            body,
            timeout: REQUEST_TIMEOUT,
            limit: MAX_RESPONSE,
        };

        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
            .await
            .map_err(failed)?;
        let Some(name) = &endpoint.server_name else {
            return Ok(request.send_over(stream).await?);
        };

        let config = client_config(&self.roots, self.certificate.as_ref()).await?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name.clone(), stream)
            .await
            .map_err(failed)?;
        Ok(request.send_over(stream).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_sent_in_plain_text_to_loopback_alone() {
        let endpoint = Endpoint::parse("https://sts.example:8443/v1/token?a=b").unwrap();
        assert_eq!(
            (endpoint.host.as_str(), endpoint.port, &*endpoint.path),
            ("sts.example", 8443, "/v1/token?a=b")
        );
        assert_eq!(Endpoint::parse("https://[::1]/").unwrap().port, 443);

        let plain = Endpoint::parse("http://127.0.0.1:90").unwrap();
        assert_eq!((plain.server_name, &*plain.path), (None, "/"));
        for endpoint in [
            "http://sts.example/token",
            "https://user@sts.example/",
            "ftp://127.0.0.1/",
            "sts.example",
            "/token",
            "",
        ] {
            assert_eq!(Endpoint::parse(endpoint), None, "{endpoint:?}");
        }
    }
}

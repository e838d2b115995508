//! Short plain HTTP requests to local servers: Envoy's admin API, the agent itself, the cloud's
//! metadata.
//!
//! Every response has a timeout and a size limit, and no redirect is followed.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use navarch_net::http::exchange;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// An HTTP request.
#[derive(Clone, Debug)]
pub struct LocalRequest {
    /// `GET`, `POST`, …
    pub method: Method,
    /// The host to connect to.
    pub host: String,
    /// TCP port to connect to, which the `Host` header contains, too.
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// Further headers.
    pub headers: HeaderMap,
    /// Empty in [`get`](Self::get) and [`post`](Self::post).
    pub body: Bytes,
    /// Timeout of the whole request.
    pub timeout: Duration,
    /// Maximum size of the response body.
    pub limit: usize,
}

/// An HTTP response.
#[derive(Clone, Debug)]
pub struct LocalResponse {
    /// Any status, also of an error or a redirect: neither makes [`send`](LocalRequest::send) fail.
    pub status: StatusCode,
    /// As received, such as `Location` of a redirect.
    pub headers: HeaderMap,
    /// Complete and not decompressed, at most [`limit`](LocalRequest::limit) bytes.
    pub body: Bytes,
}

impl LocalResponse {
    /// The body as text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}

/// Errors of a request.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Connecting failed.
    #[error("failed to connect")]
    Connect(#[from] std::io::Error),
    /// The request is invalid.
    #[error("invalid HTTP request")]
    Question(#[from] http::Error),
    /// The HTTP exchange failed.
    #[error("HTTP request failed")]
    Exchange(#[from] hyper::Error),
    /// Reading the body failed, or it was too large.
    #[error("failed to read the response body: {0}")]
    Body(String),
    /// The timeout was exceeded.
    #[error("timed out after {0:?}")]
    Timeout(Duration),
    /// The server rejected the request.
    #[error("HTTP status {0}")]
    Status(StatusCode),
}

impl LocalRequest {
    /// A `GET` on loopback.
    #[must_use]
    pub fn get(host: &str, port: u16, path: &str, timeout: Duration) -> Self {
        Self {
            method: Method::GET,
            host: host.to_owned(),
            port,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            timeout,
            limit: 64 << 20,
        }
    }

    /// A `POST` on loopback, without a body.
    #[must_use]
    pub fn post(host: &str, port: u16, path: &str, timeout: Duration) -> Self {
        Self {
            method: Method::POST,
            ..Self::get(host, port, path, timeout)
        }
    }

    /// Sends the request.
    ///
    /// # Errors
    /// If there is no complete response within the timeout.
    pub async fn send(self) -> Result<LocalResponse, HttpError> {
        let timeout = self.timeout;
        tokio::time::timeout(timeout, self.exchange())
            .await
            .map_err(|_| HttpError::Timeout(timeout))?
    }

    /// Sends the request over an existing connection.
    ///
    /// # Errors
    /// As [`LocalRequest::send`].
    pub async fn send_over(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<LocalResponse, HttpError> {
        let timeout = self.timeout;
        tokio::time::timeout(timeout, self.exchange_over(stream))
            .await
            .map_err(|_| HttpError::Timeout(timeout))?
    }

    /// Sends the request without a timeout.
    async fn exchange(self) -> Result<LocalResponse, HttpError> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        self.exchange_over(stream).await
    }

    /// Sends the request without a timeout, over this connection.
    async fn exchange_over(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<LocalResponse, HttpError> {
        let authority = if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        };

        let mut request = Request::builder().method(self.method).uri(self.path);
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers);
        }

        let request = request
            .header(header::HOST, authority)
            .body(Full::new(self.body))?;
        let limit = self.limit;
        exchange(stream, request, async |response| {
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, limit)
                .collect()
                .await
                .map_err(|error| HttpError::Body(error.to_string()))?;
            Ok(LocalResponse {
                status: parts.status,
                headers: parts.headers,
                body: body.to_bytes(),
            })
        })
        .await?
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn answering(answer: &'static [u8]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        #[expect(
            clippy::disallowed_methods,
            reason = "the runtime of the test ends with it"
        )]
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(answer).await.unwrap();
        });
        port
    }

    #[tokio::test]
    async fn a_response_of_a_closing_server_is_read_completely() {
        let port = answering(
            b"HTTP/1.1 302 Found\r\nlocation: http://example.com/\r\nconnection: close\r\n\r\nbody",
        )
        .await;
        let answer = LocalRequest::get("127.0.0.1", port, "/", Duration::from_secs(5))
            .send()
            .await
            .unwrap();
        assert_eq!(
            (answer.status.as_u16(), &answer.body[..]),
            (302, &b"body"[..])
        );
    }

    #[tokio::test]
    async fn an_oversized_response_is_an_error() {
        let port = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n123456789").await;
        let question = LocalRequest {
            limit: 8,
            ..LocalRequest::get("127.0.0.1", port, "/", Duration::from_secs(5))
        };
        assert!(matches!(question.send().await, Err(HttpError::Body(_))));
    }
}

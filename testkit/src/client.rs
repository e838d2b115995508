//! A small HTTP client that connects to one address, whatever the request's host is.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Any status: the client returns no error for 4xx and 5xx.
    pub status: StatusCode,
    /// As received, without trailers.
    pub headers: hyper::HeaderMap,
    /// The body as text.
    pub body: String,
    /// The body as bytes.
    pub bytes: Bytes,
}

/// Sends `GET path` with a host and further headers to an address, on its own connection.
///
/// # Errors
/// If there is no connection or no complete response within ten seconds.
pub async fn get(
    address: SocketAddr,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Reply> {
    send("GET", address, host, path, headers).await
}

/// Sends a request without a body.
///
/// # Errors
/// As [`get`].
pub async fn send(
    method: &str,
    address: SocketAddr,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Reply> {
    send_body(method, address, host, path, headers, Bytes::new()).await
}

/// Sends `POST path` with a JSON body.
///
/// # Errors
/// As [`get`].
pub async fn post(address: SocketAddr, host: &str, path: &str, json: String) -> Result<Reply> {
    send_body(
        "POST",
        address,
        host,
        path,
        &[("content-type", "application/json")],
        Bytes::from(json),
    )
    .await
}

/// Sends a request with a body, which may be empty.
///
/// # Errors
/// As [`get`].
pub async fn send_body(
    method: &str,
    address: SocketAddr,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Result<Reply> {
    let exchange = async {
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }

        let request = request.body(Full::new(body))?;
        let talk = async {
            let response = sender.send_request(request).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok((parts, body))
        };

        tokio::pin!(talk);
        let (parts, body) = tokio::select! {
            biased;
            done = &mut talk => done?,
            // Received data must still be read after the server has closed the connection.
            _ = connection => talk.await?,
        };

        let text = String::from_utf8_lossy(&body).into_owned();
        anyhow::Ok(Reply {
            status: parts.status,
            headers: parts.headers,
            body: text,
            bytes: body,
        })
    };

    let reply = tokio::time::timeout(REQUEST_TIMEOUT, exchange).await;
    reply
        .map_err(|_| anyhow::anyhow!("no answer in {REQUEST_TIMEOUT:?}"))?
        .with_context(|| format!("{method} {host}{path} at {address}"))
}

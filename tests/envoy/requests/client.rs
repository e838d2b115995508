//! Clients for other protocols than a simple request and response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Upgrades a connection to a protocol that echoes its bytes.
pub(crate) async fn web_socket(address: SocketAddr, host: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "GET /socket HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let answer = read_until(&mut stream, "\r\n\r\n").await?;
    ensure!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    stream.write_all(b"ping, not HTTP").await?;
    let echo = read_until(&mut stream, "not HTTP").await?;
    ensure!(echo == "ping, not HTTP", "{echo}");
    Ok(())
}

/// Calls an echo method over HTTP/2 without TLS, and checks its trailers.
pub(crate) async fn grpc(address: SocketAddr, authority: &str) -> Result<()> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://{authority}/shop.Rpc/Call"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from_static(b"\0\0\0\0\x02hi")))?;
    let response = timeout(TIMEOUT, sender.send_request(request))
        .await
        .context("no answer")??;
    ensure!(response.status() == 200, "{response:?}");

    let body = timeout(TIMEOUT, response.into_body().collect())
        .await
        .context("no end")??;
    let status = body
        .trailers()
        .and_then(|trailers| trailers.get("grpc-status"))
        .cloned();
    ensure!(
        status.is_some_and(|status| status == "0"),
        "no status in the trailers"
    );

    ensure!(body.to_bytes().ends_with(b"hi"), "another message");
    connection.abort();
    Ok(())
}

/// Connects, sends bytes, and reads until the response is as wanted.
pub(crate) async fn first_words(address: SocketAddr, send: &[u8], wanted: &str) -> Result<()> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let exchange = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(send).await?;
            read_until(&mut stream, wanted).await
        };
        let received = exchange.await;
        if received.as_ref().is_ok_and(|text| text == wanted) {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "{address} sent {received:?} instead of {wanted}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The TLS ClientHello with a server name.
pub(crate) fn hello(name: &str) -> Result<Vec<u8>> {
    let provider = navarch_net::cryptography::provider();
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?;
    let config = config
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned())?;
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name)?;
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes)?;
    Ok(bytes)
}

/// Reads until a text has arrived, or the connection ends.
async fn read_until(stream: &mut TcpStream, end: &str) -> Result<String> {
    let mut read = Vec::new();
    loop {
        let mut buffer = [0; 1024];
        let count = timeout(TIMEOUT, stream.read(&mut buffer))
            .await
            .context("no more bytes arrived")??;
        read.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&read).into_owned();
        if count == 0 || text.contains(end) {
            return Ok(text);
        }
    }
}

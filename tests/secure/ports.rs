//! Clients that hold as many connections as they can: each port still serves others.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::{self, Proof};
use crate::server::{MESH, Server};

/// Limits that a test can exhaust.
const LIMITS: &str = "NAVARCH_MAX_XDS_CONNECTIONS=32 NAVARCH_MAX_WEBHOOK_CONNECTIONS=16 \
    NAVARCH_MAX_HTTP_CONNECTIONS=16 NAVARCH_MAX_TLS_HANDSHAKES=8";
/// The HTTP/2 preface, and empty settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Longer than any timeout on these ports except those of active connections.
const LONG: Duration = Duration::from_secs(75);

/// A connection from another loopback address, which counts as another client.
async fn connect(last: u8, port: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, last], 0)))?;
    Ok(timeout(LONG, socket.connect(port)).await??)
}

/// All ports serve a client with another address.
async fn served(server: &Server) -> Result<()> {
    let proof = Proof::Token(server.issuer.token(json!({})));
    let secrets = server
        .secrets(&proof, "shop", "web", &["kubernetes://tls"])
        .await?;
    ensure!(secrets.len() == 1);
    ensure!(
        server
            .plain_secrets("shop", "web", &["kubernetes://tls"])
            .await?
            .is_empty()
    );

    for port in server.web() {
        navarch_testkit::client::get(port, "navarch", "/version", &[])
            .await
            .with_context(|| port.to_string())?;
    }

    let mut webhook = client::connection(server.https, &server.root(), &[b"http/1.1"]).await?;
    webhook
        .write_all(b"GET /httpsReady HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await?;
    let mut answer = String::new();
    timeout(LONG, webhook.read_to_string(&mut answer)).await??;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    Ok(())
}

/// The number of rejected connections of a port with a reason.
async fn rejected(server: &Server, port: &str, reason: &str) -> Result<u64> {
    let row = format!("navarch_rejected_total{{port=\"{port}\",reason=\"{reason}\"}} ");
    let metrics = server.metrics().await?;
    Ok(metrics
        .lines()
        .find_map(|line| line.strip_prefix(&row))
        .map_or(0, |count| count.parse().unwrap()))
}

#[tokio::test]
async fn a_client_that_fills_every_port_does_not_block_others() -> Result<()> {
    let server = Server::with_variables(MESH, LIMITS).await?;
    let [http, monitoring] = server.web();
    let ports = [
        ("grpc", server.plain(), "too_many_connections"),
        ("secure-grpc", server.secure, "too_many_handshakes"),
        ("https", server.https, "too_many_handshakes"),
        ("http", http, "too_many_connections"),
        ("monitoring", monitoring, "too_many_connections"),
    ];

    let mut held = Vec::new();

    for (_, port, _) in ports {
        for _ in 0..100 {
            held.push(connect(2, port).await?);
        }
    }

    for _ in 0..3 {
        served(&server).await?;
    }

    for (name, _, reason) in ports {
        ensure!(
            rejected(&server, name, reason).await? > 0,
            "{name}: no connection was rejected"
        );
    }

    // Closing some connections changes nothing: the others still use all that the client may have.
    drop(held);
    served(&server).await
}

#[tokio::test]
async fn tls_connections_of_one_client_make_room_for_others() -> Result<()> {
    let server = Server::with_variables(MESH, LIMITS).await?;
    let mut held = JoinSet::new();

    for _ in 0..40 {
        let stream = connect(2, server.https).await?;
        let mut stream = client::connection_over(stream, &server.root(), &[b"h2"]).await?;
        held.spawn(async move {
            stream.write_all(HELLO).await?;
            stream.flush().await?;
            answer_pings(stream).await
        });
    }

    for _ in 0..3 {
        served(&server).await?;
    }

    ensure!(rejected(&server, "https", "too_many_connections").await? > 0);

    // The remaining connections never send a request, and responses to PINGs do not count as
    // activity.
    let all = timeout(LONG, async { while held.join_next().await.is_some() {} });
    ensure!(all.await.is_ok(), "connections without requests stay open");
    served(&server).await
}

/// Responds to PINGs until the connection ends.
async fn answer_pings(mut stream: tokio_rustls::client::TlsStream<TcpStream>) -> Result<()> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await?;
        if head[3] == 6 && head[4] & 1 == 0 {
            head[4] |= 1;
            stream.write_all(&[&head[..], &payload].concat()).await?;
            stream.flush().await?;
        }
    }
}

#[tokio::test]
async fn a_client_that_reads_no_responses_is_disconnected() -> Result<()> {
    let server = Server::start().await?;
    let mut stream = connect(2, server.web()[1]).await?;
    let request = b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n".repeat(100);
    let ask = async {
        // Write until the server stops reading, because its responses are not read.
        loop {
            match timeout(Duration::from_secs(5), stream.write_all(&request)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    };

    ask.await;
    let begun = tokio::time::Instant::now();

    while rejected(&server, "monitoring", "slow_reader").await? == 0 {
        ensure!(begun.elapsed() < LONG, "the connection stays open");
        sleep(Duration::from_millis(200)).await;
    }

    served(&server).await
}

//! On every port, clients that misuse HTTP are disconnected soon, and the server keeps serving
//! others.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{self, Proof};
use crate::server::Server;

/// The HTTP/2 preface, and empty settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// `POST /` with http, as indices of HPACK's static table.
const REQUEST: [u8; 3] = [0x83, 0x84, 0x86];
/// How long a server may keep a slow client: it sends a PING after 30 s; this is longer.
const TIMEOUT: Duration = Duration::from_secs(75);
/// Maximum number of frames to send.
const MAX_FRAMES: u32 = 200_000;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Sends frames until the server closes the connection, and returns their number.
async fn flood(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    frames: impl Fn(u32) -> Vec<u8>,
) -> Result<u32> {
    stream.write_all(HELLO).await?;
    let mut answer = vec![0; 64 << 10];

    for turn in 0..MAX_FRAMES / 100 {
        let batch: Vec<u8> = (turn * 100..(turn + 1) * 100).flat_map(&frames).collect();
        let sent = async {
            stream.write_all(&batch).await?;
            stream.flush().await
        };
        let ended = match tokio::time::timeout(Duration::from_secs(5), sent).await {
            Ok(Err(_)) => true,
            Err(_) => anyhow::bail!("the server neither reads nor closes the connection"),
            Ok(Ok(())) => loop {
                match tokio::time::timeout(Duration::from_millis(1), stream.read(&mut answer)).await
                {
                    Ok(Ok(0) | Err(_)) => break true,
                    Ok(Ok(_)) => {}
                    Err(_) => break false,
                }
            },
        };

        if ended {
            return Ok((turn + 1) * 100);
        }
    }

    anyhow::bail!("{MAX_FRAMES} frames were accepted")
}

/// A stream that is opened and reset at once.
fn reset(number: u32) -> Vec<u8> {
    let stream = number * 2 + 1;
    [
        frame(1, 0x4, stream, &REQUEST),
        frame(3, 0, stream, &[0, 0, 0, 8]),
    ]
    .concat()
}

/// Headers that never end.
fn continuation(number: u32) -> Vec<u8> {
    match number {
        0 => frame(1, 0, 1, &REQUEST),
        _ => frame(
            9,
            0,
            1,
            &[b"\x00\x01a\x7f\x00"[..].to_vec(), vec![b'x'; 127]].concat(),
        ),
    }
}

/// Frames without a purpose.
fn junk(_: u32) -> Vec<u8> {
    frame(8, 0, 0, &[0, 0, 0, 0])
}

#[tokio::test]
async fn cve_2023_44487_and_cve_2023_45288_floods_end_only_their_own_connection() -> Result<()> {
    let server = Server::start().await?;
    let plain = server.plain();
    let secure = server.secure;
    let root = server.root();
    let floods: [(&str, fn(u32) -> Vec<u8>); 3] = [
        ("rapid reset", reset),
        ("continuation", continuation),
        ("empty window updates", junk),
    ];

    for (name, frames) in floods {
        let taken = [
            flood(TcpStream::connect(plain).await?, frames)
                .await
                .with_context(|| name)?,
            flood(client::connection(secure, &root, &[b"h2"]).await?, frames)
                .await
                .with_context(|| name)?,
            flood(
                client::connection(server.https, &root, &[b"h2"]).await?,
                frames,
            )
            .await
            .with_context(|| name)?,
        ];

        ensure!(
            name == "empty window updates" || taken.iter().all(|taken| *taken <= 20_000),
            "{name}: {taken:?}"
        );
    }

    // The other ports do not support HTTP/2.
    for port in server.web() {
        ensure!(flood(TcpStream::connect(port).await?, reset).await? <= 20_000);
    }

    served(&server).await
}

/// Other clients are served as before.
async fn served(server: &Server) -> Result<()> {
    let proof = Proof::Token(server.issuer.token(json!({})));
    let secrets = server
        .secrets(&proof, "shop", "web", &["kubernetes://tls"])
        .await?;
    ensure!(secrets.len() == 1, "others are served as before");
    for port in server.web() {
        ensure!(
            navarch_testkit::client::get(port, "navarch", "/version", &[])
                .await
                .is_ok(),
            "{port}"
        );
    }
    Ok(())
}

/// A byte stream, plain or TLS.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// Connections to all ports, with their names.
async fn all_ports(server: &Server) -> Result<Vec<(String, Box<dyn Wire>)>> {
    let root = server.root();
    let mut all: Vec<(String, Box<dyn Wire>)> = Vec::new();

    for (name, port) in [
        ("xds", server.plain()),
        ("http", server.web()[0]),
        ("monitoring", server.web()[1]),
    ] {
        all.push((name.to_owned(), Box::new(TcpStream::connect(port).await?)));
    }

    for (name, port, protocol) in [
        ("secure xds", server.secure, &b"h2"[..]),
        ("https", server.https, &b"http/1.1"[..]),
    ] {
        all.push((
            format!("{name}, no TLS"),
            Box::new(TcpStream::connect(port).await?),
        ));
        all.push((
            name.to_owned(),
            Box::new(client::connection(port, &root, &[protocol]).await?),
        ));
    }

    Ok(all)
}

#[tokio::test]
async fn huge_headers_are_rejected_on_every_port() -> Result<()> {
    let server = Server::start().await?;
    for (name, mut stream) in all_ports(&server).await? {
        let head = b"GET /ready HTTP/1.1\r\nHost: a\r\nX-Huge: ";
        drop(stream.write_all(head).await);
        let chunk = vec![b'x'; 64 << 10];
        let mut sent = 0;
        while sent < 64 && stream.write_all(&chunk).await.is_ok() && stream.flush().await.is_ok() {
            sent += 1;
        }
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer)).await;
        ensure!(ended.is_ok(), "{name}: the connection stays open");
        let answer = String::from_utf8_lossy(&answer);
        ensure!(!answer.contains(" 200 "), "{name}: {answer}");
    }
    served(&server).await
}

#[tokio::test]
async fn slow_clients_are_disconnected_on_every_port() -> Result<()> {
    let server = Server::start().await?;
    let mut slow = tokio::task::JoinSet::new();
    for words in
        [&b""[..], b"GET / HTTP/1.1\r\nX-Slow: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"]
    {
        for (name, mut stream) in all_ports(&server).await? {
            slow.spawn(async move {
                // A client that sends a byte now and then, or none.
                let wait = async {
                    for word in words {
                        if stream.write_all(&[*word]).await.is_err() || stream.flush().await.is_err() {
                            return;
                        }
                        let mut answer = [0; 1024];
                        let read = tokio::time::timeout(Duration::from_secs(1), stream.read(&mut answer)).await;
                        if let Ok(Ok(0) | Err(_)) = read {
                            return;
                        }
                    }
                    drop(stream.read_to_end(&mut Vec::new()).await);
                };

                tokio::time::timeout(TIMEOUT, wait).await.with_context(|| format!("{name} keeps the connection open ({words:?})"))
            });
        }
    }

    served(&server).await?;
    while let Some(outcome) = slow.join_next().await {
        outcome??;
    }

    served(&server).await
}

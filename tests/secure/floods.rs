//! Clients that misuse HTTP/2 lose their connection soon, on the plaintext port as on the other, and the server goes on.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::Proof;
use crate::server::Server;

/// What every HTTP/2 client says first, and its empty settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// `POST /` over http, in HPACK's own table.
const REQUEST: [u8; 3] = [0x83, 0x84, 0x86];
/// Frames that are sent at most.
const MOST: u32 = 200_000;

/// One frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Sends frames until the server ends the connection; gives how many it took.
async fn flood(server: SocketAddr, frames: impl Fn(u32) -> Vec<u8>) -> Result<u32> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(HELLO).await?;
    let mut answer = vec![0; 64 << 10];
    for turn in 0..MOST / 100 {
        let batch: Vec<u8> = (turn * 100..(turn + 1) * 100).flat_map(&frames).collect();
        let sent = tokio::time::timeout(Duration::from_secs(5), stream.write_all(&batch)).await;
        let ended = match sent {
            Ok(Err(_)) => true,
            Err(_) => anyhow::bail!("the server neither reads nor ends the connection"),
            Ok(Ok(())) => loop {
                match tokio::time::timeout(Duration::from_millis(1), stream.read(&mut answer)).await {
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
    anyhow::bail!("{MOST} frames were taken")
}

#[tokio::test]
async fn floods_end_their_connection_and_nothing_else() -> Result<()> {
    let server = Server::start().await?;
    let plain = server.plain();
    // Streams that are opened and reset at once (CVE-2023-44487).
    let reset = |number: u32| {
        let stream = number * 2 + 1;
        [frame(1, 0x4, stream, &REQUEST), frame(3, 0, stream, &[0, 0, 0, 8])].concat()
    };
    let taken = flood(plain, reset).await.context("rapid reset")?;
    ensure!(taken <= 20_000, "rapid reset: {taken}");
    // Headers that never end (CVE-2023-45288).
    let continuation = |number: u32| match number {
        0 => frame(1, 0, 1, &REQUEST),
        _ => frame(9, 0, 1, &[b"\x00\x01a\x7f\x00"[..].to_vec(), vec![b'x'; 127]].concat()),
    };
    let taken = flood(plain, continuation).await.context("continuation")?;
    ensure!(taken <= 20_000, "continuation: {taken}");
    // Frames without a purpose.
    let junk = |_| frame(8, 0, 0, &[0, 0, 0, 0]);
    flood(plain, junk).await.context("empty window updates")?;
    let proof = Proof::Token(server.issuer.token(json!({})));
    let secrets = server.secrets(&proof, "shop", "web", &["kubernetes://tls"]).await?;
    ensure!(secrets.len() == 1, "others are served as before");
    Ok(())
}

//! The application of a pod runs commands. Because of this test, cargo builds the program for other
//! tests.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_testkit::process::Process;
use navarch_testkit::{client, ports};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

#[tokio::test]
async fn a_test_pod_serves_and_sends_requests() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let port = ports::free()?;
    let socket = folder.path().join("orders");
    let arguments = [
        "web".to_owned(),
        port.to_string(),
        socket.display().to_string(),
    ];

    let program = Path::new(env!("CARGO_BIN_EXE_pod"));
    let mut process = Process::start("pod", program, &arguments, &folder.path().join("log"))?;
    let end = tokio::time::Instant::now() + Duration::from_secs(20);

    while !socket.exists() {
        process.check_running()?;
        ensure!(
            tokio::time::Instant::now() < end,
            "it is not listening: {}",
            process.output()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let caller = [("x-forwarded-client-cert", "URI=spiffe://x")];
    ensure!(client::get(address, "web", "/a", &caller).await?.body == "web /a URI=spiffe://x");
    let (reader, mut writer) = UnixStream::connect(&socket).await?.into_split();
    let mut lines = BufReader::new(reader).lines();

    for (order, answer) in [
        (
            r#"{"op": "get", "host": "127.0.0.1", "path": "/b"}"#,
            r#"{"body":"web /b ","status":200}"#,
        ),
        (
            r#"{"op": "many", "host": "127.0.0.1", "path": "/?wait=1", "count": 3}"#,
            r#"{"failed":0,"failures":[],"ok":3}"#,
        ),
        (r#"{"op": "dance"}"#, r#"{"error":"unknown command dance"}"#),
    ] {
        writer.write_all(format!("{order}\n").as_bytes()).await?;
        ensure!(
            lines.next_line().await?.context("a response")? == answer,
            "{order}"
        );
    }

    Ok(())
}

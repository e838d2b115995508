//! `wait`: waits until the local Envoy is ready, for containers that must not start before.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::{Instant, sleep};

use crate::downward_api::host_and_port;
use crate::flags::{CommandLine, Flag, UnknownFlags};
use crate::local_http::LocalRequest;

/// The readiness URL.
const URL: &str = "http://localhost:15021/healthz/ready";
pub(super) const FLAGS: &[Flag] = &[
    Flag::text("timeoutSeconds", "60", "Total time to wait, in seconds"),
    Flag::text(
        "requestTimeoutMillis",
        "500",
        "Timeout of one request, in milliseconds",
    ),
    Flag::text(
        "periodMillis",
        "500",
        "Time between two requests, in milliseconds",
    ),
    Flag::text(
        "url",
        URL,
        "URL that is requested over plain HTTP until it responds with 200",
    ),
];

/// Waits until the URL returns 200.
pub(super) fn run(arguments: &[String]) -> anyhow::Result<i32> {
    super::log::start("", false)?;
    let line = CommandLine::read(FLAGS, UnknownFlags::PassOver, arguments)?;
    let number = |flag, default| {
        line.parsed(flag, "whole number", |text| text.parse::<u64>().ok())
            .map(|value| value.unwrap_or(default))
    };
    let timeout = Duration::from_secs(number("timeoutSeconds", 60)?);
    let each = Duration::from_millis(number("requestTimeoutMillis", 500)?);

    let period = Duration::from_millis(number("periodMillis", 500)?);
    let url = line.flags.get("url").map_or(URL, String::as_str);
    let rest = url
        .strip_prefix("http://")
        .with_context(|| format!("--url={url:?} is not an http:// URL"))?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = host_and_port(authority).unwrap_or((authority, 80));
    let question = LocalRequest::get(host, port, &format!("/{path}"), each);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the tokio runtime")?;
    runtime.block_on(until_ready(question, timeout, period))
}

/// Polls until it is ready.
async fn until_ready(
    question: LocalRequest,
    timeout: Duration,
    period: Duration,
) -> anyhow::Result<i32> {
    let begun = Instant::now();
    let mut last = "no request was sent yet".to_owned();
    loop {
        // The user may choose longer times than an Instant can hold.
        if begun.elapsed().saturating_add(period) > timeout {
            bail!("Envoy was not ready within {timeout:?}: {last}");
        }
        sleep(period).await;
        match question.clone().send().await {
            Ok(answer) if answer.status == http::StatusCode::OK => return Ok(0),
            Ok(answer) => last = format!("status {}", answer.status),
            Err(error) => last = error.to_string(),
        }
        tracing::debug!(last, "not ready yet");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_longest_timeout_is_waited_for_and_a_short_one_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let question = LocalRequest::get("127.0.0.1", port, "/", Duration::from_secs(20));
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let length = stream.read(&mut head).await.unwrap();
            assert!(length > 0);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            stream.shutdown().await.unwrap();
        };
        let short = Duration::from_millis(1);

        let wait = until_ready(question.clone(), Duration::from_secs(u64::MAX), short);
        let (code, ()) = tokio::join!(wait, serve);

        assert_eq!(code.unwrap(), 0);
        let ended = until_ready(question, Duration::ZERO, short).await;
        assert!(ended.unwrap_err().to_string().contains("no request"));
    }
}

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
    let end = Instant::now() + timeout;
    let mut last = "no request was sent yet".to_owned();
    loop {
        if Instant::now() + period > end {
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

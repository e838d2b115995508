//! `request`: sends a request to the admin API of the local Envoy.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use navarch_base::printable::escape_body;

use crate::flags::{CommandLine, Flag, UnknownFlags};
use crate::local_http::LocalRequest;

/// The allowed ports.
const PORTS: [u16; 4] = [15000, 15004, 15020, 15021];
pub(super) const FLAGS: &[Flag] = &[Flag::text(
    "debug-port",
    "15000",
    "Port on this machine: 15000, 15004, 15020 or 15021",
)];
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends the request, and prints only the response body, which istioctl parses.
#[expect(clippy::print_stdout, reason = "printing is what the command is for")]
pub(super) fn run(arguments: &[String]) -> anyhow::Result<i32> {
    let line = CommandLine::read(FLAGS, UnknownFlags::PassOver, arguments)?;
    let port = line
        .parsed("debug-port", "port", |text| text.parse().ok())?
        .unwrap_or(15000);
    ensure!(
        PORTS.contains(&port),
        "--debug-port={port} is not one of {PORTS:?}"
    );

    let [method, path, body @ ..] = line.words.as_slice() else {
        bail!("a method and a path are required")
    };

    let path = format!("/{}", path.trim_start_matches('/'));
    let question = LocalRequest {
        method: method
            .parse()
            .with_context(|| format!("invalid HTTP method {method:?}"))?,
        body: body.first().cloned().unwrap_or_default().into(),
        ..LocalRequest::get("localhost", port, &path, REQUEST_TIMEOUT)
    };

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the tokio runtime")?;
    let answer = runtime
        .block_on(question.send())
        .with_context(|| format!("localhost:{port}{path}"))?;
    println!("{}", escape_body(&answer.text()));

    ensure!(
        answer.status.as_u16() < 400,
        "unexpected HTTP status {}",
        answer.status
    );

    Ok(0)
}

//! `navarch request`: sends a request to the local control plane, like `pilot-discovery request`
//! (istioctl runs it in the pod).

use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use navarch_agent::local_http::LocalRequest;

use super::output::print_body;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a response in bytes: `config_dump`s are large.
const MAX_RESPONSE: usize = 1 << 30;

/// Send a request to the monitoring port of the control plane on this machine
#[derive(Args, Debug)]
pub(super) struct Request {
    /// `GET`, `POST`, …
    method: String,
    /// Path and query, such as `/debug/syncz`
    path: String,
    /// Request body
    body: Option<String>,
    /// Port on this machine
    #[arg(long, value_name = "PORT", default_value_t = 15014)]
    port: u16,
}

impl Request {
    /// Sends the request, and prints only the response body.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let path = format!("/{}", self.path.trim_start_matches('/'));
        let question = LocalRequest {
            method: self
                .method
                .to_ascii_uppercase()
                .parse()
                .with_context(|| format!("invalid HTTP method {:?}", self.method))?,
            body: self.body.unwrap_or_default().into(),
            limit: MAX_RESPONSE,
            ..LocalRequest::get("127.0.0.1", self.port, &path, REQUEST_TIMEOUT)
        };

        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to start the tokio runtime")?;
        let answer = runtime
            .block_on(question.send())
            .with_context(|| format!("127.0.0.1:{}{path}", self.port))?;
        print_body(&answer.text())?;

        ensure!(
            answer.status.is_success(),
            "unexpected HTTP status {}",
            answer.status
        );

        Ok(())
    }
}

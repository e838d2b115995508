//! Requests to one host that go on until they are ended, so that a test can change something below
//! them and see that none fails.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::client;
use crate::tally::Tally;

/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(2);

/// Requests that are sent one after the other, each on a connection of its own.
#[derive(Debug)]
pub struct Requests {
    is_over: Arc<AtomicBool>,
    task: JoinHandle<Tally>,
}

impl Requests {
    /// Begins to send requests for `host` and `path` to an address.
    #[must_use]
    pub fn begin(address: SocketAddr, host: &str, path: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let host = host.to_owned();
        let path = path.to_owned();

        let task = tokio::spawn(async move {
            let mut tally = Tally::default();
            while !ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let outcome = answer(address, &host, &path).await;
                tally.count(&host, begun.elapsed(), outcome);
                sleep(PAUSE).await;
            }
            tally
        });
        Self { is_over, task }
    }

    /// Ends them.
    ///
    /// # Errors
    /// If one failed, or was not answered with status 200; if there were none.
    pub async fn end(self) -> Result<Tally> {
        self.is_over.store(true, Ordering::Relaxed);
        let tally = self
            .task
            .await
            .context("the task of the requests panicked")?;
        tally.none_lost("requests that went on", 1)?;
        Ok(tally)
    }
}

/// The body of a response with status 200.
async fn answer(address: SocketAddr, host: &str, path: &str) -> Result<String> {
    let reply = client::get(address, host, path, &[]).await?;
    ensure!(reply.status == 200, "{}", reply.status);
    Ok(reply.body)
}

//! Clients in pods that continuously send requests while the mesh is changed, and their failures.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::mesh::{counted, more};
use crate::tally::Tally;

/// Minimum number of requests of each client between two counts, so that the effects of a change
/// are counted.
const LEAST: u64 = 20;

/// Clients with counts.
#[derive(Debug, Default)]
pub struct Watched {
    clients: BTreeMap<String, (SocketAddr, Tally)>,
    /// The failures, and the change during which they occurred. Later changes are still made, to
    /// report all failures.
    lost: Vec<String>,
}

impl Watched {
    /// Watches a client by the address of its counts, from its current counts on.
    ///
    /// # Errors
    /// If it does not respond.
    pub async fn watch(&mut self, name: &str, address: SocketAddr) -> Result<()> {
        self.clients
            .insert(name.to_owned(), (address, counted(address).await?));
        Ok(())
    }

    /// Waits for a while, and records failures since the last call. Returns the counts since then,
    /// by client.
    ///
    /// # Errors
    /// If a client no longer sends requests.
    #[expect(clippy::print_stderr, reason = "a test prints its progress")]
    pub async fn count_lost(
        &mut self,
        what: &str,
        during: Duration,
    ) -> Result<BTreeMap<String, Tally>> {
        tokio::time::sleep(during).await;
        let mut counts = BTreeMap::new();
        for (name, (address, before)) in &mut self.clients {
            let now = more(*address, before, LEAST).await?;
            let since = now.since(before);
            let failed = since.failed;
            let requests = since.asked;
            let longest = since.longest;
            eprintln!(
                "  {what}, {name}: {failed} of {requests} lost, the longest took {longest} ms"
            );
            if let Err(error) = since.none_lost(&format!("{what}, {name}"), LEAST) {
                self.lost.push(error.to_string());
            }
            *before = now;
            counts.insert(name.clone(), since);
        }

        Ok(counts)
    }

    /// Fails if there were failures.
    ///
    /// # Errors
    /// With all failures.
    pub fn verdict(&self) -> Result<()> {
        ensure!(self.lost.is_empty(), "{}", self.lost.join("\n"));
        Ok(())
    }
}

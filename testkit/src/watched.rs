//! Clients in pods that ask all the time while the mesh is changed, and what they lose.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::mesh::{counted, more};
use crate::tally::Tally;

/// Requests that each must have made between two counts, so that what a change did is counted.
const LEAST: u64 = 20;

/// Clients that count.
#[derive(Debug, Default)]
pub struct Watched {
    clients: BTreeMap<String, (SocketAddr, Tally)>,
    /// What was lost, and during which change. The changes after it are made all the same, to know of all.
    lost: Vec<String>,
}

impl Watched {
    /// Watches a client at the address where it tells its counts, from what it has counted so far.
    ///
    /// # Errors
    /// When it does not tell.
    pub async fn watch(&mut self, name: &str, address: SocketAddr) -> Result<()> {
        self.clients.insert(name.to_owned(), (address, counted(address).await?));
        Ok(())
    }

    /// Goes on for a while, and notes what was lost since the last time. Gives what came since, by client.
    ///
    /// # Errors
    /// When a client does not ask any more.
    #[expect(clippy::print_stderr, reason = "a test says how far it is")]
    pub async fn count_lost(&mut self, what: &str, during: Duration) -> Result<BTreeMap<String, Tally>> {
        tokio::time::sleep(during).await;
        let mut counts = BTreeMap::new();
        for (name, (address, before)) in &mut self.clients {
            let now = more(*address, before, LEAST).await?;
            let since = now.since(before);
            let (failed, asked, longest) = (since.failed, since.asked, since.longest);
            eprintln!("  {what}, {name}: {failed} of {asked} lost, the longest so far took {longest} ms");
            if let Err(error) = since.none_lost(&format!("{what}, {name}"), LEAST) {
                self.lost.push(error.to_string());
            }
            *before = now;
            counts.insert(name.clone(), since);
        }
        Ok(counts)
    }

    /// Fails when anything was lost.
    ///
    /// # Errors
    /// With all that was.
    pub fn verdict(&self) -> Result<()> {
        ensure!(self.lost.is_empty(), "{}", self.lost.join("\n"));
        Ok(())
    }
}

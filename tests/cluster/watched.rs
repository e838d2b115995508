//! Clients that ask all the time while the mesh is changed.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::mesh::{Mesh, counted, more};
use navarch_testkit::tally::Tally;

/// Requests a second to each target.
const RATE: u32 = 20;
/// Longer than clients wait for an answer.
const GIVEN_UP: Duration = Duration::from_secs(11);
/// A client in the mesh, and one outside of it.
const CLIENTS: [(&str, &str); 2] = [(pods::NAMESPACE, "shopper"), (pods::OUTSIDE, "visitor")];

/// A client in the mesh, which asks the services, and one outside, which asks the gateway.
pub(crate) struct Watched {
    clients: Vec<(&'static str, SocketAddr, Tally)>,
    /// What was lost, and during which change. The changes after it are made all the same, to know of all.
    lost: Vec<String>,
}

/// What each client asks.
fn targets(name: &str) -> Vec<String> {
    if name == "shopper" {
        // Counted by the host that is asked.
        return ["reviews", "catalog", "storefront"].map(|service| format!("{service}:9080/{service}/")).to_vec();
    }
    vec![format!("{0}.{0}:80/{1}/catalog", pods::GATEWAY, pods::HOST)]
}

/// Where the clients are, with nothing counted.
fn find(mesh: &Mesh) -> Result<Vec<(&'static str, SocketAddr, Tally)>> {
    let mut clients = Vec::new();
    for (namespace, name) in CLIENTS {
        clients.push((name, mesh.address(namespace, name, pods::COUNTS_PORT)?, Tally::default()));
    }
    Ok(clients)
}

impl Watched {
    /// Starts them, and waits until they are answered.
    pub(crate) async fn start(mesh: &Mesh) -> Result<Self> {
        for (namespace, name) in CLIENTS {
            mesh.client(namespace, name, RATE, &targets(name))?;
        }
        let mut watched = Self { clients: find(mesh)?, lost: Vec::new() };
        watched.count_lost("before anything changes", Duration::ZERO).await?;
        Ok(watched)
    }

    /// Finds them on a node that was started again. What they lost while it started does not count.
    pub(crate) async fn find_again(&mut self, mesh: &Mesh) -> Result<()> {
        for (namespace, name) in CLIENTS {
            mesh.ready(namespace, name)?;
        }
        self.clients = find(mesh)?;
        // By then all requests that were made too early have an outcome.
        tokio::time::sleep(GIVEN_UP).await;
        for (_, address, before) in &mut self.clients {
            *before = counted(*address).await?;
        }
        Ok(())
    }

    /// Goes on for a while, and notes what was lost since the last time.
    pub(crate) async fn count_lost(&mut self, what: &str, during: Duration) -> Result<()> {
        tokio::time::sleep(during).await;
        for (name, address, before) in &mut self.clients {
            // At least a second's worth, so that what a change did is counted.
            let now = more(*address, before, u64::from(RATE)).await?;
            let since = now.since(before);
            let (failed, asked, longest) = (since.failed, since.asked, since.longest);
            eprintln!("  {what}, {name}: {failed} of {asked} lost, the longest so far took {longest} ms");
            if let Err(error) = since.none_lost(&format!("{what}, {name}"), u64::from(RATE)) {
                self.lost.push(error.to_string());
            }
            *before = now;
        }
        Ok(())
    }

    /// Fails when anything was lost.
    pub(crate) fn verdict(&self) -> Result<()> {
        ensure!(self.lost.is_empty(), "{}", self.lost.join("\n"));
        Ok(())
    }
}

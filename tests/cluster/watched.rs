//! Clients that send requests continuously while the mesh changes.

use std::time::Duration;

use anyhow::Result;
use navarch_testkit::bookshop::pods;
use navarch_testkit::mesh::Mesh;
use navarch_testkit::watched;

/// Requests per second to each target.
const RATE: u32 = 20;
/// Longer than the timeout of clients' requests: REQUEST_TIMEOUT of testkit's program `workload`.
const GIVEN_UP: Duration = Duration::from_secs(11);
/// The client in the mesh.
pub(crate) const SHOPPER: &str = "shopper";
/// A client in the mesh, and one outside.
const CLIENTS: [(&str, &str); 2] = [(pods::NAMESPACE, SHOPPER), (pods::OUTSIDE, "visitor")];

/// A client in the mesh, which calls the services, and one outside, which calls the gateway.
pub(crate) struct Watched(watched::Watched);

/// The URLs that each client requests.
fn targets(name: &str) -> Vec<String> {
    if name == SHOPPER {
        // Counted by host.
        return ["reviews", "catalog", "storefront"]
            .map(|service| format!("{service}:9080/{service}/"))
            .to_vec();
    }
    vec![format!("{0}.{0}:80/{1}/catalog", pods::GATEWAY, pods::HOST)]
}

impl Watched {
    /// Starts them, and waits until requests succeed.
    pub(crate) async fn start(mesh: &Mesh) -> Result<Self> {
        let mut all = watched::Watched::default();
        for (namespace, name) in CLIENTS {
            mesh.client(namespace, name, RATE, &targets(name))?;
            all.watch(name, mesh.address(namespace, name, pods::COUNTS_PORT)?)
                .await?;
        }
        let mut watched = Self(all);
        watched
            .count_lost("before anything changes", Duration::ZERO)
            .await?;
        Ok(watched)
    }

    /// Finds them on a restarted node. Requests that failed during its start do not count.
    pub(crate) async fn find_again(&mut self, mesh: &Mesh) -> Result<()> {
        for (namespace, name) in CLIENTS {
            mesh.ready(namespace, name)?;
        }
        // By then every request from before the start has failed or succeeded.
        tokio::time::sleep(GIVEN_UP).await;
        for (namespace, name) in CLIENTS {
            self.0
                .watch(name, mesh.address(namespace, name, pods::COUNTS_PORT)?)
                .await?;
        }
        Ok(())
    }

    /// Waits for a while, and notes the requests that failed since the last call.
    pub(crate) async fn count_lost(&mut self, what: &str, during: Duration) -> Result<()> {
        self.0.count_lost(what, during).await.map(drop)
    }

    /// Fails if any request failed.
    pub(crate) fn verdict(&self) -> Result<()> {
        self.0.verdict()
    }
}

//! Envoys with large and small tables of routes, while hosts come and go under requests: an Envoy has
//! the form that it started with, over new streams as well, and no request fails.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::backend::Backend;
use navarch_testkit::requests::Requests;
use navarch_testkit::wait::until_within;
use navarch_testkit::{client, ports};
use serde_json::Value;
use tempfile::TempDir;

use crate::pod::Pod;
use crate::server::{LOOPBACK, Server};

/// From how many virtual hosts on a table is large here.
const MIN_HOSTS: usize = 20;
/// Below and above that minimum.
const HOSTS_OF_SMALL_TABLE: usize = 5;
const HOSTS_OF_LARGE_TABLE: usize = 40;
/// The host that requests are for.
const BANK: &str = "bank.example";
/// The agent's message when a stream to the control plane is open.
const CONNECTED: &str = "connected to the control plane";
/// Longer than an edit takes, or a stream lives.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A sidecar's port for all hosts of a mesh, and a host with a backend.
struct World {
    server: Server,
    port: u16,
    bank: Backend,
}

impl World {
    /// A control plane that ends each stream after two seconds.
    async fn start(hosts: usize) -> Result<Self> {
        let port = ports::free()?;
        let bank = Backend::start("bank", SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let folder: TempDir = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("mesh"))?;
        std::fs::write(
            folder.path().join("mesh/mesh.yaml"),
            mesh(port, bank.address, hosts, "0"),
        )?;

        let variables = format!("NAVARCH_FINE_GRAINED_ROUTES_MIN_HOSTS={MIN_HOSTS}");
        let age = "--keepaliveMaxServerConnectionAge=2s".to_owned();
        let issuer = crate::issuer::Issuer::with_new_key();
        let server = Server::start_in(folder, issuer, variables, LOOPBACK, &[age]).await?;
        Ok(Self { server, port, bank })
    }

    /// The sidecar's listener.
    fn listener(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Changes the number of hosts and the version that responses have, and waits until they have it.
    async fn edit(&self, hosts: usize, version: &str) -> Result<()> {
        self.server
            .write_mesh(&mesh(self.port, self.bank.address, hosts, version))?;
        let has_version = async || self.version().await.as_deref() == Some(version);
        until_within(TIMEOUT, "an edit is in force", has_version).await;
        Ok(())
    }

    /// The version that a response has.
    async fn version(&self) -> Option<String> {
        let reply = client::get(self.listener(), BANK, "/", &[]).await.ok()?;
        let version = reply.headers.get("x-version")?.to_str().ok()?;
        Some(version.to_owned())
    }
}

/// A mesh with this number of hosts on a port, each with a virtual host of its own.
fn mesh(port: u16, bank: SocketAddr, hosts: usize, version: &str) -> String {
    let backend = bank.port();
    let others: String = (1..hosts)
        .map(|number| format!("other-{number}.example, "))
        .collect();

    format!(
        r"
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: hosts, namespace: shop}}
spec:
  hosts: [{others}{BANK}]
  location: MESH_EXTERNAL
  ports: [{{number: {port}, name: http, protocol: HTTP}}]
  resolution: STATIC
  endpoints: [{{address: 127.0.0.1, ports: {{http: {backend}}}}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: bank, namespace: shop}}
spec:
  hosts: [{BANK}]
  http:
  - headers: {{response: {{set: {{x-version: '{version}'}}}}}}
    route: [{{destination: {{host: {BANK}, port: {{number: {port}}}}}}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: web, namespace: shop}}
spec:
  workloadSelector: {{labels: {{app: web}}}}
  egress:
  - port: {{number: {port}, protocol: HTTP, name: http}}
    bind: 127.0.0.1
    captureMode: NONE
    hosts: ['shop/*']
"
    )
}

/// Whether Envoy gets virtual hosts one by one.
async fn is_fine_grained(pod: &Pod) -> Result<bool> {
    let dump = "/config_dump?resource=dynamic_route_configs";
    let (status, routes) = pod.get(pod.admin, dump).await?;
    ensure!(status == 200, "{dump}: {status}");
    Ok(routes.contains("\"vhds\""))
}

/// Whether the Envoy of this run is from 1.40 on: one that gets virtual hosts one by one without
/// being told to, and clusters on demand.
pub(crate) async fn is_envoy_1_40(pod: &Pod) -> Result<bool> {
    let (_, text) = pod.get(pod.admin, "/server_info").await?;
    let info: Value = serde_json::from_str(&text)?;
    let build = info["version"].as_str().context("a version")?;
    let version = build.split('/').nth(1).context("hash/version/...")?;
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let mut next = || numbers.next().context("major.minor.patch");
    let major = next()??;
    let minor = next()??;
    Ok((major, minor) >= (1, 40))
}

/// Waits until the agent has opened two more streams.
pub(crate) async fn until_reconnected(pod: &Pod) {
    let count = || pod.log().matches(CONNECTED).count();
    let before = count();
    let has_more = async || count() >= before + 2;
    until_within(TIMEOUT, "Envoy comes back on another stream", has_more).await;
}

#[tokio::test]
async fn an_envoy_that_starts_with_a_large_table_gets_virtual_hosts_one_by_one_for_good()
-> Result<()> {
    let world = World::start(HOSTS_OF_LARGE_TABLE).await?;
    let mut pod = Pod::start(&world.server, &[])?;
    pod.wait_ready().await?;
    world.edit(HOSTS_OF_LARGE_TABLE, "1").await?;
    let expected = is_envoy_1_40(&pod).await?;
    ensure!(is_fine_grained(&pod).await? == expected, "{}", pod.log());

    let requests = Requests::begin(world.listener(), BANK, "/");
    for round in 2..6 {
        world.edit(HOSTS_OF_LARGE_TABLE, &round.to_string()).await?;
    }
    world.edit(HOSTS_OF_SMALL_TABLE, "small").await?;
    until_reconnected(&pod).await;
    ensure!(is_fine_grained(&pod).await? == expected, "a smaller table");

    world.edit(HOSTS_OF_SMALL_TABLE, "small again").await?;
    world.edit(HOSTS_OF_LARGE_TABLE, "large").await?;
    let other = client::get(world.listener(), "other-9.example", "/", &[]).await?;
    ensure!(other.status == 200, "a host that came back: {other:?}");

    let tally = requests.end().await?;
    println!("{} requests while virtual hosts came and went", tally.asked);
    ensure!(pod.stop().await? == 0, "it exits with 0");
    Ok(())
}

#[tokio::test]
async fn an_envoy_that_starts_with_a_small_table_keeps_whole_tables_when_it_grows() -> Result<()> {
    let world = World::start(HOSTS_OF_SMALL_TABLE).await?;
    let mut pod = Pod::start(&world.server, &[])?;
    pod.wait_ready().await?;
    world.edit(HOSTS_OF_SMALL_TABLE, "1").await?;
    ensure!(!is_fine_grained(&pod).await?, "{}", pod.log());

    let requests = Requests::begin(world.listener(), BANK, "/");
    world.edit(HOSTS_OF_LARGE_TABLE, "large").await?;
    until_reconnected(&pod).await;
    world.edit(HOSTS_OF_LARGE_TABLE, "large again").await?;
    ensure!(!is_fine_grained(&pod).await?, "a table that grows");
    world.edit(HOSTS_OF_SMALL_TABLE, "small").await?;
    world.edit(HOSTS_OF_LARGE_TABLE, "large at last").await?;
    let tally = requests.end().await?;
    println!("{} requests while a table grew", tally.asked);

    // The next Envoy has the other form.
    ensure!(pod.stop().await? == 0, "it exits with 0");
    let mut next = Pod::start(&world.server, &[])?;
    next.wait_ready().await?;
    world
        .edit(HOSTS_OF_LARGE_TABLE, "with the next Envoy")
        .await?;
    let expected = is_envoy_1_40(&next).await?;
    ensure!(is_fine_grained(&next).await? == expected, "{}", next.log());
    next.stop().await?;
    Ok(())
}

#[tokio::test]
async fn an_envoy_that_is_told_not_to_has_whole_tables() -> Result<()> {
    let world = World::start(HOSTS_OF_LARGE_TABLE).await?;
    let variables = [("ISTIO_META_FINE_GRAINED_ROUTES", "false")];
    let mut pod = Pod::start(&world.server, &variables)?;
    pod.wait_ready().await?;
    world.edit(HOSTS_OF_LARGE_TABLE, "1").await?;
    ensure!(!is_fine_grained(&pod).await?, "{}", pod.log());
    pod.stop().await?;
    Ok(())
}

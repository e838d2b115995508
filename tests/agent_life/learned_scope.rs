//! An Envoy with a learned scope: it starts with the clusters that its workload has used, requests
//! others with the first request, and loses none when its stream or the control plane ends.

mod first_requests;
mod labels;
mod memory;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use navarch_testkit::backend::Backend;
use navarch_testkit::wait::until_within;
use navarch_testkit::{client, ports};
use serde_json::Value;
use tempfile::TempDir;

use crate::fine_grained::{is_envoy_1_40, until_reconnected};
use crate::pod::Pod;
use crate::server::{LOOPBACK, Server};

/// Services that nobody calls.
const OTHERS: usize = 40;
/// Longer than an edit takes, or a stream lives.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Any port of the loopback address.
const ANY_PORT: SocketAddr = SocketAddr::new(LOOPBACK, 0);
/// How long Envoy waits for a cluster that it has requested.
const ON_DEMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// The counter of requested clusters.
const REQUESTED: &str = "navarch_on_demand_clusters_total";
/// The counter of responses with clusters that Envoys have rejected.
const REJECTED: &str = "pilot_total_xds_rejects{type=\"cds\"}";

/// A sidecar's port for all hosts of a mesh, and two hosts with backends.
struct World {
    server: Server,
    port: u16,
    reviews: Backend,
    ledger: Backend,
}

impl World {
    /// A control plane that ends each stream after two seconds, and two pods of one workload.
    async fn start() -> Result<Self> {
        let age = "--keepaliveMaxServerConnectionAge=2s".to_owned();
        Self::start_with(|_| String::new(), &[age]).await
    }

    /// With further objects for the sidecar's port, and arguments of the control plane.
    async fn start_with(further: fn(u16) -> String, arguments: &[String]) -> Result<Self> {
        let port = ports::free()?;
        let reviews = Backend::start("reviews", ANY_PORT).await?;
        let ledger = Backend::start("ledger", ANY_PORT).await?;

        let folder: TempDir = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("mesh"))?;
        let services = [
            service("reviews", port, reviews.address, "*"),
            service("ledger", port, ledger.address, "*"),
            service("hidden", port, ledger.address, "bank"),
            further(port),
        ];
        let text = mesh(port, &services.concat());
        std::fs::write(folder.path().join("mesh/mesh.yaml"), text)?;

        let issuer = crate::issuer::Issuer::with_new_key();
        let server = Server::start_in(folder, issuer, String::new(), LOOPBACK, arguments).await?;
        Ok(Self {
            server,
            port,
            reviews,
            ledger,
        })
    }

    /// The sidecar's listener for all hosts.
    fn listener(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The cluster of a host.
    fn cluster(&self, host: &str) -> String {
        format!("outbound|{}||{host}.example", self.port)
    }

    /// The clusters of hosts.
    fn clusters(&self, hosts: &[&str]) -> BTreeSet<String> {
        hosts.iter().map(|host| self.cluster(host)).collect()
    }

    /// How many clusters Envoys have requested by name.
    async fn requested(&self) -> Result<u64> {
        self.counter(REQUESTED).await
    }

    /// How many responses with clusters Envoys have rejected.
    async fn rejected(&self) -> Result<u64> {
        self.counter(REJECTED).await
    }

    /// The value of a series of the control plane; 0 without it.
    async fn counter(&self, series: &str) -> Result<u64> {
        let metrics = self.server.metrics().await?;
        let line = metrics.lines().find_map(|line| line.strip_prefix(series));
        Ok(line.unwrap_or("0").trim().parse()?)
    }
}

/// A service of HTTP.
fn service(name: &str, port: u16, backend: SocketAddr, exported_to: &str) -> String {
    format!(
        "
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: {name}, namespace: bank}}
spec:
  hosts: [{name}.example]
  exportTo: ['{exported_to}']
  location: MESH_EXTERNAL
  ports: [{{number: {port}, name: http, protocol: HTTP}}]
  resolution: STATIC
  endpoints: [{{address: 127.0.0.1, ports: {{http: {}}}}}]
",
        backend.port()
    )
}

/// A service whose cluster Envoy rejects, since it has no load balancer of its own. The patch names
/// the cluster, so that it is not lazy.
fn rejected_service(port: u16) -> String {
    let unused = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let patch = format!(
        "
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{name: broken, namespace: shop}}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {{context: SIDECAR_OUTBOUND, cluster: {{service: broken.example}}}}
    patch:
      operation: MERGE
      value: {{lb_policy: CLUSTER_PROVIDED, alt_stat_name: 'outbound|{port}||broken.example'}}
"
    );
    service("broken", port, unused, "*") + &patch
}

/// A namespace that opts in, its pods, and the listener of its sidecars.
fn mesh(port: u16, services: &str) -> String {
    let unused = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let others: String = (0..OTHERS)
        .map(|number| service(&format!("other-{number}"), port, unused, "*"))
        .collect();
    let pods: String = [1, 2]
        .map(|number| {
            format!(
                "
---
apiVersion: v1
kind: Pod
metadata: {{name: web-{number}, namespace: shop, labels: {{app: web, service.istio.io/workload-name: web}}}}
spec: {{serviceAccountName: web}}
status: {{phase: Running, podIP: 127.0.0.1}}
"
            )
        })
        .concat();

    format!(
        "
apiVersion: v1
kind: Namespace
metadata: {{name: shop, labels: {{navarch.io/scope: learned}}}}
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
    hosts: ['*/*']
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: reviews, namespace: bank}}
spec:
  hosts: [reviews.example]
  http:
  - match: [{{uri: {{prefix: /missing}}}}]
    route: [{{destination: {{host: reviews.example, subset: missing}}}}]
  - route: [{{destination: {{host: reviews.example}}}}]
{pods}{services}{others}"
    )
}

/// The clusters of services that an Envoy has in force.
async fn active_clusters(pod: &Pod) -> Result<BTreeSet<String>> {
    let dump = "/config_dump?resource=dynamic_active_clusters";
    let reply = client::get(admin(pod), "envoy", dump, &[]).await?;
    ensure!(reply.status == 200, "{dump}: {}", reply.status);
    let dump: Value = serde_json::from_str(&reply.body)?;
    let clusters = dump["configs"].as_array().into_iter().flatten();
    let names = clusters.filter_map(|one| one["cluster"]["name"].as_str());
    Ok(names
        .filter(|name| name.starts_with("outbound|"))
        .map(str::to_owned)
        .collect())
}

/// The administration interface of an Envoy.
fn admin(pod: &Pod) -> SocketAddr {
    SocketAddr::new(LOOPBACK, pod.admin)
}

/// Waits until an Envoy has a route for a host.
async fn until_routed(pod: &Pod, host: &str) {
    let domain = format!("{host}.example");
    let is_routed = async || {
        let dump = "/config_dump?resource=dynamic_route_configs";
        let found = client::get(admin(pod), "envoy", dump, &[]).await;
        found.is_ok_and(|reply| reply.status == 200 && reply.body.contains(&domain))
    };
    until_within(TIMEOUT, &format!("a route for {domain}"), is_routed).await;
}

/// Waits until an Envoy has exactly these clusters of services.
async fn until_clusters(pod: &Pod, expected: &BTreeSet<String>) {
    let has_them = async || {
        active_clusters(pod)
            .await
            .is_ok_and(|found| found == *expected)
    };
    until_within(TIMEOUT, &format!("clusters {expected:?}"), has_them).await;
}

#[tokio::test]
async fn an_envoy_starts_with_what_its_workload_has_used_and_gets_the_rest_on_demand() -> Result<()>
{
    let world = World::start().await?;
    let mut first = Pod::start(&world.server, &[])?;
    first.wait_ready().await?;
    if !is_envoy_1_40(&first).await? {
        println!("skipped: this Envoy is older than 1.40");
        first.stop().await?;
        return Ok(());
    }
    let found = active_clusters(&first).await?;
    ensure!(found.is_empty(), "before the first request: {found:?}");

    // The first requests succeed, one of them with a body.
    let reply = client::get(world.listener(), "reviews.example", "/", &[]).await?;
    ensure!(reply.status == 200 && reply.body == "reviews", "{reply:?}");
    until_clusters(&first, &world.clusters(&["reviews"])).await;
    let body = format!("\"{}\"", "x".repeat(100_000));
    let reply = client::post(world.listener(), "ledger.example", "/", body).await?;
    ensure!(reply.status == 200 && reply.body == "ledger", "{reply:?}");

    // What the proxy must not see it cannot request.
    let served = world.ledger.served();
    let reply = client::get(world.listener(), "hidden.example", "/", &[]).await?;
    ensure!(reply.status != 200, "not exported: {reply:?}");
    ensure!(world.ledger.served() == served, "nothing arrived");
    let used = world.clusters(&["ledger", "reviews"]);
    ensure!(active_clusters(&first).await? == used, "{}", first.log());

    // Envoy requests no cluster that does not exist: the request does not wait for it.
    let begun = Instant::now();
    let reply = client::get(world.listener(), "reviews.example", "/missing", &[]).await?;
    ensure!(reply.status == 503, "no such subset: {reply:?}");
    ensure!(begun.elapsed() < ON_DEMAND_TIMEOUT, "it waited");

    // New streams change nothing.
    until_reconnected(&first).await;
    ensure!(active_clusters(&first).await? == used, "a new stream");
    ensure!(first.stop().await? == 0, "it exits with 0");

    // The next pod starts with both, and requests none.
    let requested = world.requested().await?;
    ensure!(requested >= 2, "{requested} clusters were requested");
    let mut second = Pod::start(&world.server, &[("POD_NAME", "web-2")])?;
    second.wait_ready().await?;
    ensure!(active_clusters(&second).await? == used, "{}", second.log());
    for host in ["reviews", "ledger"] {
        let authority = format!("{host}.example");
        let reply = client::get(world.listener(), &authority, "/", &[]).await?;
        ensure!(reply.status == 200 && reply.body == host, "{reply:?}");
    }
    ensure!(world.requested().await? == requested, "no request waits");

    // A service that goes takes its cluster with it, one that comes back is there again.
    let reviews = service("reviews", world.port, world.reviews.address, "*");
    world.server.write_mesh(&mesh(world.port, &reviews))?;
    until_clusters(&second, &world.clusters(&["reviews"])).await;
    let ledger = service("ledger", world.port, world.ledger.address, "*");
    let both = [reviews, ledger].concat();
    world.server.write_mesh(&mesh(world.port, &both))?;
    until_clusters(&second, &used).await;

    // Without the control plane, what was used still works.
    let listener = world.listener();
    let World {
        server,
        reviews: _reviews,
        ledger: _ledger,
        ..
    } = world;
    drop(server);
    for host in ["reviews", "ledger"] {
        let reply = client::get(listener, &format!("{host}.example"), "/", &[]).await?;
        ensure!(reply.status == 200 && reply.body == host, "{reply:?}");
    }
    let reply = client::get(listener, "other-7.example", "/", &[]).await?;
    ensure!(reply.status == 503, "never used: {reply:?}");
    second.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_rejected_cluster_is_sent_once_and_fails_no_first_request_for_another_host() -> Result<()>
{
    let world = World::start_with(rejected_service, &[]).await?;
    let mut pod = Pod::start(&world.server, &[])?;
    pod.wait_ready().await?;
    if !is_envoy_1_40(&pod).await? {
        println!("skipped: this Envoy is older than 1.40");
        pod.stop().await?;
        return Ok(());
    }
    let rejected = async || world.rejected().await.is_ok_and(|count| count == 1);
    until_within(TIMEOUT, "Envoy rejects the first response", rejected).await;

    for host in ["reviews", "ledger"] {
        let authority = format!("{host}.example");
        let reply = client::get(world.listener(), &authority, "/", &[]).await?;
        let log = pod.log();
        ensure!(
            reply.status == 200 && reply.body == host,
            "{reply:?}\n{log}"
        );
    }
    until_clusters(&pod, &world.clusters(&["ledger", "reviews"])).await;
    let count = world.rejected().await?;
    // It may be tried once more after a pause.
    ensure!(count <= 2, "{count} responses were rejected");

    // It is shown as rejected all the same.
    let page = world.server.page("syncz").await?;
    ensure!(page.contains("broken.example: "), "{page}");

    // Who requests it gets it, and all other hosts still work.
    let reply = client::get(world.listener(), "broken.example", "/", &[]).await?;
    ensure!(reply.status == 503, "{reply:?}");
    for host in ["reviews", "ledger"] {
        let authority = format!("{host}.example");
        let reply = client::get(world.listener(), &authority, "/", &[]).await?;
        ensure!(reply.status == 200, "{reply:?}");
    }
    let count = world.rejected().await?;
    ensure!(count <= 4, "{count} responses were rejected");
    pod.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_pod_that_opts_out_has_all_clusters() -> Result<()> {
    let world = World::start().await?;
    let labels = [("app", "web"), ("navarch.io/scope", "whole")];
    let variables = [("POD_NAME", "web-9")];
    let mut pod = Pod::start_as(&world.server, "sidecar", &labels, &variables)?;
    pod.wait_ready().await?;
    let found = active_clusters(&pod).await?;
    ensure!(found.len() == OTHERS + 2, "{} clusters", found.len());
    ensure!(!found.contains(&world.cluster("hidden")), "not exported");
    pod.stop().await?;
    Ok(())
}

//! Envoys replaced in the running pods of a client and a server while the client sends 200 requests a
//! second: by the former version and back, for a changed bootstrap, and after a kill.
//!
//! Needs the former Envoy, too (`make tools`). `NAVARCH_UPGRADE_REQUESTS` is how many requests are
//! sent during replacements, half of them during each kind; `make soak` sends 100,000.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::mesh::{self, Mesh, counted};
use navarch_testkit::node::Node;
use navarch_testkit::stages::Stages;
use navarch_testkit::tally::Tally;
use navarch_testkit::{envoy, skip};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{program, root};

/// The namespace of both pods.
const NAMESPACE: &str = "orders";
const CLIENT: &str = "buyer";
/// Requests per second.
const RATE: u32 = 200;
/// The requests of a usual run: half a minute of them.
const REQUESTS: u64 = 6_000;
/// Longer than the timeout of the client's requests: REQUEST_TIMEOUT of testkit's program `workload`.
const GIVEN_UP: Duration = Duration::from_secs(11);
/// Longer than a kubelet takes to show a file, an Envoy to start, and one to drain.
const TIMEOUT: Duration = Duration::from_secs(180);
/// The image of the proxy with both Envoys.
const IMAGE: &str = "localhost/navarch-proxy:both";
/// The former Envoy in it.
const FORMER: &str = "/usr/local/bin/envoy-former";
/// The ConfigMap with a change of the bootstrap.
const OVERRIDE: &str = "bootstrap";

/// A client and a server in the mesh.
struct Pods {
    mesh: Mesh,
    /// Where the client serves its counts.
    counts: SocketAddr,
    /// The counts at the end of the last part.
    before: Tally,
    /// The requests during replacements.
    requests: u64,
}

/// What an agent says of its Envoy.
struct Proxy {
    pod: String,
    status: Value,
}

/// The image of the proxy with the former Envoy beside the current one.
fn image_with_both(proxy: &Path, former: &Path, folder: &Path) -> Result<PathBuf> {
    let layer = folder.join("former");
    let path = layer.join(FORMER.trim_start_matches('/'));
    fs::create_dir_all(path.parent().context("a folder")?)?;
    fs::copy(former, path)?;

    let archive = folder.join("navarch-proxy-both.tar");
    let output = Command::new(root().join("scripts/oci-image"))
        .arg(&archive)
        .args(["--name", IMAGE, "--user=1337:1337"])
        .args(["--entrypoint=/usr/local/bin/pilot-agent", "--base"])
        .arg(proxy)
        .arg("--root")
        .arg(&layer)
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(archive)
}

/// The change of the bootstrap, in a ConfigMap that the injector mounts.
fn bootstrap(seconds: u32) -> Value {
    let change = json!({"stats_flush_interval": format!("{seconds}s")});
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": OVERRIDE, "namespace": NAMESPACE},
        "data": {"custom_bootstrap.json": change.to_string()},
    })
}

/// Adds the annotations of a pod whose Envoy is replaced in place.
fn annotate(metadata: &mut Value) {
    let config = json!({
        // An Envoy ends 15 s after it has drained.
        "drainDuration": "5s",
        "proxyMetadata": {
            "NAVARCH_PROXY_UPGRADE": "true",
            "NAVARCH_PROXY_UPGRADE_JUDGING": "5s",
        },
    });
    let annotations = &mut metadata["annotations"];
    annotations["proxy.istio.io/config"] = json!(config.to_string());
    annotations["sidecar.istio.io/proxyImage"] = json!(IMAGE);
    annotations["sidecar.istio.io/bootstrapOverride"] = json!(OVERRIDE);
}

/// The objects of the namespace, but for the client.
fn objects() -> Vec<Value> {
    let mut objects = vec![
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": {"istio-injection": "enabled"}},
        }),
        bootstrap(5),
    ];
    let mut server = pods::with_response(NAMESPACE, "seller", "seller");
    for object in &mut server {
        if object["kind"] == "Deployment" {
            annotate(&mut object["spec"]["template"]["metadata"]);
        }
    }
    objects.append(&mut server);
    objects
}

impl Pods {
    async fn start(mesh: Mesh) -> Result<Self> {
        mesh.apply(&objects())?;
        mesh.rolled_out(NAMESPACE)?;
        let target = "seller:9080/seller/".to_owned();
        let mut client = pods::client(NAMESPACE, CLIENT, RATE, &[target]);
        annotate(&mut client["metadata"]);
        mesh.apply(&[client])?;
        mesh.ready(NAMESPACE, CLIENT)?;

        let counts = mesh.address(NAMESPACE, CLIENT, pods::COUNTS_PORT)?;
        let set = std::env::var("NAVARCH_UPGRADE_REQUESTS");
        let requests = match set {
            Ok(text) => text.parse().context("NAVARCH_UPGRADE_REQUESTS")?,
            Err(_) => REQUESTS,
        };
        let pods = Self {
            before: mesh::more(counts, &Tally::default(), u64::from(RATE)).await?,
            mesh,
            counts,
            requests,
        };
        Ok(pods)
    }

    /// Runs `navarch proxy` for the namespace. Returns what it prints, and its exit code.
    async fn command(&self, arguments: &[&str]) -> Result<(Value, i32)> {
        let output = tokio::process::Command::new(program("navarch"))
            .arg("proxy")
            .args(arguments)
            .args(["--timeout", "180s", "-o", "json", "--kubeconfig"])
            .arg(self.mesh.node.kubeconfig())
            .output()
            .await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let printed = serde_json::from_str(&text).with_context(|| format!("{text}{errors}"))?;
        Ok((printed, output.status.code().context("it was killed")?))
    }

    /// What the agents of both pods say.
    async fn proxies(&self) -> Result<Vec<Proxy>> {
        let (printed, _) = self.command(&["status", NAMESPACE]).await?;
        let pods = printed.as_array().context("a list")?;
        let proxies = pods.iter().map(|pod| {
            Ok(Proxy {
                pod: pod["pod"].as_str().context("a name")?.to_owned(),
                status: pod["proxy"].clone(),
            })
        });
        let proxies = proxies.collect::<Result<Vec<_>>>()?;
        ensure!(proxies.len() == 2, "{printed}");
        Ok(proxies)
    }

    /// Waits until the agents of all pods, or of one, say this.
    async fn until(
        &self,
        what: &str,
        of: Option<&str>,
        is_met: impl Fn(&Proxy) -> bool,
    ) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let proxies = self.proxies().await?;
            let mut asked = proxies
                .iter()
                .filter(|proxy| of.is_none_or(|name| name == proxy.pod));
            if asked.all(&is_met) {
                return Ok(());
            }
            let seen: Vec<_> = proxies.iter().map(|proxy| &proxy.status).collect();
            ensure!(Instant::now() < end, "{what}: {seen:?}");
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Replaces both Envoys by the former version and back, again and again until enough requests
    /// are sent and the version of the image runs. Returns how often.
    async fn other_versions(&self) -> Result<usize> {
        let mut count = 0;
        let upgrade = [
            "upgrade", NAMESPACE, "--path", FORMER, "--stages", "50%,100%",
        ];
        let downgrade = ["downgrade", NAMESPACE];
        let changes: [&[&str]; 2] = [&upgrade, &downgrade];
        while count % 2 == 1 || self.sent().await? < self.requests / 2 {
            let arguments = changes[count % 2];
            let (report, code) = self.command(arguments).await?;
            ensure!(code == 0, "{arguments:?}: {report}");
            count += 1;
        }
        Ok(count)
    }

    /// Changes the bootstrap again and again until enough requests are sent. Returns how often.
    async fn other_bootstraps(&self) -> Result<usize> {
        let mut count = 0;
        while count == 0 || self.sent().await? < self.requests / 2 {
            // Until then an epoch waits.
            let is_alone = |proxy: &Proxy| proxy.status["draining"] == json!([]);
            self.until("an Envoy drains", None, is_alone).await?;
            let before = self.proxies().await?;

            let seconds = 6 + u32::try_from(count % 2)?;
            self.mesh.apply(&[bootstrap(seconds)])?;
            let is_next = |proxy: &Proxy| {
                let old = before.iter().find(|old| old.pod == proxy.pod);
                let epoch = |status: &Value| status["epoch"].as_u64().unwrap_or(0);
                old.is_some_and(|old| epoch(&proxy.status) > epoch(&old.status))
            };
            self.until("no next epoch", None, is_next).await?;
            count += 1;
        }
        Ok(count)
    }

    /// Kills the Envoy of the server's pod. Returns how long it was away, as its agent says.
    async fn kill(&self) -> Result<Duration> {
        let proxies = self.proxies().await?;
        let server = proxies.iter().find(|proxy| proxy.pod != CLIENT);
        let server = &server.context("no server")?.pod;
        let begun = Instant::now();
        for pid in envoys_of(server)? {
            let status = Command::new("kill").args(["-KILL", &pid]).status()?;
            ensure!(status.success(), "{pid} is not killed");
        }
        let is_back = |proxy: &Proxy| {
            proxy.status["restarts"].as_u64() > Some(0) && proxy.status["version"] != ""
        };
        self.until("Envoy is not started again", Some(server), is_back)
            .await?;
        Ok(begun.elapsed())
    }

    /// The requests since the end of the last part.
    async fn sent(&self) -> Result<u64> {
        Ok(counted(self.counts).await?.since(&self.before).asked)
    }

    /// The counts of a part, after all of its requests have ended.
    #[expect(clippy::print_stderr, reason = "a test prints its figures")]
    async fn end_of(&mut self, what: &str) -> Result<Tally> {
        sleep(GIVEN_UP).await;
        let now = counted(self.counts).await?;
        let since = now.since(&self.before);
        let Tally { asked, failed, .. } = since;
        eprintln!("  {what}: {failed} of {asked} requests lost");
        self.before = now;
        Ok(since)
    }
}

/// The processes of a pod's Envoys, by the variables that they have from its agent.
fn envoys_of(pod: &str) -> Result<Vec<String>> {
    let variable = format!("POD_NAME={pod}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // Others than processes, and processes that have ended meanwhile.
        let Ok(name) = fs::read_to_string(path.join("comm")) else {
            continue;
        };
        let Ok(variables) = fs::read(path.join("environ")) else {
            continue;
        };
        let mut variables = variables.split(|byte| *byte == 0);
        if name.starts_with("envoy") && variables.any(|each| each == variable.as_bytes()) {
            let pid = path.file_name().and_then(|name| name.to_str());
            found.push(pid.context("a number")?.to_owned());
        }
    }
    ensure!(!found.is_empty(), "{pod} has no Envoy");
    Ok(found)
}

/// Replaces Envoys in all three ways, and counts lost requests: none but those of the kill.
#[expect(clippy::print_stderr, reason = "a test prints its figures")]
pub(crate) async fn replacements_lose_no_request() -> Result<()> {
    let Ok(former) = fs::canonicalize(envoy::former_program()) else {
        skip::skip("the former Envoy is missing: run `make tools`");
        return Ok(());
    };
    let mut stages = Stages::default();
    let folder = tempfile::tempdir()?;
    let mut images = mesh::images(root(), &program("navarch"), folder.path())?;
    let proxy = folder.path().join("navarch-proxy.tar");
    images.push(image_with_both(&proxy, &former, folder.path())?);
    let images: Vec<&Path> = images.iter().map(AsRef::as_ref).collect();
    let mesh = Mesh::on(root(), Node::start(root(), &images)?)?;
    drop(folder);
    mesh.install("navarch", &[])?;
    stages.over("node");

    let mut pods = Pods::start(mesh).await?;
    pods.end_of("before anything changes")
        .await?
        .none_lost("before anything changes", 1)?;
    stages.over("pods");

    let count = pods.other_versions().await?;
    let what = format!("another version, {count} times");
    let tally = pods.end_of(&what).await?;
    stages.over(&what);
    tally.none_lost(&what, pods.requests / 2)?;

    let count = pods.other_bootstraps().await?;
    let what = format!("another bootstrap, {count} times");
    let tally = pods.end_of(&what).await?;
    stages.over(&what);
    tally.none_lost(&what, pods.requests / 2)?;

    let took = pods.kill().await?;
    let tally = pods.end_of("Envoy of the server killed").await?;
    eprintln!("  its agent says after {took:?} that it runs again");
    ensure!(tally.failed < tally.asked / 2, "{tally:?}");

    // What is sent after it is answered again.
    let tally = pods.end_of("after the kill").await?;
    stages.over("kill");
    tally.none_lost("after the kill", u64::from(RATE))
}

//! Envoy replaced under traffic (`NAVARCH_PROXY_UPGRADE`): by another version, for a changed
//! bootstrap and after a crash. How many requests a crash costs is printed with `-- --nocapture`.
//!
//! Needs the former Envoy from `make tools`, too.

mod fleet;
mod kubelet;
mod registry;
mod traffic;
mod versions;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_base::digest::sha256_hex;
use navarch_testkit::backend::Backend;
use navarch_testkit::{envoy, ports};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::pod::Pod;
use crate::server::Server;
use registry::{Files, add_artefact, add_signature, registry};
use traffic::{LongStream, Traffic, echo, request};
use versions::{TwoVersions, hot_restart_version, version};

const ANNOTATIONS: &str = "etc/istio/pod/annotations";
/// Longer than any state of an attempt lasts on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Until a killed Envoy serves again: it is started at once, and reads its configuration.
const RECOVERY_LIMIT: Duration = Duration::from_secs(10);

/// A pod whose application calls two services, and the services.
struct World {
    pod: Pod,
    http: SocketAddr,
    tcp: SocketAddr,
    _server: Server,
    _backend: Backend,
    _echo: JoinSet<()>,
}

/// The outbound listeners of the pod, and the services behind them.
fn mesh(http: SocketAddr, tcp: SocketAddr, backend: SocketAddr, echo: SocketAddr) -> String {
    let service = |name: &str, port: u16, protocol: &str, target: u16| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec: {{hosts: [{name}.example], location: MESH_EXTERNAL, resolution: STATIC, \
             ports: [{{number: {port}, name: main, protocol: {protocol}}}], \
             endpoints: [{{address: 127.0.0.1, ports: {{main: {target}}}}}]}}\n---\n"
        )
    };
    let listener = |port: u16, protocol: &str| {
        format!(
            "  - port: {{number: {port}, protocol: {protocol}, name: {}}}\n    bind: 127.0.0.1\n    \
             captureMode: NONE\n    hosts: ['shop/*']\n",
            protocol.to_lowercase()
        )
    };

    [
        service("bank", http.port(), "HTTP", backend.port()),
        service("bytes", tcp.port(), "TCP", echo.port()),
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: web, namespace: shop}\n\
         spec:\n  workloadSelector: {labels: {app: web}}\n  egress:\n"
            .to_owned(),
        listener(http.port(), "HTTP"),
        listener(tcp.port(), "TCP"),
    ]
    .concat()
}

impl World {
    /// Starts everything, with further variables of the agent.
    async fn start(variables: &[(&str, &str)]) -> Result<Self> {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let http = loopback(ports::free()?);
        let tcp = loopback(ports::free()?);
        let backend = Backend::start("bank", loopback(0)).await?;
        let (echo_address, echo) = echo().await?;
        let server = Server::with_mesh(&mesh(http, tcp, backend.address, echo_address)).await?;

        let enabled = [
            ("NAVARCH_PROXY_UPGRADE", "true"),
            ("NAVARCH_PROXY_UPGRADE_JUDGING", "2s"),
        ];
        let variables = [&enabled, variables].concat();
        // An Envoy ends 15 s after it has drained.
        let settings = json!({"drainDuration": "3s"});
        let labels = [("app", "web")];
        let mut pod = Pod::start_with_config(&server, "sidecar", &labels, &variables, &settings)?;
        pod.wait_ready().await?;

        let world = Self {
            pod,
            http,
            tcp,
            _server: server,
            _backend: backend,
            _echo: echo,
        };
        let end = Instant::now() + TIMEOUT;
        while let Err(error) = request(world.http).await {
            ensure!(Instant::now() < end, "{error:#}\n{}", world.pod.log());
            sleep(Duration::from_millis(50)).await;
        }
        Ok(world)
    }

    /// Sets the annotation, as the kubelet writes it.
    fn ask_for(&self, program: &str) -> Result<()> {
        let line = format!("navarch.io/proxy-binary={program:?}\n");
        self.pod.replace(ANNOTATIONS, &line)
    }

    async fn status(&self) -> Result<Value> {
        let (code, text) = self.pod.get(self.pod.status, "/navarch/proxy").await?;
        ensure!(code == 200, "{code}: {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// Waits until the status meets a condition.
    async fn until(&self, what: &str, is_met: impl Fn(&Value) -> bool) -> Result<Value> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let status = self.status().await?;
            if is_met(&status) {
                return Ok(status);
            }
            ensure!(Instant::now() < end, "{what}: {status}\n{}", self.pod.log());
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until an attempt for an annotation is over, in this state.
    async fn until_over(&self, wanted: &str, state: &str) -> Result<Value> {
        let is_over = |status: &Value| {
            let state = status["state"].as_str().unwrap_or_default();
            status["wanted"] == wanted && ["done", "refused", "failed"].contains(&state)
        };
        let status = self.until("the attempt is not over", is_over).await?;
        ensure!(
            status["state"] == state,
            "not {state}: {status}\n{}",
            self.pod.log()
        );
        Ok(status)
    }
}

/// The folder of all tools, in which both versions are.
fn tools() -> Result<String> {
    let program = fs::canonicalize(envoy::program())?;
    let folder = program.ancestors().nth(4).context("no folder of tools")?;
    Ok(folder.display().to_string())
}

/// Adds a program to a folder of the pod; returns its path.
fn add_script(pod: &Pod, name: &str, serve: &str) -> Result<String> {
    let hot_restart = hot_restart_version()?;
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in\n--hot-restart-version) echo {hot_restart};;\n\
         --version) echo 'script  version: c/0.0.1/Clean/RELEASE/BoringSSL';;\n\
         *validate*) exit 0;;\n*) {serve};;\nesac\n"
    );
    let path = pod.path("programs").join(name);
    fs::create_dir_all(pod.path("programs"))?;
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(fs::canonicalize(path)?.display().to_string())
}

/// Scripts of the pod may be run as Envoy.
const SCRIPTS: (&str, &str) = ("NAVARCH_PROXY_UPGRADE_PATHS", "programs");

#[tokio::test]
async fn another_version_takes_over_and_back_while_long_streams_stay() -> Result<()> {
    let Some(versions) = TwoVersions::find()? else {
        return Ok(());
    };
    let former = &versions.former_program;
    let world = World::start(&[("NAVARCH_PROXY_UPGRADE_PATHS", &tools()?)]).await?;
    let traffic = Traffic::start(world.http);
    let mut stream = LongStream::open(world.tcp).await?;

    world.ask_for(former)?;
    let status = world.until_over(former, "done").await?;
    ensure!(status["version"] == versions.former, "{status}");
    ensure!(status["epoch"] == 1, "{status}");
    ensure!(
        status["draining"] == json!([0]),
        "the old one drains: {status}"
    );
    stream.exchange().await.context("the stream has ended")?;
    let mut second = LongStream::open(world.tcp).await?;

    // Without the annotation the program of the image runs again, once no Envoy drains.
    world.pod.replace(ANNOTATIONS, "other=\"x\"\n")?;
    let status = world.until_over("", "done").await?;
    ensure!(status["version"] == versions.current, "{status}");
    ensure!(status["epoch"] == 2, "{status}");
    ensure!(
        stream.exchange().await.is_err(),
        "the drain time of the first Envoy is over"
    );
    second
        .exchange()
        .await
        .context("the second stream has ended")?;

    traffic.stop_without_loss(&world.pod).await?;
    let metrics = world
        .pod
        .get(world.pod.status, "/stats/prometheus")
        .await?
        .1;
    let counted = "istio_agent_proxy_upgrades_total{result=\"done\"} 2";
    ensure!(metrics.contains(counted), "{counted} is missing");
    Ok(())
}

#[tokio::test]
async fn a_changed_bootstrap_costs_no_request() -> Result<()> {
    let world = World::start(&[("ISTIO_BOOTSTRAP_OVERRIDE", "override.yaml")]).await?;
    let traffic = Traffic::start(world.http);
    let mut stream = LongStream::open(world.tcp).await?;

    world
        .pod
        .replace("override.yaml", "stats_flush_interval: 7s\n")?;
    world
        .until("no next epoch", |status| status["epoch"] == 1)
        .await?;
    world.pod.until_live(1).await?;
    stream.exchange().await.context("the stream has ended")?;

    traffic.stop_without_loss(&world.pod).await?;
    let dump = world.pod.get(world.pod.admin, "/config_dump").await?.1;
    ensure!(dump.contains("\"stats_flush_interval\": \"7s\""), "{dump}");
    Ok(())
}

#[tokio::test]
async fn a_killed_envoy_comes_back_in_the_same_pod() -> Result<()> {
    let mut world = World::start(&[]).await?;
    let traffic = Traffic::start(world.http);

    world.pod.signal_envoy("KILL")?;
    let start = Instant::now();
    world
        .until("it is not started again", |status| status["restarts"] == 1)
        .await?;
    let end = Instant::now() + TIMEOUT;
    while let Err(error) = request(world.http).await {
        ensure!(Instant::now() < end, "{error:#}\n{}", world.pod.log());
        sleep(Duration::from_millis(50)).await;
    }
    let took = start.elapsed();

    let counts = traffic.stop().await?;
    let lost = counts.failed.len();
    println!("{lost} of {} requests lost in {took:?}", counts.sent);
    ensure!(took < RECOVERY_LIMIT, "{took:?}\n{}", world.pod.log());

    let traffic = Traffic::start(world.http);
    sleep(Duration::from_secs(2)).await;
    traffic.stop_without_loss(&world.pod).await?;

    let code = world.pod.stop().await?;
    ensure!(code == 0, "the agent has not ended with Envoy: {code}");
    ensure!(world.pod.processes() == 0, "no process is left");
    Ok(())
}

#[tokio::test]
async fn a_program_that_does_not_become_live_leaves_the_old_one_serving() -> Result<()> {
    let start_timeout = ("NAVARCH_PROXY_UPGRADE_START_TIMEOUT", "4s");
    let world = World::start(&[SCRIPTS, start_timeout]).await?;
    let traffic = Traffic::start(world.http);
    let mut stream = LongStream::open(world.tcp).await?;

    let hangs = add_script(&world.pod, "hangs", "exec sleep 600")?;
    world.ask_for(&hangs)?;
    let status = world.until_over(&hangs, "failed").await?;
    let reason = status["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains("was not LIVE within 4s"), "{status}");
    ensure!(status["epoch"] == 0, "the old one goes on: {status}");

    let exits = add_script(&world.pod, "exits", "exit 3")?;
    world.ask_for(&exits)?;
    let status = world.until_over(&exits, "failed").await?;
    let reason = status["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains("exited: exit status: 3"), "{status}");
    ensure!(status["epoch"] == 0, "the old one goes on: {status}");
    stream.exchange().await.context("the stream has ended")?;

    traffic.stop_without_loss(&world.pod).await
}

#[tokio::test]
async fn an_envoy_that_hangs_after_it_took_the_admin_port_is_replaced() -> Result<()> {
    let start_timeout = ("NAVARCH_PROXY_UPGRADE_START_TIMEOUT", "4s");
    let world = World::start(&[SCRIPTS, start_timeout]).await?;
    let traffic = Traffic::start(world.http);

    // An Envoy that waits for a control plane for ever.
    let ads = json!({"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"});
    let nowhere = json!({"socket_address": {"address": "127.0.0.1", "port_value": 9}});
    let config = json!({
        "node": {"id": "a", "cluster": "b"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": world.pod.admin}}},
        "dynamic_resources": {
            "ads_config": {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "x"}}]},
            "lds_config": ads, "cds_config": ads,
        },
        "static_resources": {"clusters": [{
            "name": "x", "type": "STATIC", "connect_timeout": "1s", "http2_protocol_options": {},
            "load_assignment": {"cluster_name": "x", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": nowhere}}]}]},
        }]},
    });
    let path = world.pod.path("hangs.json");
    fs::write(&path, config.to_string())?;
    let serve = format!(
        "shift 2; exec {} -c {} \"$@\"",
        envoy::program().display(),
        path.display()
    );
    let program = add_script(&world.pod, "hangs", &serve)?;

    world.ask_for(&program)?;
    let status = world.until_over(&program, "failed").await?;
    let reason = status["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains("PRE_INITIALIZING"), "{status}");

    let own_version = version(&envoy::program())?;
    // Envoy's shared memory says that the killed one still starts; the agent knows better.
    world
        .until("no other epoch of the former program", |status| {
            status["epoch"] == 1 && status["version"] == own_version
        })
        .await?;
    world.pod.until_live(1).await?;
    traffic.stop_without_loss(&world.pod).await
}

#[tokio::test]
async fn an_envoy_that_fails_while_it_is_judged_hands_back_to_the_former_program() -> Result<()> {
    let Some(versions) = TwoVersions::find()? else {
        return Ok(());
    };
    let former = &versions.former_program;
    let world = World::start(&[
        ("NAVARCH_PROXY_UPGRADE_PATHS", &tools()?),
        ("NAVARCH_PROXY_UPGRADE_JUDGING", "60s"),
    ])
    .await?;
    let traffic = Traffic::start(world.http);

    world.ask_for(former)?;
    world
        .until("it is not judged", |status| status["state"] == "judging")
        .await?;
    world.pod.until_live(1).await?;
    // Envoy then says that it drains, and goes on to serve.
    world.pod.post(world.pod.admin, "/healthcheck/fail").await?;

    let status = world.until_over(former, "failed").await?;
    let reason = status["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains("it is DRAINING"), "{status}");
    world.pod.until_live(2).await?;
    world
        .until("the former program does not run", |status| {
            status["epoch"] == 2 && status["version"] == versions.current
        })
        .await?;
    traffic.stop_without_loss(&world.pod).await
}

#[tokio::test]
async fn programs_that_are_not_admitted_are_refused_with_the_reason() -> Result<()> {
    let world = World::start(&[SCRIPTS]).await?;
    let digest = "a".repeat(64);
    let artefact = format!("oci://127.0.0.1:1/me/envoy@sha256:{digest}");
    let other = add_script(&world.pod, "other", "exit 0")?;
    let own = hot_restart_version()?;
    let next = format!("{own}0");
    let echo_next = format!("echo {next};;");
    let text = fs::read_to_string(&other)?.replace(&format!("echo {own};;"), &echo_next);
    fs::write(&other, text)?;

    for (wanted, reason) in [
        ("/bin/true", "is not in programs"),
        ("oci://ghcr.io/me/envoy:1.39", "has no digest"),
        (&artefact, "NAVARCH_PROXY_UPGRADE_KEY"),
        (&other, &format!("from version {own} to {next}")),
    ] {
        world.ask_for(wanted)?;
        let status = world.until_over(wanted, "refused").await?;
        let found = status["reason"].as_str().unwrap_or_default();
        ensure!(found.contains(reason), "{reason}: {status}");
        ensure!(status["epoch"] == 0, "{status}");
    }
    Ok(())
}

#[tokio::test]
async fn without_the_setting_the_annotation_has_no_effect_and_the_log_says_so() -> Result<()> {
    let world = World::start(&[("NAVARCH_PROXY_UPGRADE", "false")]).await?;
    // The annotation is looked at when the agent starts, and each 15 s.
    world.ask_for("/bin/true")?;
    let end = Instant::now() + TIMEOUT;
    while !world.pod.log().contains("set NAVARCH_PROXY_UPGRADE=true") {
        ensure!(Instant::now() < end, "no warning:\n{}", world.pod.log());
        sleep(Duration::from_millis(500)).await;
    }
    let status = world.status().await?;
    ensure!(
        status["enabled"] == false && status["state"] == "idle",
        "{status}"
    );
    Ok(())
}

#[tokio::test]
async fn a_signed_artefact_takes_over_and_others_are_refused() -> Result<()> {
    let Some(versions) = TwoVersions::find()? else {
        return Ok(());
    };
    let former = &versions.former_program;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut files = Files::new();
    let unsigned = add_artefact(&mut files, b"\x7fELF unsigned".to_vec());
    let by_other = add_artefact(&mut files, b"\x7fELF of another key".to_vec());
    let other_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    add_signature(&mut files, &other_key, &by_other)?;

    let changed = add_artefact(&mut files, b"\x7fELF before the change".to_vec());
    add_signature(&mut files, &key, &changed)?;
    let layer = format!("blobs/sha256:{}", sha256_hex(b"\x7fELF before the change"));
    files.insert(layer, b"\x7fELF after the change!".to_vec());

    let program = fs::read(former)?;
    let good = add_artefact(&mut files, program);
    add_signature(&mut files, &key, &good)?;
    let (address, _registry) = registry(files).await?;

    let world = World::start(&[
        ("NAVARCH_PROXY_UPGRADE_KEY", &key.public_key_pem()),
        ("NAVARCH_PROXY_UPGRADE_STORE", "store"),
    ])
    .await?;
    let traffic = Traffic::start(world.http);
    let name = |digest: &str| format!("oci://{address}/me/envoy@sha256:{digest}");
    for (digest, reason) in [
        (&unsigned, "has no signature"),
        (&by_other, "not of a key of the operator"),
        (&changed, "a layer does not match its digest"),
    ] {
        let wanted = name(digest);
        world.ask_for(&wanted)?;
        let status = world.until_over(&wanted, "refused").await?;
        let found = status["reason"].as_str().unwrap_or_default();
        ensure!(found.contains(reason), "{reason}: {status}");
        ensure!(!is_stored(&world.pod, digest), "nothing of it is kept");
    }

    let wanted = name(&good);
    world.ask_for(&wanted)?;
    let status = world.until_over(&wanted, "done").await?;
    ensure!(status["version"] == versions.former, "{status}");
    ensure!(is_stored(&world.pod, &good), "it runs from the store");
    traffic.stop_without_loss(&world.pod).await
}

fn is_stored(pod: &Pod, digest: &str) -> bool {
    pod.path("store").join(digest).exists()
}

//! A paused or slow API server, a replica killed during a root rotation, and a stepped clock: no
//! change is lost, and no wrong certificate is issued.

use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use navarch_proto::istio::v1::auth::IstioCertificateRequest;
use navarch_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use navarch_testkit::cluster::{Cluster, Writer};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::wire::{LinkState, Wire};
use navarch_testkit::{envoy, skip};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::client::{self, Proof};
use super::edge::{self, Edge};
use super::{cluster, program};

/// The validity of certificates.
const VALIDITY: Duration = Duration::from_hours(2);

/// A silent replica counts as alive for a minute; this is longer.
const TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_or_slow_api_server_loses_no_change() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    edge.answer("a", 201).await?;
    let wire = Wire::start(cluster.address).await?;
    let kubeconfig = cluster.admin_kubeconfig_through(wire.address)?;
    let navarch = Navarch::start_on_kubernetes(
        program(),
        &kubeconfig,
        &["--kubernetes-idle-timeout=2s"],
        &[],
    )
    .await?;
    let gateway = edge::start_gateway(navarch.xds).await?;
    edge::expect("a", 201).await;

    // Longer than the timeout of silent connections: watches are considered broken, and new ones
    // get no response.
    cluster.freeze_api_server(true)?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        ensure!(
            navarch.is_ready().await,
            "a paused API server does not make it unready"
        );
        ensure!(
            edge::ask("a").await == 201,
            "the last configuration is still served"
        );
        sleep(Duration::from_millis(100)).await;
    }

    cluster.freeze_api_server(false)?;
    let thawed = Instant::now();
    edge.answer("a", 202).await?;
    edge::expect("a", 202).await;
    println!(
        "chaos: API server paused for 5 s: up to date {:?} after it continues",
        thawed.elapsed()
    );

    wire.set(LinkState::Slow);
    let slowed = Instant::now();
    for status in 203..=206 {
        edge.answer("a", status).await?;
    }

    edge.writer.put(&edge::answer("gone", 299)).await?;
    edge.writer.delete(&edge::answer("gone", 299)).await?;
    edge::expect("a", 206).await;
    println!(
        "chaos: API server slow: up to date after {:?}",
        slowed.elapsed()
    );

    // A replica that starts now must read all objects at that speed.
    let late = Navarch::start_on_kubernetes(program(), &kubeconfig, &[], &[]).await?;
    println!(
        "chaos: API server slow: another is ready after {:?}",
        slowed.elapsed()
    );
    ensure!(late.stop().await?, "navarch exits on SIGTERM");
    edge::expect("gone", 404).await;

    gateway.ensure_no_update_rejected().await?;
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

/// A replica with its TLS port.
struct Replica {
    navarch: Navarch,
}

impl Replica {
    async fn start(cluster: &Cluster, name: &str) -> Result<Self> {
        Self::start_with(cluster, name, &[]).await
    }

    async fn start_with(cluster: &Cluster, name: &str, further: &[(&str, &str)]) -> Result<Self> {
        let own = [
            ("POD_NAME", name),
            ("POD_NAMESPACE", "istio-system"),
            ("NAVARCH_ROOT_OVERLAP", "1s"),
        ];
        let environment = [&own[..], further].concat();
        let flags = ["--secure-grpc-addr=127.0.0.1:0"];
        let navarch = Navarch::start_on_kubernetes(
            program(),
            &cluster.admin_kubeconfig(),
            &flags,
            &environment,
        )
        .await?;
        Ok(Self { navarch })
    }

    /// Runs `navarch ca`.
    fn ca(&self, words: &[&str]) -> Result<(bool, String)> {
        let mut command = Command::new(program());
        let output = command
            .arg("ca")
            .args(words)
            .args(["--address", &self.navarch.http.to_string()])
            .output()?;
        Ok((
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        ))
    }

    /// Requests a certificate as a workload that trusts only `roots`, and returns the chain.
    async fn certificate(&self, roots: &str, token: &str, csr: &str) -> Result<Vec<String>> {
        let proof = Proof::Token(token.to_owned());
        let channel = client::channel(self.navarch.secure(), roots, &proof);
        let csr = csr.to_owned();
        let request = IstioCertificateRequest {
            csr,
            validity_duration: i64::try_from(VALIDITY.as_secs())?,
            ..Default::default()
        };
        let mut service = IstioCertificateServiceClient::new(channel);
        let answer = service.create_certificate(client::signed(request, &proof));
        Ok(tokio::time::timeout(Duration::from_secs(10), answer)
            .await??
            .into_inner()
            .cert_chain)
    }
}

/// Whether a client with these roots accepts the leaf of a chain of a self-signed CA.
fn is_trusted(chain: &[String], roots: &str) -> Result<bool> {
    is_trusted_at(SystemTime::now(), chain, roots)
}

/// Whether a client with these roots accepts the leaf of a chain of a self-signed CA at this time.
fn is_trusted_at(time: SystemTime, chain: &[String], roots: &str) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let [file, leaf] = ["roots.pem", "leaf.pem"].map(|name| folder.path().join(name));
    std::fs::write(&file, roots)?;
    std::fs::write(&leaf, chain.first().context("a leaf")?)?;
    let seconds = time
        .duration_since(SystemTime::UNIX_EPOCH)?
        .as_secs()
        .to_string();
    let mut verify = Command::new("openssl");
    verify
        .args(["verify", "-attime", &seconds])
        .arg("-CAfile")
        .arg(file)
        .arg(leaf);
    Ok(verify.output()?.status.success())
}

/// The roots in the ConfigMap of pods.
async fn published(writer: &Writer) -> Result<String> {
    let map = writer
        .get("/api/v1/namespaces/istio-system/configmaps/istio-ca-root-cert")
        .await?;
    Ok(map["data"]["root-cert.pem"]
        .as_str()
        .context("roots")?
        .to_owned())
}

/// A token of a workload, valid for this number of seconds.
async fn token(cluster: &Cluster, seconds: u32) -> Result<String> {
    let path = "/api/v1/namespaces/edge/serviceaccounts/rotating";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "rotating", "namespace": "edge"}});
    cluster.apply(&account.to_string())?;
    let ask = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": ["istio-ca"], "expirationSeconds": seconds},
    });
    let answer = cluster
        .call("POST", &format!("{path}/token"), "application/json", &ask)
        .await?;
    Ok(answer["status"]["token"]
        .as_str()
        .context("a token")?
        .to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_replicas_is_killed_while_a_root_rotates() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    let token = token(cluster, 3600).await?;
    let csr = CertificateParams::default()
        .serialize_request(&KeyPair::generate()?)?
        .pem()?;
    let first = Replica::start(cluster, "first").await?;

    let second = Replica::start(cluster, "second").await?;
    edge::eventually("roots are published", async || {
        published(&edge.writer).await.is_ok()
    })
    .await;
    let before = published(&edge.writer).await?;

    for replica in [&first, &second] {
        let chain = replica.certificate(&before, &token, &csr).await?;
        ensure!(
            is_trusted(&chain, &before)?,
            "the chain is signed by the root"
        );
    }

    let (good, text) = first.ca(&["rotate"])?;
    ensure!(good, "{text}");
    first.navarch.kill()?;
    let killed = Instant::now();
    let mut certificates = 0;
    let status = loop {
        // Every new certificate must be accepted by clients with the roots that pods have now.
        let roots = published(&edge.writer).await?;
        let chain = second
            .certificate(&roots, &token, &csr)
            .await
            .context("certificates are still issued")?;
        let roots = roots + &published(&edge.writer).await?;
        ensure!(
            is_trusted(&chain, &roots)?,
            "signed by a root that no pod has: {chain:?}"
        );
        certificates += 1;
        let (good, text) = second.ca(&["status", "--json"])?;
        ensure!(good, "{text}");
        let status: Value = serde_json::from_str(&text)?;
        // Before the replica has read the state it reports no rotation, although both roots may be
        // published.
        if status["phase"] == "retiring"
            || (status["phase"] == "settled" && !roots.contains(before.trim()))
        {
            break status;
        }
        ensure!(
            killed.elapsed() < TIMEOUT,
            "the rotation does not advance: {text}\n{}",
            second.navarch.output()
        );
        sleep(Duration::from_millis(500)).await;
    };

    println!(
        "chaos: replica killed while a root rotates: the other signs by the new root after {:?}, {certificates} certificates meanwhile",
        killed.elapsed()
    );
    let after = published(&edge.writer).await?;
    ensure!(after != before, "{status}");
    let chain = second.certificate(&after, &token, &csr).await?;
    ensure!(
        is_trusted(&chain, &after)? && !is_trusted(&chain, &before)?,
        "the new root signs"
    );

    // A restarted replica uses the same root.
    let back = Replica::start(cluster, "first").await?;
    let again = back.certificate(&after, &token, &csr).await?;
    ensure!(
        is_trusted(&again, &after)? && !is_trusted(&again, &before)?,
        "it signs by the same root"
    );
    for replica in [second, back] {
        ensure!(replica.navarch.stop().await?, "navarch exits on SIGTERM");
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[allow(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn the_clock_is_stepped_by_an_hour() -> Result<()> {
    const HOUR: Duration = Duration::from_hours(1);
    let library = envoy::program().with_file_name("libfaketime.so.1");
    if !library.is_file() {
        skip::skip("no libfaketime: run `make tools` (scripts/faketime)");
        return Ok(());
    }

    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    edge.answer("a", 201).await?;
    let long = token(cluster, 4 * 3600).await?;
    let short = token(cluster, 1800).await?;
    let csr = CertificateParams::default()
        .serialize_request(&KeyPair::generate()?)?
        .pem()?;

    let folder = tempfile::tempdir()?;
    let clock = folder.path().join("clock");
    let step = |seconds: i64| std::fs::write(&clock, format!("{seconds:+}"));
    step(0)?;
    let faked = [
        ("LD_PRELOAD", library.to_str().context("a path")?),
        ("FAKETIME_TIMESTAMP_FILE", clock.to_str().context("a path")?),
        ("FAKETIME_CACHE_DURATION", "1"),
        // Only the wall clock is stepped, as by an operator or a wrong time server.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
    ];

    let replica = Replica::start_with(cluster, "stepped", &faked).await?;
    let gateway = edge::start_gateway(replica.navarch.xds).await?;
    edge::expect("a", 201).await;
    edge::eventually("roots are published", async || {
        published(&edge.writer).await.is_ok()
    })
    .await;
    let roots = published(&edge.writer).await?;

    let path = "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases";
    let held = async || -> Result<Vec<(String, String)>> {
        let leases = edge.writer.get(path).await?;
        let own = leases["items"].as_array().context("leases")?.iter();
        let own = own.filter(|lease| lease["spec"]["holderIdentity"] == "stepped");
        Ok(own
            .map(|lease| {
                (
                    lease["metadata"]["name"].to_string(),
                    lease["spec"]["renewTime"].to_string(),
                )
            })
            .collect())
    };

    edge::eventually("it leads", async || {
        held().await.is_ok_and(|held| !held.is_empty())
    })
    .await;
    let before = held().await?;

    for (status, seconds) in [(202, 3600), (203, -3600), (204, 0)] {
        let stepped = Instant::now();
        step(seconds)?;
        let its_time = || match u64::try_from(seconds) {
            Ok(ahead) => SystemTime::now() + Duration::from_secs(ahead),
            Err(_) => SystemTime::now() - HOUR,
        };

        // Certificates change only when the server reads the clock again.
        edge::eventually("certificates use the stepped clock", async || {
            let Ok(chain) = replica.certificate(&roots, &long, &csr).await else {
                return false;
            };
            let ends = its_time() + VALIDITY;
            let is_good = |time| is_trusted_at(time, &chain, &roots).unwrap_or_default();
            is_good(ends - Duration::from_mins(1)) && !is_good(ends + Duration::from_mins(1))
        })
        .await;
        let is_good = replica.certificate(&roots, &short, &csr).await.is_ok();
        ensure!(
            is_good == (seconds <= 0),
            "a token of half an hour is accepted according to the server's clock: {is_good}"
        );
        edge.answer("a", status).await?;
        edge::expect("a", status).await;

        ensure!(replica.navarch.is_ready().await, "ready");
        let led = held().await?;
        let names = |held: &[(String, String)]| {
            held.iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        ensure!(
            names(&led) == names(&before),
            "it keeps its leases: {led:?}"
        );

        let renewed = async || {
            held().await.is_ok_and(|now| {
                names(&now) == names(&led) && now.iter().zip(&led).all(|(a, b)| a.1 != b.1)
            })
        };
        edge::eventually("its leases are renewed", renewed).await;
        ensure!(published(&edge.writer).await? == roots, "the root stays");
        println!(
            "chaos: clock stepped to {seconds:+} s: all up to date after {:?}",
            stepped.elapsed()
        );
    }

    gateway.ensure_no_update_rejected().await?;
    ensure!(
        !replica.navarch.output().contains("panicked"),
        "{}",
        replica.navarch.output()
    );
    ensure!(replica.navarch.stop().await?, "navarch exits on SIGTERM");

    Ok(())
}

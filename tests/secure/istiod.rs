//! A real istiod on either side of configuration over xDS, if `scripts/istiod` has built it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use navarch_testkit::cluster::Cluster;
use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::ports;
use navarch_testkit::process::Process;
use navarch_testkit::skip::skip_test;
use navarch_testkit::wait::until;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Proof;
use crate::compliance::{self, Accepted};
use crate::config_source::{hosts, service};
use crate::server::{MESH, Server, node, subscribe};

const NAVARCH: &str = env!("CARGO_BIN_EXE_navarch");
const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Lets unauthenticated clients read configuration.
const OPEN: (&str, &str) = ("ENABLE_XDS_API_GENERATOR_AUTH", "false");

/// The path of istiod, if it is built.
fn program() -> Option<PathBuf> {
    Some(navarch_testkit::istio::istiod()?.join("pilot-discovery"))
}

/// A free loopback address for istiod, whose port must be chosen beforehand.
fn free() -> Result<SocketAddr> {
    Ok(SocketAddr::from(([127, 0, 0, 1], ports::free()?)))
}

/// A running istiod. It does not start without a Kubernetes API, although that has no objects here.
struct Istiod {
    process: Process,
    plain: SocketAddr,
    secure: SocketAddr,
    http: SocketAddr,
    https: SocketAddr,
}

impl Istiod {
    /// Starts with its only configuration source, its CA in `folder`, and environment variables.
    async fn start(
        program: &Path,
        cluster: &Cluster,
        folder: &Path,
        source: &Value,
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let mesh = folder.join("mesh.yaml");
        std::fs::write(&mesh, json!({ "configSources": [source] }).to_string())?;
        let plain = free()?;
        let secure = free()?;
        let http = free()?;
        let https = free()?;
        let variable = |(name, value): (&str, &str)| format!("{name}={value}");
        let mut args: Vec<String> = variables.iter().copied().map(variable).collect();
        args.extend([
            variable(("ROOT_CA_DIR", &folder.join("ca").display().to_string())),
            variable(("POD_NAMESPACE", "istio-system")),
            variable(("POD_NAME", "istiod-1")),
            variable(("PILOT_CERT_PROVIDER", "istiod")),
            program.display().to_string(),
        ]);

        args.extend(["discovery", "--domain=cluster.local"].map(str::to_owned));
        args.extend([
            format!("--httpsAddr={https}"),
            format!("--kubeconfig={}", cluster.admin_kubeconfig().display()),
            format!("--meshConfig={}", mesh.display()),
            format!("--grpcAddr={plain}"),
            format!("--secureGRPCAddr={secure}"),
            format!("--httpAddr={http}"),
            format!("--monitoringAddr={}", free()?),
            format!("--ctrlz_port={}", free()?.port()),
        ]);

        let process = Process::start(
            "istiod",
            Path::new("/usr/bin/env"),
            &args,
            &folder.join("istiod.log"),
        )?;

        let istiod = Self {
            process,
            plain,
            secure,
            http,
            https,
        };

        until("istiod is ready", || async {
            let ready = navarch_testkit::client::get(http, "localhost", "/ready", &[]).await;
            ready.is_ok_and(|reply| reply.status == 200)
        })
        .await;

        Ok(istiod)
    }

    /// Waits until it has these ServiceEntries.
    async fn has(&mut self, expected: &[&str]) -> Result<()> {
        self.process.check_running()?;
        let http = self.http;
        until(&format!("istiod has {expected:?}"), || async move {
            hosts(http).await.is_ok_and(|hosts| hosts == expected)
        })
        .await;
        Ok(())
    }
}

/// Creates a CA in the directory `ca`, in the form of both istiod and Navarch, and the certificate
/// of a control plane; returns the paths of its chain and key.
fn make_ca(folder: &Path) -> Result<[String; 2]> {
    let ca = folder.join("ca");
    std::fs::create_dir(&ca)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let root = params.self_signed(&key)?.pem();
    for name in ["ca-cert.pem", "root-cert.pem", "cert-chain.pem"] {
        std::fs::write(ca.join(name), &root)?;
    }

    std::fs::write(ca.join("ca-key.pem"), key.serialize_pem())?;
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.subject_alt_names = vec![SanType::URI(
        "spiffe://cluster.local/ns/istio-system/sa/istiod".try_into()?,
    )];

    // istiod rejects certificates that are for clients only.
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::ServerAuth,
    ];
    let files = [
        ("chain.pem", params.signed_by(&own, &issuer)?.pem()),
        ("key.pem", own.serialize_pem()),
    ];

    let mut paths = [const { String::new() }; 2];
    for (path, (name, text)) in paths.iter_mut().zip(files) {
        let file = folder.join(name);
        std::fs::write(&file, text)?;
        *path = file.display().to_string();
    }

    Ok(paths)
}

#[tokio::test(flavor = "multi_thread")]
async fn istiod_reads_navarch_and_navarch_reads_istiod() -> Result<()> {
    let Some(program) = program() else {
        skip_test("istiod is missing: run scripts/istiod");
        return Ok(());
    };
    let cluster = Cluster::start().await?;
    istiod_reads_configuration_and_changes_from_navarch(&program, &cluster).await?;
    for is_open in [true, false] {
        navarch_reads_configuration_from_istiod(&program, &cluster, is_open).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn istiod_accepts_the_same_handshakes_under_each_policy() -> Result<()> {
    let Some(program) = program() else {
        skip_test("istiod is missing: run scripts/istiod");
        return Ok(());
    };
    let cluster = Cluster::start().await?;
    let folder = TempDir::new()?;
    make_ca(folder.path())?;
    let files = folder.path().join("files");
    std::fs::create_dir(&files)?;
    let source = json!({ "address": format!("fs://{}", files.display()) });

    for policy in ["", "fips-140-2", "fips-140-3", "pqc"] {
        let variables = [("COMPLIANCE_POLICY", policy)];
        let istiod = Istiod::start(&program, &cluster, folder.path(), &source, &variables).await?;
        let navarch = Server::with_variables(MESH, &format!("COMPLIANCE_POLICY={policy}")).await?;

        for (istiods, own) in [
            (istiod.secure, navarch.secure),
            (istiod.https, navarch.https),
        ] {
            let mut expected = rows(&compliance::scan(istiods).await?);
            if !policy.is_empty() {
                // Go does not let a program choose the suites of TLS 1.3. Navarch is stricter.
                expected.retain(|row| !row.contains("TLS13_CHACHA20"));
            }
            let found = rows(&compliance::scan(own).await?);

            ensure!(!expected.is_empty(), "{policy}: {istiods} accepts nothing");
            ensure!(
                found == expected,
                "{policy}: {found:#?} and not {expected:#?}"
            );
        }
    }

    Ok(())
}

/// Handshakes by suite and group, whichever kind of key the server has.
fn rows(accepted: &[Accepted]) -> BTreeSet<String> {
    let without_key = |text: String| text.replace("_ECDSA_", "_").replace("_RSA_", "_");
    accepted
        .iter()
        .map(|one| without_key(format!("{:?} {:?}", one.suite, one.group)))
        .collect()
}

async fn istiod_reads_configuration_and_changes_from_navarch(
    program: &Path,
    cluster: &Cluster,
) -> Result<()> {
    let folder = TempDir::new()?;
    make_ca(folder.path())?;
    let mesh = folder.path().join("mesh");
    std::fs::create_dir(&mesh)?;
    let write = |text: &str| std::fs::write(mesh.join("mesh.yaml"), text);
    let routes = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: shop}\n\
        spec: {hosts: [a.example.com], http: [{timeout: 3s, route: [{destination: {host: b.example.com}}]}]}\n";
    write(&[&service("a", 80), &service("b", 81), routes].concat())?;

    let at = Addresses::free()?;
    let start = || Navarch::start_at(Path::new(NAVARCH), &mesh, &[], &[OPEN], at);
    let navarch = start().await?;
    let source = json!({ "address": format!("xds://{}", at.xds) });
    let mut istiod = Istiod::start(program, cluster, folder.path(), &source, &[OPEN]).await?;
    istiod
        .has(&["a.example.com:80", "b.example.com:81"])
        .await?;

    let page = navarch_testkit::client::get(istiod.http, "localhost", "/debug/configz", &[])
        .await?
        .body;
    let all: Vec<Value> = serde_json::from_str(&page)?;
    let read = all
        .iter()
        .find(|object| object["kind"] == "VirtualService")
        .context("a VirtualService")?;
    ensure!(read["spec"]["http"][0]["timeout"] == "3s", "{read}");

    ensure!(
        read["spec"]["http"][0]["route"][0]["destination"]["host"] == "b.example.com",
        "{read}"
    );
    let clusters = subscribe(
        channel(istiod.plain)?,
        &Proof::Nothing,
        node("shop", "web"),
        CDS,
        &[],
    )
    .await?;
    ensure!(
        clusters
            .iter()
            .any(|cluster| cluster.name == "outbound|81||b.example.com"),
        "istiod's proxies get it"
    );

    // Edits, deletions and additions follow, also after a restart of the source.
    write(&[service("b", 82), service("c", 80)].concat())?;
    istiod
        .has(&["b.example.com:82", "c.example.com:80"])
        .await?;
    navarch.kill()?;
    drop(navarch);
    write(&service("d", 80))?;

    let navarch = start().await?;
    istiod.has(&["d.example.com:80"]).await?;
    ensure!(navarch.stop().await?, "it exits by itself");
    Ok(())
}

/// A channel to a plain-text port.
fn channel(address: SocketAddr) -> Result<tonic::transport::Channel> {
    Ok(tonic::transport::Endpoint::from_shared(format!("http://{address}"))?.connect_lazy())
}

/// In plain text, or with a certificate.
async fn navarch_reads_configuration_from_istiod(
    program: &Path,
    cluster: &Cluster,
    is_open: bool,
) -> Result<()> {
    let folder = TempDir::new()?;
    let [chain, key] = make_ca(folder.path())?;
    let files = folder.path().join("files");
    std::fs::create_dir(&files)?;
    let write = |text: &str| std::fs::write(files.join("mesh.yaml"), text);
    write(&[service("a", 80), service("b", 81)].concat())?;
    let open = if is_open { OPEN } else { (OPEN.0, "true") };
    let source = json!({ "address": format!("fs://{}", files.display()) });
    let istiod = Istiod::start(program, cluster, folder.path(), &source, &[open]).await?;

    let root = folder.path().join("ca/root-cert.pem");
    let address = if is_open { istiod.plain } else { istiod.secure };
    let mut config = json!({ "address": format!("xds://{address}") });

    if !is_open {
        config["tlsSettings"] = json!({
            "mode": "MUTUAL", "clientCertificate": chain, "privateKey": key,
            "caCertificates": std::fs::read_to_string(root)?, "sni": "istiod.istio-system.svc",
            "subjectAltNames": ["istiod.istio-system.svc"],
        });
    }

    let file = folder.path().join("of-navarch.yaml");
    std::fs::write(&file, json!({ "configSources": [config] }).to_string())?;
    let args = [
        format!("--mesh-config={}", file.display()),
        "--registries=".to_owned(),
    ];
    let navarch =
        Navarch::start_with_args_at(Path::new(NAVARCH), &args, &[], Addresses::ANY).await?;
    let http = navarch.http;

    // istiod also sends the Services of its cluster, which has one.
    let received = async || {
        let hosts = hosts(http).await.unwrap_or_default();
        hosts
            .into_iter()
            .filter(|host| !host.contains(".svc."))
            .collect::<Vec<_>>()
    };

    let has = async |expected: &[&str]| {
        until(&format!("Navarch has {expected:?}"), || async {
            received().await == expected
        })
        .await;
    };

    has(&["a.example.com:80", "b.example.com:81"]).await;
    write(&[service("b", 82), service("c", 80)].concat())?;
    has(&["b.example.com:82", "c.example.com:80"]).await;
    let metrics = navarch.metrics().await?;
    ensure!(
        metrics.contains("answer=\"ack\"") && !metrics.contains("answer=\"nack\""),
        "{metrics}"
    );

    ensure!(navarch.stop().await?, "it exits by itself");
    Ok(())
}

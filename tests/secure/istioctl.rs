//! istioctl with a running Navarch, if `scripts/istioctl` has built it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use navarch_testkit::cluster::Cluster;
use navarch_testkit::istio::{self, Istioctl};
use navarch_testkit::skip::skip_test;
use navarch_testkit::wait::{until_some, wanted};
use serde_json::Value;

use crate::client::Proof;
use crate::server::Server;
use crate::tools::{Connected, MESH, token};

/// Runs istioctl with the TLS port and a certificate, and returns its output.
fn run(program: &Istioctl, server: &Server, folder: &Path, words: &[&str]) -> Result<String> {
    let output = program
        .command(words)
        .args([
            "--xds-address",
            &server.secure.to_string(),
            "--authority",
            "istiod.istio-system.svc",
        ])
        .arg("--cert-dir")
        .arg(folder)
        .arg("--kubeconfig")
        .arg(folder.join("kubeconfig"))
        .args(["--revision", "default", "--timeout", "20s"])
        .env("HOME", folder)
        .output()?;
    istio::printed(&output).with_context(|| format!("{words:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn istioctl_works_as_with_istiod() -> Result<()> {
    let Some(program) = istio::istioctl() else {
        skip_test(istio::NO_ISTIOCTL);
        return Ok(());
    };

    let server = Server::with_variables(MESH, "POD_NAME=istiod-1").await?;
    let _proxy = Connected::new(&server, "web-1").await?;
    let folder = tempfile::tempdir()?;
    write_certificate(&server, folder.path()).await?;

    // istioctl requires a kubeconfig, but never connects to its server.
    let kubeconfig = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
        users: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n";
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig)?;
    let server = &server;
    let folder = folder.path();
    let rows = until_some("istioctl lists the types of the proxy", async || {
        let rows = tokio::task::block_in_place(|| run(&program, server, folder, &["proxy-status"]));
        wanted(rows.unwrap_or_else(|error| format!("{error:#}")), |rows| {
            rows.contains("2 (CDS,LDS)")
        })
    })
    .await;
    let outputs = tokio::task::block_in_place(|| -> Result<_> {
        let verbose = run(&program, server, folder, &["proxy-status", "-v", "1"])?;
        let version = run(&program, server, folder, &["x", "version"])?;
        let list = run(&program, server, folder, &["x", "internal-debug", "--list"])?;
        let syncz = run(&program, server, folder, &["x", "internal-debug", "syncz"])?;
        Ok([verbose, version, list, syncz])
    })?;

    let [verbose, version, list, syncz] = outputs;
    let row = rows
        .lines()
        .find(|line| line.starts_with("web-1.shop"))
        .context("no row")?;
    let words: Vec<&str> = row.split_whitespace().collect();
    ensure!(
        words
            == [
                "web-1.shop",
                "Kubernetes",
                "istiod-1",
                "1.32.0",
                "2",
                "(CDS,LDS)"
            ],
        "{rows}"
    );

    ensure!(verbose.contains("SYNCED"), "{verbose}");
    ensure!(
        has_control_plane_version(&version) && version.contains("1.32.0 (1 proxies)"),
        "{version}"
    );
    ensure!(
        list.contains("\"syncz\"") && syncz.contains("\"proxy\": \"web-1.shop\""),
        "{list}{syncz}"
    );

    Ok(())
}

/// Writes an operator's certificate in the form of `--cert-dir`.
async fn write_certificate(server: &Server, folder: &Path) -> Result<()> {
    let Proof::Certificate(chain, key) = server
        .prove_by_certificate(&token(server, "istio-system:default"))
        .await?
    else {
        anyhow::bail!("no certificate")
    };
    std::fs::write(folder.join("cert-chain.pem"), chain)?;
    std::fs::write(folder.join("key.pem"), key)?;
    Ok(std::fs::write(folder.join("root-cert.pem"), server.root())?)
}

/// A pod that istioctl can find.
const POD: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
    apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: shop}\n---\n\
    apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop}\n\
    spec: {automountServiceAccountToken: false, containers: [{name: web, image: web}]}\n";

#[tokio::test(flavor = "multi_thread")]
async fn proxy_status_matches_only_for_a_proxy_with_the_sent_configuration() -> Result<()> {
    let Some(program) = istio::istioctl() else {
        skip_test(istio::NO_ISTIOCTL);
        return Ok(());
    };

    let cluster = Cluster::start().await?;
    cluster.apply(POD)?;
    let server = Server::with_mesh(MESH).await?;
    let _proxy = Connected::new(&server, "web-1").await?;
    let folder = tempfile::tempdir()?;
    write_certificate(&server, folder.path()).await?;
    std::fs::copy(cluster.admin_kubeconfig(), folder.path().join("kubeconfig"))?;

    // A config dump with the same sections as Envoy's.
    let page = server.page("config_dump?proxyID=web-1.shop").await?;
    let mut dump: Value = serde_json::from_str(&page)?;
    let server = &server;
    let folder = folder.path();
    let compare = |dump: &Value| {
        let file = folder.join("dump.json");
        std::fs::write(&file, dump.to_string())?;
        let file = file.to_string_lossy().into_owned();
        tokio::task::block_in_place(|| {
            run(
                &program,
                server,
                folder,
                &["proxy-status", "web-1.shop", "--file", &file],
            )
        })
    };

    let same = compare(&dump)?;
    ensure!(
        ["Clusters Match", "Listeners Match", "Routes Match"]
            .iter()
            .all(|words| same.contains(words)),
        "{same}"
    );

    let clusters = dump["configs"][1]["dynamicActiveClusters"]
        .as_array_mut()
        .context("no clusters")?;
    clusters.truncate(1);
    let other = compare(&dump)?;
    ensure!(
        !other.contains("Clusters Match") && other.contains("Listeners Match"),
        "{other}"
    );

    Ok(())
}

/// Whether the output has a control plane version with `MAJOR.MINOR`, the check of Istio's own
/// test.
fn has_control_plane_version(printed: &str) -> bool {
    let expected = regex::Regex::new(r"control plane version: [a-z0-9\-]+\.[a-z0-9\-]+");
    expected.is_ok_and(|expected| expected.is_match(printed))
}

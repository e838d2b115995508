//! Commands against the control plane, as users run them who have a kubeconfig and no address.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::mesh::{self, Mesh};
use navarch_testkit::process::Process;
use navarch_testkit::wait::Verbatim;
use navarch_testkit::{client, cluster, wait};
use serde_json::{Value, json};

use crate::program;

/// A command with a kubeconfig in the environment, and no home directory.
fn command(program: &Path, kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", "/nonexistent")
        .env_remove("RUST_BACKTRACE");
    command.stdin(Stdio::null());
    command
}

/// The JSON output of navarch, with its exit code.
pub(crate) fn run_navarch(mesh: &Mesh, arguments: &[&str]) -> Result<(Value, i32)> {
    let all = [arguments, &["-o", "json"]].concat();
    read(&command(&program("navarch"), &mesh.node.kubeconfig(), &all).output()?)
}

/// The JSON in a command's output, with its exit code.
fn read(output: &Output) -> Result<(Value, i32)> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let value = serde_json::from_slice(&output.stdout).with_context(|| stderr.into_owned())?;
    Ok((value, output.status.code().unwrap_or(-1)))
}

/// The text that navarch prints. The command must succeed.
pub(crate) fn text_of(mesh: &Mesh, arguments: &[&str]) -> Result<String> {
    let output = command(&program("navarch"), &mesh.node.kubeconfig(), arguments).output()?;
    ensure!(output.status.success(), "{arguments:?} fails: {output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A running `navarch dashboard`, which forwards requests to the control plane of a kubeconfig.
pub(crate) struct Dashboard {
    /// Where it listens on this machine.
    pub(crate) address: SocketAddr,
    /// It ends with its handle.
    _process: Process,
}

impl Dashboard {
    /// Starts it with further flags and its output in `log`, and waits until it listens.
    pub(crate) async fn start(mesh: &Mesh, flags: &[String], log: &Path) -> Result<Self> {
        let kubeconfig = format!("--kubeconfig={}", mesh.node.kubeconfig().display());
        let own = ["dashboard".to_owned(), kubeconfig];
        let arguments = [&own[..], flags].concat();
        let process = Process::start("dashboard", &program("navarch"), &arguments, log)?;

        let address = wait::until_some("the dashboard prints its address", async || {
            let output = process.output();
            let url = output
                .split_whitespace()
                .find_map(|word| word.strip_prefix("http://")?.strip_suffix('/'));
            let address = url.and_then(|url| url.parse().ok());
            address.ok_or(Verbatim(output))
        })
        .await;
        Ok(Self {
            address,
            _process: process,
        })
    }
}

/// The name of the first pod that matches a selector.
pub(crate) fn pod_of(mesh: &Mesh, namespace: &str, selector: &str) -> Result<String> {
    let list = mesh
        .node
        .get(namespace, &["pods", "--selector", selector])?;
    let name = list["items"][0]["metadata"]["name"]
        .as_str()
        .with_context(|| format!("no pod matches {selector}"))?;
    Ok(name.to_owned())
}

/// The storefront's pod in the form that commands accept.
pub(crate) fn storefront(mesh: &Mesh) -> Result<String> {
    Ok(format!(
        "{}.{}",
        pod_of(mesh, pods::NAMESPACE, "app=storefront")?,
        pods::NAMESPACE
    ))
}

/// The error of a navarch command that must fail.
fn error_of(kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
    let output = command(&program("navarch"), kubeconfig, arguments).output()?;
    ensure!(
        output.status.code() == Some(1),
        "{arguments:?} fails: {output:?}"
    );
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Without an address, commands find the control plane through the kubeconfig and reach it by
/// port-forward, also as a kubectl plugin.
pub(crate) async fn commands_find_the_control_plane_by_the_kubeconfig(mesh: &Mesh) -> Result<()> {
    let (health, _) = run_navarch(mesh, &["doctor"])?;
    let address = health[0]["address"].as_str().context("an address")?;
    ensure!(
        address.starts_with("istiod-") && address.ends_with(".istio-system"),
        "the doctor reaches a pod: {health}"
    );
    ensure!(
        health[0]["health"].is_object(),
        "the doctor reports its health: {health}"
    );

    let kube = cluster::programs()?;
    let folder = tempfile::tempdir()?;
    std::os::unix::fs::symlink(program("navarch"), folder.path().join("kubectl-navarch"))?;
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let arguments = [
        "navarch",
        "applied",
        "vs",
        "reviews",
        "-n",
        pods::NAMESPACE,
        "--wait",
        "-o",
        "json",
    ];

    let output = command(&kube.join("kubectl"), &mesh.node.kubeconfig(), &arguments)
        .env("PATH", path)
        .output()?;
    let (applied, code) = read(&output)?;
    let of_one = &applied["replicas"][0]["applied"];
    ensure!(
        code == 0 && of_one["taken"] == 5 && of_one["reached"] == 5,
        "all sidecars have it: {applied}"
    );

    let pod = storefront(mesh)?;
    let (way, code) = run_navarch(mesh, &["why", "not", &pod, "reviews:9080/reviews/"])?;
    ensure!(code == 0 && way["reason"].is_null(), "{way}");

    let dashboard = Dashboard::start(mesh, &[], &folder.path().join("log")).await?;
    let own = dashboard.address;
    let page = client::get(own, "localhost", "/", &[]).await?;
    ensure!(
        page.status == 200 && page.body.contains("<script"),
        "the page: {page:?}"
    );

    let proxies = client::get(own, "localhost", "/debug/view/proxies", &[]).await?;
    ensure!(
        proxies.status == 200 && proxies.body.contains(&pod),
        "its views: {proxies:?}"
    );
    drop(dashboard);

    errors_of_commands_name_the_missing_permission_or_pod(mesh, folder.path())
}

/// Errors name the next step for the missing part: rights, pods, the API server.
fn errors_of_commands_name_the_missing_permission_or_pod(mesh: &Mesh, folder: &Path) -> Result<()> {
    let kubeconfig = mesh.node.kubeconfig();
    let error = error_of(&kubeconfig, &["doctor", "--istioNamespace", "default"])?;
    ensure!(
        error.contains("no pod with the labels app=istiod") && error.contains("--istioNamespace"),
        "{error}"
    );
    let error = error_of(&kubeconfig, &["doctor", "--revision", "canary"])?;
    ensure!(error.contains("app=istiod,istio.io/rev=canary"), "{error}");

    let error = error_of(&kubeconfig, &["doctor", "--context", "nowhere"])?;
    ensure!(error.contains("kubectl config get-contexts"), "{error}");

    let may_nothing = kubeconfig_of(mesh, folder, "nobody")?;
    let error = error_of(&may_nothing, &["doctor"])?;
    ensure!(
        error.contains("cannot list resource \"pods\"") && error.contains("verb list for pods"),
        "{error}"
    );
    let rights = [
        "create",
        "role",
        "watcher",
        "--verb=list",
        "--resource=pods",
    ];

    let given = [
        "create",
        "rolebinding",
        "watcher",
        "--role=watcher",
        "--serviceaccount=istio-system:watcher",
    ];

    for words in [&rights[..], &given[..]] {
        mesh.node
            .kubectl(&[&["--namespace", mesh::NAMESPACE], words].concat())?;
    }

    let may_list = kubeconfig_of(mesh, folder, "watcher")?;
    let error = error_of(&may_list, &["plan", "--remove", "vs/bookshop/reviews"])?;
    ensure!(
        error.contains("verbs get and create for pods/portforward in istio-system"),
        "{error}"
    );

    let mut away: Value = serde_json::from_slice(&std::fs::read(&may_list)?)?;
    away["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1");
    std::fs::write(&may_list, away.to_string())?;
    let error = error_of(&may_list, &["doctor"])?;
    ensure!(
        error.contains("https://127.0.0.1:1") && error.contains("does not respond"),
        "{error}"
    );

    Ok(())
}

/// A kubeconfig for a new service account in the control plane's namespace.
fn kubeconfig_of(mesh: &Mesh, folder: &Path, account: &str) -> Result<PathBuf> {
    let namespace = ["--namespace", mesh::NAMESPACE];
    mesh.node
        .kubectl(&[&namespace[..], &["create", "serviceaccount", account]].concat())?;
    let token = mesh
        .node
        .kubectl(&[&namespace[..], &["create", "token", account]].concat())?;
    let own = mesh
        .node
        .kubectl(&["config", "view", "--raw", "--minify", "--output=json"])?;
    let mut own: Value = serde_json::from_str(&own)?;
    own["users"][0]["user"] = json!({ "token": token.trim() });
    let path = folder.join(account);
    std::fs::write(&path, own.to_string())?;
    Ok(path)
}

/// With two replicas `applied` queries both: each has only its own proxies.
pub(crate) fn applied_queries_every_replica(mesh: &Mesh) -> Result<()> {
    let arguments = [
        "applied",
        "vs",
        "reviews",
        "-n",
        pods::NAMESPACE,
        "--wait",
        "--timeout=60s",
    ];
    let (applied, code) = run_navarch(mesh, &arguments)?;
    let replicas = applied["replicas"].as_array().context("replicas")?;
    ensure!(code == 0 && replicas.len() == 2, "both respond: {applied}");
    Ok(())
}

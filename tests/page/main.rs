//! The dashboard at `/` of the monitoring port: access to it, and its behaviour in a real browser.
//!
//! Needs the programs of `make tools`: Envoy, chromium, and the packages of `web/`.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail loudly and spawn"
)]

mod ambient;
mod browser;
mod build;
mod edges;
mod replicas;
mod served;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use navarch_testkit::navarch::Navarch;
use navarch_testkit::process::Process;
use navarch_testkit::wait::until_some;
use navarch_tests::proxy;
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Policies for the sample mesh: two more namespaces, callers by name, all modes of mutual TLS, and
/// an invalid object.
const POLICIES: &str = include_str!("policies.yaml");

/// A control plane with a CA, the sample mesh and these policies.
async fn start() -> (TempDir, Navarch) {
    let folder = tempfile::tempdir().unwrap();
    let mesh = folder.path().join("mesh");
    std::fs::create_dir(&mesh).unwrap();

    for entry in std::fs::read_dir(root().join("deploy/samples/bookshop")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, mesh.join(path.file_name().unwrap())).unwrap();
    }

    std::fs::write(mesh.join("policies.yaml"), POLICIES).unwrap();
    let flags = [
        format!(
            "--mesh-config={}",
            root().join("deploy/samples/mesh.yaml").display()
        ),
        format!("--state-dir={}", folder.path().join("state").display()),
        "--secure-grpc-addr=127.0.0.1:0".to_owned(),
        "--registries=".to_owned(),
    ];

    let navarch = Navarch::start(Path::new(env!("CARGO_BIN_EXE_navarch")), &mesh, &flags)
        .await
        .unwrap();
    (folder, navarch)
}

/// Starts `navarch dashboard` for some control planes, with its log in a directory, and returns its
/// address.
async fn dashboard(planes: &[&Navarch], folder: &Path) -> (Process, SocketAddr) {
    dashboard_with(planes, folder, &[]).await
}

/// Like [`dashboard`], with further arguments.
async fn dashboard_with(
    planes: &[&Navarch],
    folder: &Path,
    further: &[String],
) -> (Process, SocketAddr) {
    let mut args = vec!["dashboard".to_owned()];
    args.extend_from_slice(further);
    args.extend(
        planes
            .iter()
            .map(|plane| format!("--address={}", plane.monitoring)),
    );
    let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
    let dashboard =
        Process::start("dashboard", program, &args, &folder.join("dashboard.log")).unwrap();
    let own = until_some("the dashboard prints its address", async || {
        let output = dashboard.output();
        let (url, _) = output
            .split_once("/ shows the mesh of ")
            .ok_or_else(|| output.clone())?;
        url.strip_prefix("http://")
            .and_then(|address| address.parse().ok())
            .ok_or(output)
    });

    let own = own.await;
    (dashboard, own)
}

/// The directory in which `scripts/web` has installed the packages of `web/`; `None` if they are
/// missing.
fn packages() -> Option<PathBuf> {
    let output = Command::new(root().join("scripts/web"))
        .arg("--tools")
        .output()
        .ok()?;
    let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    (output.status.success() && folder.is_dir()).then_some(folder)
}

//! What a source logs at debug level, and the services of `--registries=Mock`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::process::Process;
use navarch_testkit::wait::until;
use tempfile::TempDir;

use crate::config_source::{hosts, service};
use crate::server::node;

const NAVARCH: &str = env!("CARGO_BIN_EXE_navarch");
const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// Starts a control plane on a directory.
async fn start(folder: &TempDir, flags: &[&str]) -> Result<Navarch> {
    let mut arguments = vec![format!("--config-dir={}", folder.path().display())];
    arguments.extend(flags.iter().map(ToString::to_string));
    Navarch::start_with_args_at(Path::new(NAVARCH), &arguments, &[], Addresses::ANY).await
}

/// Waits until an event is in the log; `object` is empty for events without an object.
async fn is_logged(navarch: &Navarch, folder: &TempDir, event: &str, object: &str) {
    let object = match object {
        "" => String::new(),
        object => format!(" object=\"{object}\""),
    };
    let line = format!(
        "DEBUG navarch_source::files: {event} source=\"fs://{}\"{object}\n",
        folder.path().display()
    );
    until(&line, || async { navarch.output().contains(&line) }).await;
}

#[tokio::test]
async fn each_event_of_a_source_is_logged_with_the_version_of_its_object() -> Result<()> {
    let folder = TempDir::new()?;
    let file = folder.path().join("mesh.yaml");
    std::fs::write(&file, service("a", 80))?;
    let levels = "--log_output_level=default:info,file:debug";
    let navarch = start(&folder, &["--registries=", levels]).await?;
    is_logged(&navarch, &folder, "Added", "ServiceEntry shop/a@v0").await;
    is_logged(&navarch, &folder, "FullSync", "").await;

    for (port, version) in [(81, "v1"), (82, "v2")] {
        std::fs::write(&file, service("a", port))?;
        let object = format!("ServiceEntry shop/a@{version}");
        is_logged(&navarch, &folder, "Updated", &object).await;
    }

    // Unchanged files are no events.
    let before = navarch.output().matches("Updated source=").count();
    navarch.reload()?;
    std::fs::write(folder.path().join("other.yaml"), service("b", 80))?;
    is_logged(&navarch, &folder, "Added", "ServiceEntry shop/b@v0").await;
    ensure!(navarch.output().matches("Updated source=").count() == before);

    std::fs::remove_file(&file)?;
    is_logged(&navarch, &folder, "Deleted", "ServiceEntry shop/a@v2").await;
    std::fs::write(&file, service("a", 80))?;
    until("the object has its first version again", || async {
        let line = "object=\"ServiceEntry shop/a@v0\"";
        navarch.output().matches(line).count() == 2
    })
    .await;

    Ok(())
}

#[tokio::test]
async fn without_debug_level_no_event_is_logged() -> Result<()> {
    let folder = TempDir::new()?;
    std::fs::write(folder.path().join("mesh.yaml"), service("a", 80))?;
    let navarch = start(&folder, &["--registries="]).await?;
    ensure!(!navarch.output().contains("shop/a@v"));
    Ok(())
}

#[tokio::test]
async fn the_mock_registry_adds_the_services_of_istios_tests() -> Result<()> {
    let folder = TempDir::new()?;
    std::fs::write(folder.path().join("mesh.yaml"), service("a", 80))?;
    let navarch = start(&folder, &["--registries=Mock"]).await?;
    ensure!(
        hosts(navarch.http).await?
            == [
                "a.example.com:80",
                "httpbin.default.svc.cluster.local:80",
                "httpsbin.default.svc.cluster.local:443",
            ]
    );

    let address = format!("http://{}", navarch.xds);
    let proxies = tonic::transport::Endpoint::from_shared(address)?.connect_lazy();
    let clusters = crate::server::subscribe(
        proxies,
        &crate::client::Proof::Nothing,
        node("default", "web"),
        CDS,
        &[],
    )
    .await?;
    let names: Vec<_> = clusters
        .iter()
        .map(|cluster| cluster.name.as_str())
        .collect();
    for expected in [
        "outbound|80||hello.default.svc.cluster.local",
        "outbound|110||world.default.svc.cluster.local",
        "outbound|81||foo.default.svc.cluster.local",
        "outbound|443||httpsbin.default.svc.cluster.local",
    ] {
        ensure!(names.contains(&expected), "{expected}: {names:?}");
    }

    let endpoints = navarch.page("/debug/endpointz").await?;
    for address in ["10.1.1.0", "10.1.1.1", "10.2.1.0", "10.2.1.1"] {
        ensure!(endpoints.contains(address), "{address}: {endpoints}");
    }

    Ok(())
}

#[tokio::test]
async fn an_unknown_registry_is_an_error_with_the_supported_ones() -> Result<()> {
    let folder = TempDir::new()?;
    let arguments = ["discovery", "--registries=Consul"].map(str::to_owned);
    let log = folder.path().join("log");
    let process =
        Process::start("navarch", Path::new(NAVARCH), &arguments, &log).context("it starts")?;
    let reason = "only Kubernetes and Mock are supported";
    until(reason, || async { process.output().contains(reason) }).await;
    Ok(())
}

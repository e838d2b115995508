//! A control plane that is not ready yet.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use navarch_testkit::client;
use navarch_testkit::ports;
use navarch_testkit::wait::until;

use super::PROGRAM;

/// A started control plane, ready or not.
struct Started {
    process: Child,
    http: SocketAddr,
    monitoring: SocketAddr,
}

/// Starts the control plane with these arguments, on free ports and with an empty environment. Its
/// log is `log` in the folder.
fn spawn(folder: &Path, arguments: &[String]) -> Started {
    let address = || SocketAddr::from(([127, 0, 0, 1], ports::free().unwrap()));
    let http = address();
    let monitoring = address();

    let mut command = Command::new(PROGRAM);
    command.arg("discovery").args(arguments);
    for (flag, address) in [
        ("grpc", address()),
        ("secure-grpc", address()),
        ("https", address()),
        ("http", http),
        ("monitoring", monitoring),
    ] {
        command.arg(format!("--{flag}-addr={address}"));
    }

    let process = command
        .env_clear()
        .stdout(File::create(folder.join("log")).unwrap())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    Started {
        process,
        http,
        monitoring,
    }
}

#[tokio::test]
async fn before_the_first_sync_it_is_unready_and_handles_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let Started {
        mut process, http, ..
    } = spawn(
        folder.path(),
        &[format!("--config-dir={}", missing.display())],
    );

    let get = async |path: &str| client::get(http, "localhost", path, &[]).await.ok();
    until("the readiness port responds", async || {
        get("/ready").await.is_some()
    })
    .await;
    let response = get("/ready").await.unwrap();
    assert_eq!(response.status, 503, "{}", response.body);
    for reason in ["ports: ", "missing"] {
        assert!(response.body.contains(reason), "{}", response.body);
    }

    // An empty page would look like an empty mesh.
    for page in [
        "/debug/registryz",
        "/debug/ca",
        "/debug/config_dump?proxyID=a.b",
    ] {
        let response = get(page).await.unwrap();
        assert!(
            response.status == 503 && response.body.contains("not been read"),
            "{page}: {} {}",
            response.status,
            response.body
        );
    }

    assert_eq!(get("/debug").await.unwrap().status, 200);

    // The doctor matters most while the control plane is not ready.
    let response = get("/debug/doctor").await.unwrap();
    assert!(
        response.status == 200 && response.body.contains("initial configuration is not"),
        "{}",
        response.body
    );

    // No certificate was signed, and no root created.
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(!log.contains("CA ready"), "{log}");
    assert!(
        Command::new("kill")
            .arg(process.id().to_string())
            .status()
            .unwrap()
            .success()
    );

    let ended = tokio::task::spawn_blocking(move || process.wait().unwrap());
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), ended).await;
    let ended = ended.unwrap().unwrap();
    assert!(
        ended.success(),
        "{ended}: {}",
        std::fs::read_to_string(folder.path().join("log")).unwrap()
    );
}

/// In this situation istiod serves the defaults, perhaps with another trust domain.
#[tokio::test]
async fn istio_61563_start_waits_for_a_valid_mesh_config() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    let mesh = folder.path().join("mesh");
    std::fs::create_dir(&config).unwrap();
    std::fs::write(&mesh, "trustDomain: own\nconnectTimeout: [broken\n").unwrap();

    let Started {
        mut process,
        http,
        monitoring,
    } = spawn(
        folder.path(),
        &[
            format!("--config-dir={}", config.display()),
            format!("--meshConfig={}", mesh.display()),
        ],
    );

    let ready = async |host: &str| client::get(http, host, "/ready", &[]).await.ok();
    let mesh_name = mesh.display().to_string();
    let named = async || {
        ready("localhost")
            .await
            .is_some_and(|response| response.status == 503 && response.body.contains(&mesh_name))
    };
    until("the mesh config is named", named).await;

    // A page in a browser, or a request with another Host header.
    let response = ready("navarch").await.unwrap();
    assert!(
        response.status == 503
            && response.body.contains("reasons")
            && !response.body.contains("mesh"),
        "{}",
        response.body
    );

    let metrics = client::get(monitoring, "localhost", "/metrics", &[])
        .await
        .unwrap()
        .body;
    assert!(
        metrics.contains("navarch_refused_configs{kind=\"MeshConfig\"} 1"),
        "{metrics}"
    );

    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log().contains(&mesh_name), "{}", log());
    std::fs::write(&mesh, "trustDomain: own\n").unwrap();
    until("it is ready", async || {
        ready("navarch")
            .await
            .is_some_and(|response| response.status == 200)
    })
    .await;
    let page = client::get(http, "localhost", "/debug/mesh", &[])
        .await
        .unwrap()
        .body;
    assert!(page.contains("\"own\""), "{page}");
    process.kill().unwrap();
    process.wait().unwrap();
}

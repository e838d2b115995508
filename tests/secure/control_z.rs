//! ControlZ, as `istioctl admin log` and its own pages use it.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use navarch_testkit::client::{self as web, Reply};
use navarch_testkit::ports;
use navarch_testkit::wait::until;
use serde_json::{Value, json};

use crate::issuer::Issuer;
use crate::server::{LOOPBACK, Server};
use crate::tools::{Connected, MESH};

/// A control plane with ControlZ on a port of its own.
async fn start() -> Result<(Server, SocketAddr)> {
    start_with(&[]).await
}

async fn start_with(flags: &[&str]) -> Result<(Server, SocketAddr)> {
    let port = ports::free()?;
    let mut arguments = vec![
        format!("--ctrlz_port={port}"),
        "--ctrlz_address=localhost".to_owned(),
    ];
    arguments.extend(flags.iter().map(ToString::to_string));
    let server = Server::with_arguments(MESH, &arguments).await?;
    Ok((server, SocketAddr::from(([127, 0, 0, 1], port))))
}

async fn get(address: SocketAddr, path: &str) -> Result<Reply> {
    web::get(address, "localhost:9876", path, &[]).await
}

/// A request without a body.
async fn send(
    method: &str,
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Reply> {
    web::send_body(method, address, "localhost:9876", path, headers, "".into()).await
}

#[tokio::test]
async fn values_of_variables_are_hidden_but_for_those_without_secrets() -> Result<()> {
    let port = ports::free()?;
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("mesh"))?;
    std::fs::write(folder.path().join("mesh/mesh.yaml"), MESH)?;
    let variables = "CLUSTER_ID=east UNKNOWN_TO_IT=classified-1 \
                     NAVARCH_PROMETHEUS_URL=http://me:classified-2@127.0.0.1:1 \
                     OTEL_EXPORTER_OTLP_HEADERS='authorization=Bearer classified-3'";
    let arguments = [
        format!("--ctrlz_port={port}"),
        "--ctrlz_address=localhost".to_owned(),
    ];
    let _server = Server::start_in(
        folder,
        Issuer::with_new_key(),
        variables.to_owned(),
        LOOPBACK,
        &arguments,
    )
    .await?;

    let address = SocketAddr::from(([127, 0, 0, 1], port));
    for path in ["/envj", "/envz"] {
        let page = get(address, path).await?;
        ensure!(page.status == 200, "{path}: {page:?}");
        ensure!(!page.body.contains("classified"), "{path}: {page:?}");
        for name in ["UNKNOWN_TO_IT", "OTEL_EXPORTER_OTLP_HEADERS"] {
            ensure!(page.body.contains(name), "{path} lacks {name}: {page:?}");
        }
    }

    let page = get(address, "/envj").await?;
    let listed: Vec<Value> = serde_json::from_str(&page.body)?;
    ensure!(
        listed.contains(&json!({"name": "CLUSTER_ID", "value": "east"})),
        "{listed:?}"
    );
    Ok(())
}

#[tokio::test]
async fn control_z_shows_the_process_and_sets_its_log() -> Result<()> {
    let (server, address) = start().await?;
    let get = async |path: &str| get(address, path).await;
    let level = async |scope: &str| {
        let all: serde_json::Value =
            serde_json::from_str(&get("/scopej").await.unwrap().body).unwrap();
        let one = all
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["name"] == scope)
            .cloned()
            .unwrap();
        one["output_level"].as_str().unwrap_or_default().to_owned()
    };

    ensure!(level("ads").await == "info" && level("default").await == "info");
    let body = r#"{"name":"ads","output_level":"debug","stack_trace_level":"none"}"#;
    let set = async |scope: &str| {
        let path = format!("/scopej/{scope}");
        web::send_body("PUT", address, "localhost:9876", &path, &[], body.into()).await
    };
    let put = set("ads").await?;
    ensure!(put.status == 202, "{put:?}");

    ensure!(level("ads").await == "debug" && level("default").await == "info");

    // From now on, stream events are logged.
    let _proxy = Connected::new(&server, "web-1").await?;
    until("a request is logged", async || {
        server.output().contains("DEBUG") && server.output().contains("request")
    })
    .await;
    let unknown = set("nobody").await?;
    ensure!(unknown.status == 400, "{unknown:?}");
    let hostile = get("/scopej/%E2%80%AE%1B").await?;
    ensure!(
        hostile.status == 400 && hostile.body.contains(r"unknown scope name: \u202e\u001b"),
        "{hostile:?}"
    );

    for path in [
        "/",
        "/scopez",
        "/memz",
        "/memj",
        "/envz",
        "/envj",
        "/procz",
        "/procj",
        "/argz",
        "/versionj",
        "/homej",
        "/metrics",
        "/signalz",
        "/signalz/",
    ] {
        let shown = get(path).await?;
        ensure!(
            shown.status == 200 && !shown.body.is_empty(),
            "{path}: {shown:?}"
        );
    }

    ensure!(get("/procj").await?.body.contains("\"pid\":"));

    // A request with another host name, as from a browser under DNS rebinding, is rejected.
    ensure!(
        web::get(address, "rebound.example", "/envj", &[])
            .await?
            .status
            == 401
    );

    Ok(())
}

#[tokio::test]
async fn the_page_of_signals_has_a_button_that_makes_it_read_files_again() -> Result<()> {
    let (server, address) = start().await?;
    let page = get(address, "/signalz").await?.body;
    ensure!(
        page.contains("<form method=\"post\" action=\"/signalj/SIGUSR1\">"),
        "{page}"
    );
    ensure!(get(address, "/").await?.body.contains("href=\"/signalz\""));

    // A link or a page of another site must not have an effect, and there are no other signals.
    let path = "/signalj/SIGUSR1";
    ensure!(get(address, path).await?.status == 405);
    let foreign = [("origin", "http://evil.example")];
    ensure!(send("POST", address, path, &foreign).await?.status == 403);
    let rebound = web::send_body("POST", address, "evil.example", path, &[], "".into()).await?;
    ensure!(rebound.status == 403, "{rebound:?}");
    ensure!(send("POST", address, "/signalj/SIGKILL", &[]).await?.status == 404);
    ensure!(!server.output().contains("received SIGUSR1"));

    let own = [("origin", "http://localhost:9876")];
    ensure!(send("POST", address, path, &own).await?.status == 202);
    until("it reads all files again", async || {
        server.output().contains("received SIGUSR1")
    })
    .await;

    Ok(())
}

#[tokio::test]
async fn free_memory_is_released_on_request() -> Result<()> {
    let (_server, address) = start().await?;
    let path = "/memj/forcecollection";
    for method in ["PUT", "POST"] {
        let reply = send(method, address, path, &[]).await?;
        ensure!(reply.status == 202, "{reply:?}");
    }

    ensure!(get(address, path).await?.status == 405);
    let foreign = [("origin", "http://evil.example")];
    ensure!(send("PUT", address, path, &foreign).await?.status == 403);
    Ok(())
}

#[tokio::test]
async fn control_z_has_the_profiles_unless_they_are_switched_off() -> Result<()> {
    let (_server, address) = start().await?;
    let line = get(address, "/debug/pprof/cmdline").await?;
    ensure!(line.body.contains("\0discovery\0"), "{line:?}");
    let heap = get(address, "/debug/pprof/heap").await?;
    ensure!(heap.status == 200 && heap.bytes.starts_with(&[0x1f, 0x8b]));
    let rebound = web::get(address, "evil.example", "/debug/pprof/cmdline", &[]).await?;
    ensure!(rebound.status == 401, "{rebound:?}");

    let (_server, address) = start_with(&["--profile=false"]).await?;
    ensure!(get(address, "/debug/pprof/cmdline").await?.status == 404);
    Ok(())
}

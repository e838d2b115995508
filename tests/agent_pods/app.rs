//! The application of a pod: it serves on a port and does what it is told on a Unix socket.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::Request;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::Instant;

/// The port of every application.
pub(crate) const PORT: u16 = 8080;

/// Runs until killed. The config is the name and the socket.
pub(crate) fn run(config: &str) {
    let config: Value = serde_json::from_str(config).unwrap();
    let name = config["name"].as_str().unwrap().to_owned();
    let socket = config["socket"].as_str().unwrap().to_owned();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async move {
        let app = Router::new().fallback(move |request: Request| answer(name.clone(), request));
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await.unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let listener = UnixListener::bind(socket).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (reader, mut writer) = stream.into_split();
                let mut lines = BufReader::new(reader).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let answer = obey(&serde_json::from_str(&line).unwrap()).await;
                    let answer = answer.unwrap_or_else(|error| json!({"error": format!("{error:#}")}));
                    if writer.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// Says who it is and who asks.
async fn answer(name: String, request: Request) -> String {
    if request.uri().path() == "/metrics" {
        return "# TYPE app_requests counter\napp_requests 1\n".to_owned();
    }
    let wait = request.uri().query().and_then(|query| query.strip_prefix("wait=")).and_then(|text| text.parse().ok());
    if let Some(wait) = wait {
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
    let caller = request.headers().get("x-forwarded-client-cert").and_then(|value| value.to_str().ok());
    format!("{name} {} {}", request.uri().path(), caller.unwrap_or_default())
}

/// Does what it is told.
async fn obey(order: &Value) -> Result<Value> {
    let text = |key: &str| order[key].as_str().with_context(|| format!("no {key}"));
    match text("op")? {
        "resolve" => {
            let found = tokio::net::lookup_host((text("name")?, 80)).await?;
            Ok(json!({"addresses": found.map(|address| address.ip().to_string()).collect::<Vec<_>>()}))
        }
        "get" => get(text("host")?, text("path")?).await,
        "many" => {
            let count = order["count"].as_u64().unwrap_or(1);
            let (host, path) = (text("host")?.to_owned(), text("path")?.to_owned());
            let mut all = tokio::task::JoinSet::new();
            for _ in 0..count {
                let (host, path) = (host.clone(), path.clone());
                all.spawn(async move { get(&host, &path).await });
            }
            Ok(count_up(all.join_all().await))
        }
        "load" => {
            let end = Instant::now() + Duration::from_millis(order["millis"].as_u64().unwrap_or(0));
            let mut outcomes = Vec::new();
            while Instant::now() < end {
                outcomes.push(get(text("host")?, text("path")?).await);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(count_up(outcomes))
        }
        other => anyhow::bail!("{other} is no order"),
    }
}

/// How many requests went well, and what became of the others.
fn count_up(outcomes: Vec<Result<Value>>) -> Value {
    let mut failed = Vec::new();
    let mut ok = 0;
    for outcome in outcomes {
        match outcome {
            Ok(answer) if answer["status"] == 200 => ok += 1,
            Ok(answer) => failed.push(answer),
            Err(error) => failed.push(json!(format!("{error:#}"))),
        }
    }
    failed.truncate(5);
    json!({"ok": ok, "failed": failed})
}

/// Gets a page of another pod.
async fn get(host: &str, path: &str) -> Result<Value> {
    let address: SocketAddr = tokio::net::lookup_host((host, PORT)).await?.next().context("no address")?;
    let reply = navarch_testkit::client::get(address, &format!("{host}:{PORT}"), path, &[]).await?;
    Ok(json!({"status": reply.status.as_u16(), "body": reply.body}))
}

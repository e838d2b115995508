//! The application of a pod in tests: serves HTTP on a port, and runs commands from a Unix socket.
//!
//! `pod NAME PORT SOCKET`: responds on the port with the name, the path and the client's
//! certificate. On the socket, reads a command per line as JSON, and writes a result per line:
//! `{"op": "resolve", "name": …}`, `{"op": "get", "host": …, "path": …}`, `many` with a `count` of
//! concurrent requests, `load` with sequential requests for `millis`; `{"op": "counts"}` returns
//! the number of answered requests and of those in progress. `mix` sends `requests` in turn, each
//! with its `host`, `method`, `path` and `expected` (a status, or `refused`), until at least `count`
//! were sent and the file `while` does not exist, but no longer than `millis`.

#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON with a missing key gives null"
)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::extract::Request;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Maximum number of printed failures.
const MAX_PRINTED: usize = 5;
/// The pause between requests of a load.
const REQUEST_INTERVAL: Duration = Duration::from_millis(10);

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, port, socket] = arguments.as_slice() else {
        bail!("usage: pod NAME PORT SOCKET")
    };

    let name: String = name.clone();
    let port: u16 = port.parse().context("PORT is not a port number")?;
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    let orders = UnixListener::bind(socket)?;
    let counts = Arc::new(Counts::default());
    let counted = counts.clone();
    let app = Router::new()
        .fallback(move |request: Request| answer(name.clone(), request, counted.clone()));

    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, app).await });

    loop {
        let (stream, _) = orders.accept().await?;
        tasks.spawn(serve(stream, port, counts.clone()));
    }
}

/// Runs the commands of one connection until it ends.
async fn serve(stream: UnixStream, port: u16, counts: Arc<Counts>) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let order = serde_json::from_str(&line).unwrap_or(Value::Null);
        let answer = run_command(&order, port, &counts)
            .await
            .unwrap_or_else(|error| json!({"error": format!("{error:#}")}));
        writer.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(())
}

/// Received requests.
#[derive(Debug, Default)]
struct Counts {
    /// Number of answered requests.
    answered: AtomicUsize,
    /// Number of requests in progress.
    waiting: AtomicUsize,
}

/// Responds with the name and the client's identity.
async fn answer(name: String, request: Request, counts: Arc<Counts>) -> String {
    counts.waiting.fetch_add(1, Ordering::SeqCst);
    let body = body(&name, request).await;
    counts.waiting.fetch_sub(1, Ordering::SeqCst);
    counts.answered.fetch_add(1, Ordering::SeqCst);
    body
}

/// The response body, after the requested delay.
async fn body(name: &str, request: Request) -> String {
    if request.uri().path() == "/metrics" {
        return "# TYPE app_requests counter\napp_requests 1\n".to_owned();
    }

    let wait = request
        .uri()
        .query()
        .and_then(|query| query.strip_prefix("wait="))
        .and_then(|text| text.parse().ok());
    if let Some(wait) = wait {
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }

    let caller = request
        .headers()
        .get("x-forwarded-client-cert")
        .and_then(|value| value.to_str().ok());

    format!(
        "{name} {} {}",
        request.uri().path(),
        caller.unwrap_or_default()
    )
}

/// Runs a command; pods send requests to each other on the same port.
async fn run_command(order: &Value, port: u16, counts: &Counts) -> Result<Value> {
    let text = |key: &str| order[key].as_str().with_context(|| format!("no {key}"));
    match text("op")? {
        "resolve" => {
            let found = tokio::net::lookup_host((text("name")?, 80)).await?;
            Ok(
                json!({"addresses": found.map(|address| address.ip().to_string()).collect::<Vec<_>>()}),
            )
        }
        "get" => get(text("host")?, port, text("path")?).await,
        "many" => {
            let host = text("host")?.to_owned();
            let path = text("path")?.to_owned();
            let mut all = JoinSet::new();

            for _ in 0..order["count"].as_u64().unwrap_or(1) {
                let host = host.clone();
                let path = path.clone();
                all.spawn(async move { get(&host, port, &path).await });
            }

            let mut tally = Tally::default();
            all.join_all()
                .await
                .into_iter()
                .for_each(|outcome| tally.count(outcome));

            Ok(tally.into_json())
        }
        "load" => {
            let end = Instant::now() + Duration::from_millis(order["millis"].as_u64().unwrap_or(0));
            let mut tally = Tally::default();
            while Instant::now() < end {
                tally.count(get(text("host")?, port, text("path")?).await);
                tokio::time::sleep(REQUEST_INTERVAL).await;
            }
            Ok(tally.into_json())
        }
        "mix" => mix(order, port).await,
        "counts" => {
            let Counts { answered, waiting } = counts;
            Ok(
                json!({"answered": answered.load(Ordering::SeqCst), "waiting": waiting.load(Ordering::SeqCst)}),
            )
        }
        other => bail!("unknown command {other}"),
    }
}

/// Number of successful requests, and the first failures.
#[derive(Default)]
struct Tally {
    /// Number of requests with status 200, or with the expected outcome.
    ok: u64,
    /// Number of other requests.
    failed: u64,
    /// The first failures.
    failures: Vec<Value>,
}

impl Tally {
    /// Counts a request.
    fn count(&mut self, outcome: Result<Value>) {
        let failure = match outcome {
            Ok(answer) if answer["status"] == 200 => {
                self.ok += 1;
                return;
            }
            Ok(answer) => answer,
            Err(error) => json!(format!("{error:#}")),
        };
        self.failed += 1;
        if self.failures.len() < MAX_PRINTED {
            self.failures
                .push(json!({"after": self.ok, "was": failure}));
        }
    }

    /// Counts a request that must have this status, or be refused: by a policy of a proxy, or by a
    /// closed connection, which a client's own proxy reports with 503. A request without any
    /// response in time is not refused but lost.
    fn expect(&mut self, expected: &Value, request: &Value, outcome: Result<Value>) {
        let is_as_expected = match (&outcome, expected.as_u64()) {
            (Ok(answer), Some(status)) => answer["status"] == status,
            (Ok(answer), None) => answer["status"] == 403 || answer["status"] == 503,
            (Err(error), None) => !format!("{error:#}").contains("no answer in"),
            (Err(_), Some(_)) => false,
        };
        if is_as_expected {
            self.ok += 1;
            return;
        }

        self.failed += 1;
        if self.failures.len() < MAX_PRINTED {
            let was = outcome.unwrap_or_else(|error| json!(format!("{error:#}")));
            let failure = json!({"after": self.ok, "request": request, "was": was});
            self.failures.push(failure);
        }
    }

    /// The counts as JSON.
    fn into_json(self) -> Value {
        json!({"ok": self.ok, "failed": self.failed, "failures": self.failures})
    }
}

/// Sends requests in turn, and counts those whose outcome is another than expected.
async fn mix(order: &Value, port: u16) -> Result<Value> {
    let requests = order["requests"].as_array().context("no requests")?;
    let count = order["count"].as_u64().context("no count")?;
    let goes_on = Path::new(order["while"].as_str().context("no while")?);
    let millis = order["millis"].as_u64().context("no millis")?;
    let end = Instant::now() + Duration::from_millis(millis);

    let mut tally = Tally::default();
    for request in requests.iter().cycle() {
        let is_enough = tally.ok + tally.failed >= count && !goes_on.exists();
        if is_enough || Instant::now() > end {
            break;
        }
        let text = |key: &str| request[key].as_str().with_context(|| format!("no {key}"));
        let outcome = send(text("method")?, text("host")?, port, text("path")?).await;
        tally.expect(&request["expected"], request, outcome);
        tokio::time::sleep(REQUEST_INTERVAL).await;
    }
    Ok(tally.into_json())
}

/// Requests a page of another pod.
async fn get(host: &str, port: u16, path: &str) -> Result<Value> {
    send("GET", host, port, path).await
}

/// Sends a request to another pod.
async fn send(method: &str, host: &str, port: u16, path: &str) -> Result<Value> {
    let address: SocketAddr = tokio::net::lookup_host((host, port))
        .await?
        .next()
        .context("no address")?;
    let authority = format!("{host}:{port}");
    let reply = navarch_testkit::client::send(method, address, &authority, path, &[]).await?;
    Ok(json!({"status": reply.status.as_u16(), "body": reply.body}))
}

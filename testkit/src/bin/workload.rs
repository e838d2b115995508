//! The program of pods on a real node: an application, or a client that counts responses.
//!
//! `workload serve NAME PORT` answers every request with NAME; response headers contain the
//! received path and host (`x-seen-path`, `x-seen-host`) and Envoy's identity of the client
//! (`x-seen-client`). On SIGTERM it completes requests in progress and accepts no new ones.
//!
//! `workload load PORT RATE ADDRESS/HOST/PATH…` sends RATE requests per second to each address,
//! with the host HOST and without retries: half of them on their own connections, the others on a
//! shared one. `GET /` on PORT returns the counts ([`Tally`]) since the start.
//!
//! `workload get COUNT ADDRESS/HOST/PATH` sends COUNT requests one after the other, and prints the
//! counts; it fails if a request failed. `workload try` does not fail.
//!
//! `workload sniff ONE OTHER WORD` prints `listening`, and at the end of its input the number of
//! frames between two addresses, and of those with WORD in clear text
//! ([`navarch_testkit::sniffer::Seen`]).

#![expect(clippy::print_stdout, reason = "its output is a pod's log")]
#![allow(
    clippy::disallowed_methods,
    reason = "a test program may use the clock, and spawn"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use axum::Router;
use axum::extract::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use navarch_testkit::sniffer::Sniffer;
use navarch_testkit::tally::Tally;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// The usage message.
const USAGE: &str = "serve NAME PORT | load PORT RATE ADDRESS/HOST/PATH… | get|try COUNT ADDRESS/HOST/PATH | sniff ONE OTHER WORD";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which an unanswered connection attempt is repeated. The kernel repeats the first
/// packet after 1, 3 and 7 s, so three lost in a row would count as a lost request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", name, port] => serve(name, port.parse()?).await,
        ["load", port, rate, targets @ ..] => load(port.parse()?, rate.parse()?, targets).await,
        ["get", count, target] => get(count.parse()?, target).await?.none_lost(target, 1),
        ["try", count, target] => get(count.parse()?, target).await.map(drop),
        ["sniff", one, other, word] => sniff(one.parse()?, other.parse()?, word),
        _ => bail!("{USAGE}"),
    }
}

/// Listens on all addresses.
async fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        .await
        .with_context(|| format!("port {port}"))
}

/// Completes when the process gets a termination signal.
async fn wait_for_termination() {
    let handlers = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    );
    // Without handlers a signal ends the process anyway.
    let (Ok(mut term), Ok(mut int)) = handlers else {
        return std::future::pending().await;
    };
    tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
}

async fn serve(name: &str, port: u16) -> Result<()> {
    let own_name = name.to_owned();
    let app = Router::new().fallback(move |request: Request| {
        let header = |name: &str| {
            request
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };

        let seen = [
            ("x-seen-path", request.uri().path().to_owned()),
            ("x-seen-host", header("host")),
            ("x-seen-client", header("x-forwarded-client-cert")),
        ];
        let name = own_name.clone();
        async move { (seen, name) }
    });

    let listener = listen(port).await?;
    println!("{name} listens on {port}");
    axum::serve(listener, app)
        .with_graceful_shutdown(wait_for_termination())
        .await?;

    Ok(())
}

/// Sends requests one after the other, and prints the counts.
async fn get(count: usize, target: &str) -> Result<Tally> {
    let target = Target::parse(target)?;
    let mut tally = Tally::default();
    for _ in 0..count {
        let begun = Instant::now();
        let outcome = in_time(async { ask(&mut connect(&target).await?, &target).await }).await;
        tally.count(
            &target.host,
            begun.elapsed(),
            outcome.map(|reply| reply.text),
        );
    }
    println!("{}", serde_json::to_string(&tally)?);
    Ok(tally)
}

/// Captures the frames of the network namespace of this process.
fn sniff(one: Ipv4Addr, other: Ipv4Addr, word: &str) -> Result<()> {
    let sniffer = Sniffer::start()?;
    println!("listening");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    println!(
        "{}",
        serde_json::to_string(&sniffer.stop(one, other, word))?
    );
    Ok(())
}

/// The target of requests.
#[derive(Clone, Debug)]
struct Target {
    /// The address to connect to: `name:port`.
    address: String,
    /// The host of the request.
    host: String,
    path: String,
}

impl Target {
    /// Parses `ADDRESS/HOST/PATH`.
    fn parse(text: &str) -> Result<Self> {
        let (address, rest) = text
            .split_once('/')
            .with_context(|| format!("{text}: ADDRESS/HOST/PATH"))?;
        let (host, path) = rest
            .split_once('/')
            .with_context(|| format!("{text}: ADDRESS/HOST/PATH"))?;
        Ok(Self {
            address: address.to_owned(),
            host: host.to_owned(),
            path: format!("/{path}"),
        })
    }
}

async fn load(port: u16, rate: u32, targets: &[&str]) -> Result<()> {
    ensure!(rate > 1, "RATE must be at least 2");
    let tally = Arc::new(Mutex::new(Tally::default()));

    for target in targets {
        let target = Target::parse(target)?;
        // Half of the requests each.
        let pause = Duration::from_secs(2) / rate;
        tokio::spawn(on_connections_of_their_own(
            target.clone(),
            pause,
            tally.clone(),
        ));
        tokio::spawn(on_one_connection(target, pause, tally.clone()));
    }

    let app = Router::new().fallback(move || {
        let tally = tally.clone();
        // It contains only numbers and texts, which can always be encoded.
        async move { serde_json::to_string(&*tally.lock().await).unwrap_or_default() }
    });
    axum::serve(listen(port).await?, app)
        .with_graceful_shutdown(wait_for_termination())
        .await?;

    Ok(())
}

/// Sends requests at the rate, whether responses arrive or not.
async fn on_connections_of_their_own(target: Target, pause: Duration, tally: Arc<Mutex<Tally>>) {
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let target = target.clone();
        let tally = tally.clone();
        tokio::spawn(async move {
            let begun = Instant::now();
            let outcome = in_time(async { ask(&mut connect(&target).await?, &target).await }).await;
            tally.lock().await.count(
                &target.host,
                begun.elapsed(),
                outcome.map(|reply| reply.text),
            );
        });
    }
}

/// Sends sequential requests on a connection that is kept as long as the server allows it.
async fn on_one_connection(target: Target, pause: Duration, tally: Arc<Mutex<Tally>>) {
    let mut kept: Option<SendRequest<Empty<Bytes>>> = None;

    loop {
        let begun = Instant::now();

        // A connection that was closed while idle has lost no request.
        let usable = match kept.take() {
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let outcome = in_time(async {
            let mut sender = match usable {
                Some(sender) => sender,
                None => connect(&target).await?,
            };
            let reply = ask(&mut sender, &target).await?;
            Ok((sender, reply))
        });

        let outcome = outcome.await.map(|(sender, reply)| {
            kept = reply.kept.then_some(sender);
            reply.text
        });
        tally
            .lock()
            .await
            .count(&target.host, begun.elapsed(), outcome);

        sleep(pause.saturating_sub(begun.elapsed())).await;
    }
}

struct Reply {
    /// The body of a response with status 200, or else the status.
    text: String,
    /// Whether the connection can be reused.
    kept: bool,
}

/// Fails on a timeout.
async fn in_time<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(REQUEST_TIMEOUT, work)
        .await
        .unwrap_or_else(|_| bail!("no answer in {REQUEST_TIMEOUT:?}"))
}

/// A connection to a target.
async fn connect(target: &Target) -> Result<SendRequest<Empty<Bytes>>> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(&target.address).await?.collect();
    let stream = loop {
        let attempt = TcpStream::connect(addresses.as_slice());
        match timeout(CONNECT_TIMEOUT, attempt).await {
            Ok(connected) => break connected.context("no connection")?,
            // The caller's timeout ends the loop.
            Err(_) => continue,
        }
    };
    stream.set_nodelay(true)?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Its errors are also errors of the request on it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Sends one request on a connection; any status but 200 is a failure.
async fn ask(sender: &mut SendRequest<Empty<Bytes>>, target: &Target) -> Result<Reply> {
    let request = hyper::Request::get(&target.path)
        .header("host", &target.host)
        .body(Empty::new())?;
    let response = sender.send_request(request).await?;
    let (parts, body) = response.into_parts();
    let body = String::from_utf8_lossy(&body.collect().await?.to_bytes()).into_owned();
    ensure!(parts.status == 200, "{} {body}", parts.status);
    let kept = parts
        .headers
        .get("connection")
        .is_none_or(|value| value != "close");
    Ok(Reply { text: body, kept })
}

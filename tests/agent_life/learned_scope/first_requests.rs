//! First requests under conditions that are not kind: many at once, clients that do not wait, a control
//! plane that does not respond, and streams instead of requests with a body.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use futures_util::{SinkExt as _, StreamExt as _};
use navarch_testkit::backend::Backend;
use navarch_testkit::client;
use navarch_testkit::requests::Requests;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_tungstenite::tungstenite::Message;

use super::{ANY_PORT, World, mesh, service, until_routed};
use crate::pod::{Pod, signal};

/// Hosts with a backend that no workload has used.
const HOSTS: usize = 40;
/// The requests that are sent one after the other.
const IN_ORDER: usize = 10;
/// Longer than requests are on their way to a filter, and shorter than it waits.
const WAITING: Duration = Duration::from_secs(1);

/// The name of a host.
fn name(number: usize) -> String {
    format!("host-{number}")
}

/// A world with so many hosts of one backend, and a pod that has used none of them.
async fn start(backend: &Backend) -> Result<(World, Pod)> {
    let world = World::start().await?;
    let services: String = (0..HOSTS)
        .map(|number| service(&name(number), world.port, backend.address, "*"))
        .collect();
    let used = service("reviews", world.port, world.reviews.address, "*");
    let text = mesh(world.port, &[used, services].concat());
    world.server.write_mesh(&text)?;

    let mut pod = Pod::start(&world.server, &[])?;
    pod.wait_ready().await?;
    until_routed(&pod, &name(HOSTS - 1)).await;
    Ok((world, pod))
}

/// How long a request that succeeds takes.
async fn success(world: &World, host: &str) -> Result<Duration> {
    let begun = Instant::now();
    let authority = format!("{host}.example");
    let reply = client::get(world.listener(), &authority, "/", &[]).await?;
    ensure!(reply.status == 200, "{host}: {reply:?}");
    Ok(begun.elapsed())
}

/// The median and the longest of some times.
fn shown(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let median = times.get(times.len() / 2);
    format!("median {median:?}, longest {:?}", times.last())
}

#[tokio::test]
async fn first_requests_succeed_one_by_one_and_many_at_once() -> Result<()> {
    let backend = Backend::start("host", ANY_PORT).await?;
    let (world, mut pod) = start(&backend).await?;
    let before = world.requested().await?;

    let mut times = Vec::new();
    for number in 0..IN_ORDER {
        times.push(success(&world, &name(number)).await?);
    }
    println!("one after the other: {}", shown(times));

    // Three requests for each host: all wait for one and the same cluster.
    let at_once = (IN_ORDER..HOSTS).flat_map(|number| [number; 3]);
    let requests = at_once.map(async |number| success(&world, &name(number)).await);
    println!("at once: {}", shown(try_join_all(requests).await?));

    // Streams end every two seconds, and Envoy repeats what it has requested on the next one.
    let requested = world.requested().await? - before;
    let served = backend.served();
    ensure!(requested >= HOSTS as u64, "{requested} clusters");
    ensure!(served == IN_ORDER + 3 * (HOSTS - IN_ORDER), "{served}");
    ensure!(pod.stop().await? == 0, "it exits with 0");
    Ok(())
}

#[tokio::test]
async fn clients_that_do_not_wait_and_a_control_plane_that_stops_fail_no_other_request()
-> Result<()> {
    let backend = Backend::start("host", ANY_PORT).await?;
    let (world, mut pod) = start(&backend).await?;
    success(&world, "reviews").await?;
    let used = Requests::begin(world.listener(), "reviews.example", "/");
    let control_plane = world.server.pid();

    // Half of the clients leave while their requests wait, and the others get their responses.
    signal(control_plane, "STOP")?;
    let leaving = (0..HOSTS / 2).map(|number| begin(world.listener(), number));
    let left: Vec<TcpStream> = try_join_all(leaving).await?;
    let staying = (HOSTS / 4..HOSTS * 3 / 4).map(|number| {
        let host = name(number);
        let world = &world;
        async move { success(world, &host).await }
    });
    let resume = async {
        sleep(WAITING).await;
        drop(left);
        sleep(WAITING).await;
        signal(control_plane, "CONT")
    };
    let (replies, resumed) = tokio::join!(join_all(staying), resume);
    resumed?;
    let times = replies.into_iter().collect::<Result<Vec<_>>>()?;
    println!("with a pause of the control plane: {}", shown(times));

    // Without a control plane a first request ends with an error, and succeeds later.
    let late = name(HOSTS - 1);
    signal(control_plane, "STOP")?;
    let begun = Instant::now();
    let authority = format!("{late}.example");
    let reply = client::get(world.listener(), &authority, "/", &[]).await;
    let waited = begun.elapsed();
    signal(control_plane, "CONT")?;
    let reply = reply?;
    ensure!(reply.status == 503, "no control plane: {reply:?}");
    println!("an error after {waited:?}");
    for number in 0..HOSTS {
        success(&world, &name(number)).await?;
    }

    let tally = used.end().await?;
    println!("{} requests for a used host meanwhile", tally.asked);
    ensure!(pod.processes() == 1, "{}", pod.log());
    ensure!(pod.stop().await? == 0, "it exits with 0");
    Ok(())
}

/// Sends a request, and does not read the response.
async fn begin(listener: SocketAddr, number: usize) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(listener).await?;
    let host = name(number);
    let request = format!("GET / HTTP/1.1\r\nhost: {host}.example\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// A server that returns what it receives on a WebSocket. It ends when dropped.
struct EchoSocket {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl EchoSocket {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind(ANY_PORT).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(echo(stream));
            }
        });
        Ok(Self { address, task })
    }
}

impl Drop for EchoSocket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the messages of one WebSocket until it is closed.
async fn echo(stream: TcpStream) -> Result<()> {
    let mut socket = tokio_tungstenite::accept_async(stream).await?;
    while let Some(message) = socket.next().await {
        let message = message?;
        if message.is_text() {
            socket.send(message).await?;
        }
    }
    Ok(())
}

/// A server of HTTP/2 that returns each part of a body as soon as it comes.
struct EchoStream {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl EchoStream {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind(ANY_PORT).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(return_parts(stream));
            }
        });
        Ok(Self { address, task })
    }
}

impl Drop for EchoStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the parts of the bodies of one connection.
async fn return_parts(stream: TcpStream) -> Result<()> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request?;
        tokio::spawn(async move {
            let mut body = request.into_body();
            let mut out = respond.send_response(http::Response::new(()), false)?;
            while let Some(part) = body.data().await {
                let part = part?;
                body.flow_control().release_capacity(part.len())?;
                out.send_data(part, false)?;
            }
            out.send_data(Bytes::new(), true)
        });
    }
    Ok(())
}

/// A service whose backends speak HTTP/2.
fn of_http_2(service: &str) -> String {
    service
        .replace(
            "name: http, protocol: HTTP}",
            "name: http2, protocol: HTTP2}",
        )
        .replace("ports: {http:", "ports: {http2:")
}

#[tokio::test]
async fn a_first_request_can_be_an_upgrade_a_stream_or_a_long_upload() -> Result<()> {
    let backend = Backend::start("host", ANY_PORT).await?;
    let (world, mut pod) = start(&backend).await?;
    let socket = EchoSocket::start().await?;
    let stream = EchoStream::start().await?;
    let services = [
        service("socket", world.port, socket.address, "*"),
        of_http_2(&service("stream", world.port, stream.address, "*")),
        of_http_2(&service("upload", world.port, stream.address, "*")),
    ];
    let text = mesh(world.port, &services.concat());
    world.server.write_mesh(&text)?;
    until_routed(&pod, "upload").await;

    let uri = format!("ws://socket.example:{}/", world.port);
    let tcp = TcpStream::connect(world.listener()).await?;
    let (mut client, _) = tokio_tungstenite::client_async(uri, tcp).await?;
    for text in ["one", "two"] {
        client.send(Message::text(text)).await?;
        let back = client.next().await.context("an echo")??;
        ensure!(back.to_text()? == text, "{back:?}");
    }

    both_ways(world.listener(), "stream.example").await?;

    // More than Envoy keeps of a body while a request waits.
    let body = format!("\"{}\"", "x".repeat(8_000_000));
    let length = body.len();
    let reply = client::post(world.listener(), "upload.example", "/", body).await?;
    ensure!(reply.status == 200, "{}", reply.status);
    ensure!(reply.body.len() == length, "{} bytes", reply.body.len());
    ensure!(pod.stop().await? == 0, "it exits with 0");
    Ok(())
}

/// Sends parts of a body on one stream of HTTP/2, each after the previous one has come back.
async fn both_ways(listener: SocketAddr, host: &str) -> Result<()> {
    let tcp = TcpStream::connect(listener).await?;
    let (client, connection) = h2::client::handshake(tcp).await?;
    let connection = tokio::spawn(connection);
    let request = http::Request::post(format!("http://{host}/")).body(())?;
    let mut client = client.ready().await?;
    let (response, mut out) = client.send_request(request, false)?;

    out.send_data(Bytes::from_static(b"one"), false)?;
    let response = response.await?;
    ensure!(response.status() == 200, "{response:?}");
    let mut body = response.into_body();
    let first = body.data().await.context("a part")??;
    ensure!(first == "one", "{first:?}");

    out.send_data(Bytes::from_static(b"two"), true)?;
    let second = body.data().await.context("a part")??;
    ensure!(second == "two", "{second:?}");
    connection.abort();
    Ok(())
}

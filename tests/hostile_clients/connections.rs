//! Attacks by connections that send nothing, or read nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::grpc::Connection;
use crate::network::{client, connect, connect_tls, tls_config};
use crate::plane::{HTTP, HTTPS, MONITORING, SECURE};

/// How long an attacker waits before it reopens a closed connection.
const AGAIN: Duration = Duration::from_secs(1);

/// Counts the outcomes of connections.
#[derive(Default)]
struct Tally {
    opened: AtomicUsize,
    failed: AtomicUsize,
    closed: AtomicUsize,
}

impl Tally {
    fn summary(&self) -> String {
        let [opened, failed, closed] =
            [&self.opened, &self.failed, &self.closed].map(|count| count.load(Ordering::SeqCst));
        format!("{opened} opened, {failed} failed, {closed} closed by the server")
    }
}

/// Keeps this number of connections open until the end, by reopening closed ones.
async fn keep<F>(
    count: usize,
    end: Instant,
    open: impl Fn() -> F + Clone + Send + 'static,
) -> Result<String>
where
    F: Future<Output = Result<()>> + Send,
{
    let tally = Arc::new(Tally::default());
    let mut attackers = JoinSet::new();

    for _ in 0..count {
        let tally = tally.clone();
        let open = open.clone();
        attackers.spawn(timeout_at(end, async move {
            loop {
                tally.opened.fetch_add(1, Ordering::SeqCst);
                let counted = match open().await {
                    Ok(()) => &tally.closed,
                    Err(_) => &tally.failed,
                };
                counted.fetch_add(1, Ordering::SeqCst);
                sleep(AGAIN).await;
            }
        }));
    }

    attackers.join_all().await;
    let opened = tally.opened.load(Ordering::SeqCst);
    ensure!(opened >= count, "only {opened} of {count} could be opened");
    Ok(tally.summary())
}

/// 600 HTTP/2 connections to the webhook port that only respond to pings; opening them takes some
/// time.
pub(crate) async fn idle(time: Duration) -> Result<String> {
    // Limit concurrent handshakes, so that the port's limit is reached before the CPU's.
    let few = Arc::new(Semaphore::new(64));
    keep(600, Instant::now() + time * 2, move || {
        let few = few.clone();
        async move {
            let permit = few.acquire().await?;
            let connection = Connection::tls(client(66, 5), HTTPS).await?;
            drop(permit);
            while !connection.is_closed() {
                sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        }
    })
    .await
}

/// 64 requests to the webhook port that announce a body of 6 MiB and send none of it.
pub(crate) async fn announced(time: Duration) -> Result<String> {
    keep(64, Instant::now() + time, || async {
        let mut stream = connect_tls(client(66, 6), HTTPS, tls_config("http/1.1")).await?;
        let head =
            "POST /inject HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 6291456\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        drop(stream.read_to_end(&mut Vec::new()).await);
        Ok(())
    })
    .await
}

/// 2,000 connections to the TLS port of xDS without a handshake.
pub(crate) async fn silent(time: Duration) -> Result<String> {
    keep(2_000, Instant::now() + time, || async {
        let mut stream = connect(client(66, 7), SECURE).await?;
        stream.read_to_end(&mut Vec::new()).await?;
        Ok(())
    })
    .await
}

/// 600 connections to each of the two HTTP ports, which is above their limit, that request much and
/// read nothing.
pub(crate) async fn slow_readers(time: Duration) -> Result<String> {
    let end = Instant::now() + time;
    let read = |to: SocketAddr| keep(600, end, move || ask_and_wait(client(66, 8), to, end));
    let (http, monitoring) = tokio::join!(read(HTTP), read(MONITORING));
    Ok(format!("http: {}; monitoring: {}", http?, monitoring?))
}

/// Requests the largest pages again and again without reading them.
async fn ask_and_wait(from: Ipv4Addr, to: SocketAddr, end: Instant) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let mut stream = socket.connect(to).await?;
    let request =
        "GET /metrics HTTP/1.1\r\nhost: a\r\n\r\nGET /debug/list HTTP/1.1\r\nhost: a\r\n\r\n";
    for _ in 0..20 {
        stream.write_all(request.as_bytes()).await?;
    }
    sleep_until(end).await;
    Ok(())
}

//! Requests and streams through Envoy while it is replaced.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::pod::Pod;

/// Clients that send one request after the other, each on its own connection.
const CLIENTS: usize = 4;
/// The interval of each client's requests.
const REQUEST_INTERVAL: Duration = Duration::from_millis(10);

/// A server that sends back what it receives.
pub(super) async fn echo() -> Result<(SocketAddr, JoinSet<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let (mut reader, mut writer) = stream.split();
                drop(tokio::io::copy(&mut reader, &mut writer).await);
            });
        }
    });
    Ok((address, tasks))
}

/// Sends a request through the pod's Envoy.
pub(super) async fn request(address: SocketAddr) -> Result<()> {
    let host = format!("bank.example:{}", address.port());
    let reply = client::get(address, &host, "/", &[]).await?;
    ensure!(reply.status == 200, "{}: {}", reply.status, reply.body);
    Ok(())
}

/// Requests, without a pause.
pub(super) struct Traffic {
    is_over: Arc<AtomicBool>,
    clients: JoinSet<Counts>,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) sent: usize,
    pub(super) failed: Vec<String>,
}

impl Traffic {
    pub(super) fn start(address: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let is_over = is_over.clone();
            clients.spawn(async move {
                let mut counts = Counts::default();
                while !is_over.load(Ordering::Relaxed) {
                    counts.sent += 1;
                    if let Err(error) = request(address).await {
                        counts.failed.push(format!("{error:#}"));
                    }
                    sleep(REQUEST_INTERVAL).await;
                }
                counts
            });
        }
        Self { is_over, clients }
    }

    pub(super) async fn stop(mut self) -> Result<Counts> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Counts::default();
        while let Some(counts) = self.clients.join_next().await {
            let Counts { sent, failed } = counts?;
            all.sent += sent;
            all.failed.extend(failed);
        }
        Ok(all)
    }

    /// Stops, and checks that no request was lost.
    pub(super) async fn stop_without_loss(self, pod: &Pod) -> Result<()> {
        let counts = self.stop().await?;
        println!("{} requests, {} lost", counts.sent, counts.failed.len());
        ensure!(counts.failed.is_empty(), "{counts:?}\n{}", pod.log());
        ensure!(counts.sent > CLIENTS * 20, "too few requests: {counts:?}");
        Ok(())
    }
}

/// A connection that stays open.
pub(super) struct LongStream(TcpStream);

impl LongStream {
    pub(super) async fn open(address: SocketAddr) -> Result<Self> {
        let mut stream = Self(TcpStream::connect(address).await?);
        stream.exchange().await?;
        Ok(stream)
    }

    /// Sends a few bytes, and reads them back.
    pub(super) async fn exchange(&mut self) -> Result<()> {
        let mut answer = [0; 4];
        let exchange = async {
            self.0.write_all(b"ping").await?;
            self.0.read_exact(&mut answer).await
        };
        timeout(Duration::from_secs(10), exchange).await??;
        ensure!(&answer == b"ping", "{answer:?}");
        Ok(())
    }
}

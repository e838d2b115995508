//! A TCP connection that can be cut, held up and let go on: what stands between a program and a server in bad weather.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How long each piece waits on a slow connection.
const SLOW: Duration = Duration::from_millis(100);

/// The weather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Everything passes.
    Fair,
    /// Each piece of 16 KiB at most waits for 100 ms.
    Slow,
    /// Connections stand, and nothing passes.
    Silent,
    /// Connections are cut, and none can be made.
    Storm,
}

/// A forwarder in front of a server. It ends when dropped.
#[derive(Debug)]
pub struct Wire {
    /// Where it listens.
    pub address: SocketAddr,
    weather: Arc<watch::Sender<Weather>>,
    connections: Arc<watch::Sender<Connections>>,
    task: JoinHandle<()>,
}

/// How many connections there are.
#[derive(Clone, Copy, Debug, Default)]
struct Connections {
    /// Those that were ever begun.
    begun: usize,
    /// Those that have not ended.
    open: usize,
}

/// An open connection; counted out when dropped.
struct Open(Arc<watch::Sender<Connections>>);

impl Open {
    /// Counts one in.
    fn new(connections: &Arc<watch::Sender<Connections>>) -> Self {
        connections.send_modify(|count| {
            count.begun += 1;
            count.open += 1;
        });
        Self(connections.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|count| count.open -= 1);
    }
}

impl Wire {
    /// Starts one in front of `server`, in fair weather.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let address = listener.local_addr()?;
        let (sender, weather) = watch::channel(Weather::Fair);
        let counts = Arc::new(watch::Sender::new(Connections::default()));
        let counted = counts.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let (open, mut weather) = (Open::new(&counted), weather.clone());
                connections.spawn(async move {
                    let _open = open;
                    let mut storm = weather.clone();
                    let forward = async move {
                        // Who connects in silence gets no answer until it ends.
                        drop(weather.wait_for(|weather| *weather != Weather::Silent).await);
                        let Ok(far) = TcpStream::connect(server).await else { return };
                        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                        tokio::join!(copy(near_in, far_out, weather.clone()), copy(far_in, near_out, weather));
                    };
                    tokio::select! {
                        () = forward => {}
                        _ = storm.wait_for(|weather| *weather == Weather::Storm) => {}
                    }
                });
            }
        });
        Ok(Self { address, weather: Arc::new(sender), connections: counts, task })
    }

    /// Changes the weather.
    pub fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// Cuts all connections, and lets others be made as soon as none is left.
    pub async fn cut(&self) {
        self.set(Weather::Storm);
        // It is never closed: its sender is here.
        drop(self.connections.subscribe().wait_for(|count| count.open == 0).await);
        self.set(Weather::Fair);
    }

    /// How many connections were ever begun: who has noticed that one is broken begins another.
    #[must_use]
    pub fn begun(&self) -> usize {
        self.connections.borrow().begun
    }
}

/// Passes bytes on until the end, while it is not silent.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut weather: watch::Receiver<Weather>,
) {
    let mut buffer = vec![0_u8; 64 * 1024];
    loop {
        let is_slow = *weather.borrow() == Weather::Slow;
        let room = if is_slow { buffer.len() / 4 } else { buffer.len() };
        let Ok(count) = from.read(buffer.get_mut(..room).unwrap_or_default()).await else { break };
        if is_slow {
            tokio::time::sleep(SLOW).await;
        }
        if weather.wait_for(|weather| *weather != Weather::Silent).await.is_err() {
            return;
        }
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
    drop(to.shutdown().await);
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

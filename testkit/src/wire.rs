//! A TCP forwarder between a program and a server that can delay, block and cut connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The delay of each piece on a slow connection.
const SLOW: Duration = Duration::from_millis(100);

/// The state of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Everything passes.
    Fair,
    /// Each piece of at most 16 KiB is delayed by 100 ms.
    Slow,
    /// Connections stay open, but nothing is forwarded.
    Silent,
    /// Connections are cut, and new ones fail.
    Storm,
}

/// A forwarder in front of a server. It ends when dropped.
#[derive(Debug)]
pub struct Wire {
    /// The listen address.
    pub address: SocketAddr,
    weather: Arc<watch::Sender<LinkState>>,
    connections: Arc<watch::Sender<Connections>>,
    task: JoinHandle<()>,
}

/// Numbers of connections.
#[derive(Clone, Copy, Debug, Default)]
struct Connections {
    /// Number of connections so far.
    begun: usize,
    open: usize,
}

/// An open connection; it is counted until dropped.
struct Open(Arc<watch::Sender<Connections>>);

impl Open {
    /// Counts a new connection.
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
    /// Starts a forwarder to `server`, in the state `Fair`.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let address = listener.local_addr()?;
        let (sender, weather) = watch::channel(LinkState::Fair);
        let counts = Arc::new(watch::Sender::new(Connections::default()));
        let counted = counts.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();

            while let Ok((near, _)) = listener.accept().await {
                let open = Open::new(&counted);
                let mut weather = weather.clone();
                connections.spawn(async move {
                    let _open = open;
                    let mut storm = weather.clone();
                    let forward = async move {
                        // A connection in the state `Silent` gets no response until the state
                        // changes.
                        drop(
                            weather
                                .wait_for(|weather| *weather != LinkState::Silent)
                                .await,
                        );
                        let Ok(far) = TcpStream::connect(server).await else {
                            return;
                        };

                        let (near_in, near_out) = near.into_split();
                        let (far_in, far_out) = far.into_split();
                        tokio::join!(
                            copy(near_in, far_out, weather.clone()),
                            copy(far_in, near_out, weather)
                        );
                    };

                    tokio::select! {
                        () = forward => {}
                        _ = storm.wait_for(|weather| *weather == LinkState::Storm) => {}
                    }
                });
            }
        });

        Ok(Self {
            address,
            weather: Arc::new(sender),
            connections: counts,
            task,
        })
    }

    /// Changes the state.
    pub fn set(&self, weather: LinkState) {
        self.weather.send_replace(weather);
    }

    /// Cuts all connections, and allows new ones as soon as none is left.
    pub async fn cut(&self) {
        self.set(LinkState::Storm);
        // It is never closed, as its sender is in `self`.
        drop(
            self.connections
                .subscribe()
                .wait_for(|count| count.open == 0)
                .await,
        );
        self.set(LinkState::Fair);
    }

    /// Number of connections so far: a client that detects a broken one opens another.
    #[must_use]
    pub fn begun(&self) -> usize {
        self.connections.borrow().begun
    }
}

/// Forwards bytes until the end, except in the state `Silent`.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut weather: watch::Receiver<LinkState>,
) {
    let mut buffer = vec![0_u8; 64 * 1024];

    loop {
        let is_slow = *weather.borrow() == LinkState::Slow;
        let room = if is_slow {
            buffer.len() / 4
        } else {
            buffer.len()
        };

        let Ok(count) = from.read(buffer.get_mut(..room).unwrap_or_default()).await else {
            break;
        };

        if is_slow {
            tokio::time::sleep(SLOW).await;
        }

        if weather
            .wait_for(|weather| *weather != LinkState::Silent)
            .await
            .is_err()
        {
            return;
        }
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            break;
        };

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

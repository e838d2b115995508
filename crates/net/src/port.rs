//! A TCP port with limits: it counts connections by peer, and closes one when there are too many.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::activity::Activity;
use super::peer::client_key;
use super::rejections::Rejections;
use super::shares::Shares;
use super::stream::PortStream;

/// How long to wait after `accept` failed, as when file descriptors run out.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Limits of a port's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortLimits {
    /// Maximum number of open connections, those in a TLS handshake included. 0 counts as 1.
    pub connections: usize,
    /// Connections that have not finished their TLS handshake; `None` where there is no TLS.
    pub handshakes: Option<usize>,
    /// Number of `connections` that are reserved for loopback clients.
    pub loopback: usize,
}

/// A port with its connections.
///
/// When it is full, a new connection displaces the idlest connection of the peer with the most
/// connections, or of its own peer if no other has more. So a peer with few connections is always
/// admitted.
#[derive(Debug)]
pub struct Port {
    /// Its name in logs and metrics.
    name: &'static str,
    limits: PortLimits,
    rejections: Rejections,
    /// The reference of activity times.
    begun: Instant,
    table: Mutex<Table>,
}

/// The connections of a port.
#[derive(Debug, Default)]
struct Table {
    /// The number of the next connection.
    next: u64,
    all: Shares,
    /// Connections from other machines.
    remote: Shares,
    /// Connections that have not finished their TLS handshake.
    handshakes: Shares,
    /// Peer and last activity of each connection.
    activities: HashMap<u64, (IpAddr, Arc<Activity>)>,
}

/// The permit of a connection in a port; released when dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    port: Arc<Port>,
    number: u64,
    peer: IpAddr,
    activity: Arc<Activity>,
}

impl PortLimits {
    /// Limits of a port without TLS.
    #[must_use]
    pub fn plain(connections: usize) -> Self {
        Self {
            connections,
            handshakes: None,
            loopback: 0,
        }
    }
}

impl Port {
    /// A port without connections. `name` is its label in `navarch_rejected_total`.
    #[must_use]
    pub fn new(name: &'static str, limits: PortLimits, rejections: Rejections) -> Arc<Self> {
        Arc::new(Self {
            name,
            limits,
            rejections,
            begun: Instant::now(),
            table: Mutex::default(),
        })
    }

    /// A port without limits, for tests and tools.
    #[must_use]
    pub fn unlimited(name: &'static str) -> Arc<Self> {
        Self::new(name, PortLimits::plain(usize::MAX), Rejections::default())
    }

    /// Accepts the next connection. Errors of `accept` are logged and retried after 100 ms. Cancel
    /// safe.
    pub async fn accept(
        self: &Arc<Self>,
        listener: &TcpListener,
    ) -> (PortStream<TcpStream>, SocketAddr) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // Responses are written whole, so that Nagle's algorithm would only delay them.
                    drop(stream.set_nodelay(true));
                    return (PortStream::new(stream, self.admit(peer.ip())), peer);
                }
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => {
                    self.rejections.accept_failed(self.name, &error);
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    /// Serves each accepted connection with `handler` in a task of its own. Dropping the future
    /// aborts all of them; evicting a connection aborts only its own task.
    pub async fn for_each<F>(
        self: &Arc<Self>,
        listener: &TcpListener,
        tasks: &mut JoinSet<()>,
        handler: impl Fn(PortStream, SocketAddr) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            while tasks.try_join_next().is_some() {}
            let (stream, peer) = self.accept(listener).await;
            let activity = stream.place().activity().clone();
            let served = handler(stream, peer);
            tasks.spawn(async move {
                tokio::select! {
                    () = served => {}
                    () = activity.evicted() => {}
                }
            });
        }
    }

    /// Admits a connection, and closes others if there are too many.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> ConnectionPermit {
        let peer = client_key(peer);
        let activity = Arc::new(Activity::new(self.begun));
        let mut table = self.table.lock();
        let evicted = table.make_room(&self.limits, peer);
        let number = table.insert(peer, &activity, self.limits.handshakes.is_some());
        drop(table);
        for (reason, peer, activity) in evicted {
            self.rejections.count(self.name, reason, peer);
            activity.evict();
        }
        ConnectionPermit {
            port: self.clone(),
            number,
            peer,
            activity,
        }
    }

    /// Number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.lock().all.len()
    }

    /// Whether there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts a client that is rejected for a reason other than the number of connections.
    pub fn reject(&self, reason: &'static str, peer: impl std::fmt::Display) {
        self.rejections.count(self.name, reason, peer);
    }
}

impl Table {
    /// Removes connections until there is room for one of `newcomer`. Returns each with the reason.
    fn make_room(
        &mut self,
        limits: &PortLimits,
        newcomer: IpAddr,
    ) -> Vec<(&'static str, IpAddr, Arc<Activity>)> {
        let mut evicted = Vec::new();

        if let Some(handshakes) = limits.handshakes {
            while self.handshakes.len() >= handshakes.max(1) {
                let Some(victim) = self.handshakes.victim(newcomer) else {
                    break;
                };
                evicted.extend(
                    self.remove(victim)
                        .map(|(peer, activity)| ("too_many_handshakes", peer, activity)),
                );
            }
        }

        let remote = limits.connections.saturating_sub(limits.loopback).max(1);
        while !newcomer.is_loopback() && self.remote.len() >= remote {
            let Some(victim) = self.remote.victim(newcomer) else {
                break;
            };
            evicted.extend(
                self.remove(victim)
                    .map(|(peer, activity)| ("too_many_connections", peer, activity)),
            );
        }

        while self.all.len() >= limits.connections.max(1) {
            let Some(victim) = self.all.victim(newcomer) else {
                break;
            };
            evicted.extend(
                self.remove(victim)
                    .map(|(peer, activity)| ("too_many_connections", peer, activity)),
            );
        }

        evicted
    }

    /// Adds a connection; returns its number.
    fn insert(&mut self, peer: IpAddr, activity: &Arc<Activity>, shakes_hands: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        self.all.insert(number, peer, activity.clone());
        if !peer.is_loopback() {
            self.remote.insert(number, peer, activity.clone());
        }
        if shakes_hands {
            self.handshakes.insert(number, peer, activity.clone());
        }
        self.activities.insert(number, (peer, activity.clone()));
        number
    }

    /// Removes a connection, if it still exists.
    fn remove(&mut self, number: u64) -> Option<(IpAddr, Arc<Activity>)> {
        let found = self.activities.remove(&number)?;
        self.all.remove(number);
        self.remote.remove(number);
        self.handshakes.remove(number);
        Some(found)
    }
}

impl ConnectionPermit {
    /// Shared with the port, which evicts the connection that was idle for the longest time.
    #[must_use]
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Records that the TLS handshake is complete.
    pub fn established(&self) {
        self.port.table.lock().handshakes.remove(self.number);
    }

    /// Counts a rejection of the client.
    pub fn reject(&self, reason: &'static str) {
        self.port.reject(reason, self.peer);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.port.table.lock().remove(self.number);
    }
}

/// Whether the error affects only one connection, which the client closed before it was accepted.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests;

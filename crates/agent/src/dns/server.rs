//! The DNS listeners, over UDP and TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::{Carrier, DnsAnswer, Question, answer};
use super::forward::Forwarding;
use super::table::NameTableSink;
use super::{BeforeTable, DnsConfig};
use crate::metrics::AgentMetrics;
use crate::random;
use navarch_net::listen::listen;
use navarch_net::port::{Port, PortLimits};
use navarch_net::rejections::Rejections;
use navarch_net::stream::PortStream;

/// Maximum number of TCP connections. Clients use TCP only for responses that do not fit a
/// datagram.
const MAX_CONNECTIONS: usize = 256;
/// Idle timeout of a TCP connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay after a socket error, as when no file descriptors are left.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Bound sockets that are not served yet.
#[derive(Debug)]
pub struct DnsServer {
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpListener>,
    handler: DnsHandler,
}

#[derive(Debug)]
struct DnsHandler {
    names: NameTableSink,
    /// The upstream resolvers.
    forwarding: Forwarding,
    /// Behaviour before the first name table.
    before_table: BeforeTable,
    metrics: AgentMetrics,
}

impl DnsServer {
    /// Binds the sockets; queries are not answered yet.
    ///
    /// # Errors
    /// When an address cannot be listened on.
    pub async fn bind(config: DnsConfig, names: NameTableSink) -> io::Result<Self> {
        let mut udp = Vec::new();
        let mut tcp = Vec::new();
        let mut own = Vec::new();

        for address in &config.listen {
            let listener = listen(*address)?;
            // With port 0, UDP takes the port that TCP got.
            let address = listener.local_addr()?;
            udp.push(UdpSocket::bind(address).await?);
            own.push(address);
            tcp.push(listener);
        }

        let DnsConfig {
            listen: _,
            resolvers,
            parallel,
            timeout,
            before_table,
        } = config;

        let forwarding = Forwarding::new(&resolvers, &own, parallel, timeout);
        Ok(Self {
            udp,
            tcp,
            handler: DnsHandler {
                names,
                forwarding,
                before_table,
                metrics: AgentMetrics::default(),
            },
        })
    }

    /// The same, with metrics.
    #[must_use]
    pub fn counted_by(mut self, metrics: AgentMetrics) -> Self {
        self.handler.metrics = metrics;
        self
    }

    /// The listen addresses.
    ///
    /// # Errors
    /// If the socket has no local address.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.udp.iter().map(UdpSocket::local_addr).collect()
    }
}

/// Answers queries until shutdown.
pub async fn serve(server: DnsServer, stop: CancellationToken) {
    let DnsServer { udp, tcp, handler } = server;
    let handler = Arc::new(handler);
    let mut tasks = JoinSet::new();
    for socket in udp {
        tasks.spawn(datagrams(Arc::new(socket), handler.clone()));
    }

    let port = Port::new(
        "dns",
        PortLimits::plain(MAX_CONNECTIONS),
        Rejections::default(),
    );
    for listener in tcp {
        tasks.spawn(connections(listener, handler.clone(), port.clone()));
    }

    stop.cancelled().await;
    tasks.shutdown().await;
}

impl DnsHandler {
    /// Decides how a message is answered.
    fn decide(&self, message: &[u8], carrier: Carrier) -> DnsAnswer {
        self.metrics.count_dns_query();
        let table = self.names.table();
        let random = u32::from_be_bytes(random::bytes());
        answer(
            message,
            carrier,
            table.as_deref(),
            random,
            self.before_table == BeforeTable::Forward,
        )
    }

    /// Forwards a query to the upstream resolvers, unless the agent itself sent it.
    async fn forward(&self, message: &[u8], peer: SocketAddr, question: Question) -> Vec<u8> {
        if self.forwarding.is_own(message, peer) {
            tracing::warn!(
                "DNS loop: a query to the upstream resolvers came back to the agent, because its own traffic is captured"
            );
            return question.failure;
        }
        let begun = Instant::now();
        let failure = question.failure.clone();
        let answer = self.forwarding.forward(message, question).await;
        self.metrics
            .dns_forwarded(begun.elapsed(), answer != failure);
        answer
    }
}

/// Serves a UDP socket; does not return. Forwarded queries run concurrently.
async fn datagrams(socket: Arc<UdpSocket>, handler: Arc<DnsHandler>) {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let mut forwarded = JoinSet::new();

    loop {
        while forwarded.try_join_next().is_some() {}
        let (length, peer) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                // This includes ICMP errors for earlier responses to clients that have closed their
                // port.
                tracing::debug!(%error, "failed to receive on the UDP socket");
                if error.kind() != io::ErrorKind::ConnectionRefused {
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                continue;
            }
        };

        let Some(message) = buffer.get(..length) else {
            continue;
        };

        match handler.decide(message, Carrier::Udp) {
            // Errors of sending to a client are ignored.
            DnsAnswer::Now(answer) => drop(socket.send_to(&answer, peer).await),
            DnsAnswer::Forward(question) => {
                let socket = socket.clone();
                let handler = handler.clone();
                let message = message.to_vec();
                forwarded.spawn(async move {
                    let answer = handler.forward(&message, peer, question).await;
                    drop(socket.send_to(&answer, peer).await);
                });
            }
            DnsAnswer::Nothing => {}
        }
    }
}

/// Serves TCP connections; does not return.
async fn connections(listener: TcpListener, handler: Arc<DnsHandler>, port: Arc<Port>) {
    let serve = |stream, peer| {
        let handler = handler.clone();
        async move {
            if let Err(error) = serve_connection(stream, peer, &handler).await {
                tracing::debug!(%peer, %error, "connection ended with an error");
            }
        }
    };
    port.for_each(&listener, &mut JoinSet::new(), serve).await;
}

/// Answers the queries of a connection in order.
async fn serve_connection(
    mut stream: PortStream,
    peer: SocketAddr,
    handler: &DnsHandler,
) -> io::Result<()> {
    let slow = |_| io::Error::from(io::ErrorKind::TimedOut);

    loop {
        let read = async {
            let length = stream.read_u16().await?;
            let mut message = vec![0; usize::from(length)];
            stream.read_exact(&mut message).await?;
            io::Result::Ok(message)
        };

        let message = match tokio::time::timeout(IDLE_TIMEOUT, read)
            .await
            .map_err(slow)?
        {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            message => message?,
        };
        let answer = match handler.decide(&message, Carrier::Tcp) {
            DnsAnswer::Now(answer) => answer,
            DnsAnswer::Forward(question) => handler.forward(&message, peer, question).await,
            DnsAnswer::Nothing => return Ok(()),
        };

        let length =
            u16::try_from(answer.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend_from_slice(&answer);
        tokio::time::timeout(IDLE_TIMEOUT, stream.write_all(&framed))
            .await
            .map_err(slow)??;
    }
}

//! Forwards queries to the machine's resolvers, byte for byte except for the query ID.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use super::answer::{Carrier, Question, fit};
use crate::random;
use navarch_tables::hash::KeyedSet;

/// Maximum number of concurrent queries. At this number the resolvers are down or overloaded, and
/// further queries fail at once.
const MAX_CONCURRENT_QUERIES: usize = 1024;
/// Size of a DNS header.
const HEADER: usize = 12;
/// The response codes after which another resolver is tried: SERVFAIL, NOTIMP, REFUSED.
const UNWILLING: [u8; 3] = [2, 4, 5];

/// A client of the resolvers. Clones share their state.
#[derive(Clone, Debug)]
pub struct Forwarding(Arc<Inner>);

/// The shared state of clones.
#[derive(Debug)]
struct Inner {
    resolvers: Vec<SocketAddr>,
    /// Whether all are queried concurrently.
    parallel: bool,
    /// Timeout of each resolver.
    timeout: Duration,
    /// Limits concurrent queries.
    room: Semaphore,
    /// IDs and ports of queries in flight, to detect loops.
    pending: Mutex<KeyedSet<(u16, u16)>>,
}

/// A query in flight; removed when dropped.
struct PendingQuery<'a> {
    inner: &'a Inner,
    /// ID and source port.
    key: (u16, u16),
}

impl Drop for PendingQuery<'_> {
    fn drop(&mut self) {
        self.inner.pending.lock().remove(&self.key);
    }
}

impl Forwarding {
    /// A client of these resolvers, except those that are the agent itself.
    #[must_use]
    pub fn new(
        resolvers: &[SocketAddr],
        own: &[SocketAddr],
        parallel: bool,
        timeout: Duration,
    ) -> Self {
        let is_own = |resolver: &SocketAddr| {
            own.iter().any(|own| {
                own.port() == resolver.port()
                    && (own.ip() == resolver.ip()
                        || own.ip().is_unspecified() && resolver.ip().is_loopback())
            })
        };

        let (own, resolvers): (Vec<_>, Vec<_>) = resolvers.iter().copied().partition(is_own);
        if !own.is_empty() {
            tracing::warn!(
                ?own,
                "upstream resolvers that are the agent itself are ignored"
            );
        }

        let inner = Inner {
            resolvers,
            parallel,
            timeout,
            room: Semaphore::new(MAX_CONCURRENT_QUERIES),
            pending: Mutex::default(),
        };

        Self(Arc::new(inner))
    }

    /// Whether a query is one of the agent's own that was looped back to it.
    #[must_use]
    pub fn is_own(&self, message: &[u8], peer: SocketAddr) -> bool {
        let id = message.first_chunk::<2>().map(|id| u16::from_be_bytes(*id));
        id.is_some_and(|id| self.0.pending.lock().contains(&(id, peer.port())))
    }

    /// The resolvers' answer, or the prepared failure response.
    pub async fn forward(&self, message: &[u8], question: Question) -> Vec<u8> {
        let Question {
            failure,
            limit,
            carrier,
        } = question;
        let Ok(_permit) = self.0.room.try_acquire() else {
            tracing::debug!("too many concurrent DNS queries");
            return failure;
        };
        let answer = if self.0.parallel {
            self.race(message, carrier).await
        } else {
            self.query_resolvers(message, carrier).await
        };
        answer
            .and_then(|answer| fit(answer, limit))
            .unwrap_or(failure)
    }

    /// Queries one resolver after the other, starting with a random one.
    async fn query_resolvers(&self, message: &[u8], carrier: Carrier) -> Option<Vec<u8>> {
        let resolvers = &self.0.resolvers;
        let first = u32::from_be_bytes(random::bytes());
        let first = usize::try_from(first)
            .unwrap_or(0)
            .checked_rem(resolvers.len())?;
        let mut unwilling = None;
        for resolver in resolvers.iter().cycle().skip(first).take(resolvers.len()) {
            match self.exchange(*resolver, message, carrier).await {
                Ok(answer) if needs_other_resolver(&answer) => unwilling = Some(answer),
                Ok(answer) => return Some(answer),
                Err(error) => {
                    tracing::debug!(%resolver, %error, "failed to query the DNS resolver")
                }
            }
        }
        unwilling
    }

    /// Queries all resolvers concurrently; the first answer wins.
    async fn race(&self, message: &[u8], carrier: Carrier) -> Option<Vec<u8>> {
        let queries = self
            .0
            .resolvers
            .iter()
            .map(|resolver| self.exchange(*resolver, message, carrier));
        let mut queries: FuturesUnordered<_> = queries.collect();
        let mut unwilling = None;
        while let Some(answer) = queries.next().await {
            match answer {
                Ok(answer) if needs_other_resolver(&answer) => unwilling = Some(answer),
                Ok(answer) => return Some(answer),
                Err(error) => tracing::debug!(%error, "failed to query the DNS resolver"),
            }
        }
        unwilling
    }

    /// Queries one resolver, with a timeout.
    async fn exchange(
        &self,
        resolver: SocketAddr,
        message: &[u8],
        carrier: Carrier,
    ) -> io::Result<Vec<u8>> {
        let exchange = async {
            match carrier {
                Carrier::Udp => self.by_udp(resolver, message).await,
                Carrier::Tcp => self.by_tcp(resolver, message).await,
            }
        };
        let slow = || io::Error::from(io::ErrorKind::TimedOut);
        let mut answer = tokio::time::timeout(self.0.timeout, exchange)
            .await
            .map_err(|_| slow())??;
        // The response carries the client's query ID.
        for (to, from) in answer.iter_mut().zip(message.iter().take(2)) {
            *to = *from;
        }
        Ok(answer)
    }

    /// Queries over UDP, from a port that is used for this query only.
    async fn by_udp(&self, resolver: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
        let any: IpAddr = if resolver.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };

        let socket = UdpSocket::bind((any, 0)).await?;

        // From now on the kernel drops datagrams of other senders.
        socket.connect(resolver).await?;
        let (pending, request) = self.note(message, socket.local_addr()?.port())?;
        socket.send(&request).await?;
        let mut buffer = vec![0; usize::from(u16::MAX)];

        loop {
            let length = socket.recv(&mut buffer).await?;
            // An attacker who guesses the port must also guess the ID and the question.
            if let Some(answer) = buffer
                .get(..length)
                .filter(|answer| is_response(answer, &request))
            {
                drop(pending);
                return Ok(answer.to_vec());
            }
        }
    }

    /// Queries over TCP.
    async fn by_tcp(&self, resolver: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(resolver).await?;
        let (_pending, request) = self.note(message, stream.local_addr()?.port())?;

        let length = u16::try_from(request.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend_from_slice(&request);
        stream.write_all(&framed).await?;

        let length = stream.read_u16().await?;
        let mut answer = vec![0; usize::from(length)];
        stream.read_exact(&mut answer).await?;

        if is_response(&answer, &request) {
            Ok(answer)
        } else {
            Err(io::Error::other("the response is for another query"))
        }
    }

    /// The same query with a new ID, recorded with its source port.
    fn note(&self, message: &[u8], port: u16) -> io::Result<(PendingQuery<'_>, Vec<u8>)> {
        let rest = message
            .get(2..)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;

        let id: [u8; 2] = random::bytes();
        let key = (u16::from_be_bytes(id), port);
        self.0.pending.lock().insert(key);

        let mut request = Vec::with_capacity(message.len());
        request.extend_from_slice(&id);
        request.extend_from_slice(rest);
        Ok((
            PendingQuery {
                inner: &self.0,
                key,
            },
            request,
        ))
    }
}

/// Whether the response code requires another resolver.
fn needs_other_resolver(answer: &[u8]) -> bool {
    answer
        .get(3)
        .is_some_and(|flags| UNWILLING.contains(&(flags & 0x0f)))
}

/// Whether a message is the response to a request: the ID, the QR bit, and the question, compared
/// case-insensitively.
fn is_response(answer: &[u8], request: &[u8]) -> bool {
    let head = answer.len() >= HEADER
        && answer.get(..2) == request.get(..2)
        && answer.get(2).is_some_and(|flags| flags & 0x80 != 0);
    // An error response may omit the question.
    let questions = answer.get(4..6);
    if head && questions == Some(&[0, 0]) {
        return answer.get(3).is_some_and(|flags| flags & 0x0f != 0);
    }

    let end = question_end(request);
    let sent_question = request.get(HEADER..end);
    let received_question = answer.get(HEADER..end);
    let is_same_question = matches!(
        (sent_question, received_question),
        (Some(sent), Some(received)) if sent.eq_ignore_ascii_case(received)
    );

    head && is_same_question
}

/// The end of the first question of a message. Questions are not compressed.
fn question_end(message: &[u8]) -> usize {
    let mut at = HEADER;
    while let Some(length) = message.get(at).copied().filter(|length| *length != 0) {
        at += usize::from(length) + 1;
    }
    at + 5
}

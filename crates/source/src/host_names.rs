//! Host names, resolved here instead of by proxies: those of gateways between networks, which
//! proxies cannot resolve in endpoints.
//!
//! Agrees with `networkGatewayNameCache` of `pilot/pkg/model/network.go`: addresses of both
//! families, for the TTL of their records, but at least 30 seconds and at most an hour; the last
//! addresses are kept while no resolver responds.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use navarch_net::cryptography;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::Instant;

/// The minimum lifetime of addresses: shorter lifetimes would cause pushes too often.
const MIN_TTL: Duration = Duration::from_secs(30);
const MAX_TTL: Duration = Duration::from_secs(3600);
/// How long a resolver may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Addresses of a host, sorted; empty if it has none.
pub type HostAddresses = Arc<[IpAddr]>;

/// Resolves host names and keeps their addresses fresh.
#[derive(Debug)]
pub struct HostNames {
    /// The resolvers, in the order in which they are queried.
    resolvers: Vec<SocketAddr>,
    known: BTreeMap<Arc<str>, CachedHost>,
}

/// The resolved addresses of a host.
#[derive(Debug)]
struct CachedHost {
    addresses: HostAddresses,
    /// When it is resolved again.
    due: Instant,
}

impl HostNames {
    /// Uses these resolvers, each only if those before it fail.
    #[must_use]
    pub fn new(resolvers: Vec<SocketAddr>) -> Self {
        Self {
            resolvers,
            known: BTreeMap::new(),
        }
    }

    /// Resolves those of the wanted hosts that are new or due, and removes all hosts that are not
    /// wanted. Returns the changes: new addresses of a host, or `None` for a removed host.
    pub async fn refresh(
        &mut self,
        wanted: &BTreeSet<Arc<str>>,
    ) -> Vec<(Arc<str>, Option<HostAddresses>)> {
        let gone = self.known.extract_if(.., |host, _| !wanted.contains(host));
        let mut news: Vec<_> = gone.map(|(host, _)| (host, None)).collect();

        for host in wanted {
            let known = self.known.get(host);
            if known.is_some_and(|known| known.due > Instant::now()) {
                continue;
            }

            let before = known.map(|known| known.addresses.clone());
            let (addresses, lifetime) = match resolve(&self.resolvers, host).await {
                Some((addresses, lifetime)) => {
                    (HostAddresses::from(addresses), lifetime.max(MIN_TTL))
                }
                None => (before.clone().unwrap_or_default(), MIN_TTL),
            };

            if addresses.is_empty() {
                tracing::warn!(
                    host = &**host,
                    "failed to resolve the host name of a network gateway"
                );
            }

            if before.as_ref() != Some(&addresses) {
                news.push((host.clone(), Some(addresses.clone())));
            }

            self.known.insert(
                host.clone(),
                CachedHost {
                    addresses,
                    due: Instant::now() + lifetime,
                },
            );
        }

        news
    }

    /// When the next host is due; `None` if there are no hosts.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.known.values().map(|known| known.due).min()
    }
}

/// The addresses of a host in both families, sorted, and their lifetime; `None` if no resolver
/// responds for either.
async fn resolve(resolvers: &[SocketAddr], host: &str) -> Option<(Vec<IpAddr>, Duration)> {
    let name = Name::from_ascii(format!("{}.", host.trim_end_matches('.'))).ok()?;
    let (four, six) = tokio::join!(
        query_resolvers(resolvers, &name, RecordType::A),
        query_resolvers(resolvers, &name, RecordType::AAAA)
    );
    if four.is_none() && six.is_none() {
        return None;
    }
    let mut addresses = Vec::new();
    let mut lifetime = MAX_TTL;
    for answer in [four, six].into_iter().flatten() {
        addresses.extend(answer.answers.iter().filter_map(address));
        lifetime = lifetime.min(lifetime_of(&answer));
    }
    addresses.sort_unstable();
    addresses.dedup();
    Some((addresses, lifetime))
}

fn address(record: &Record) -> Option<IpAddr> {
    if let RData::A(address) = &record.data {
        Some(IpAddr::V4(address.0))
    } else if let RData::AAAA(address) = &record.data {
        Some(IpAddr::V6(address.0))
    } else {
        None
    }
}

/// The lifetime of a response: the shortest TTL of its records. A response without records has the
/// minimum.
fn lifetime_of(answer: &Message) -> Duration {
    let records = answer
        .answers
        .iter()
        .chain(&answer.authorities)
        .chain(&answer.additionals);
    records
        .map(|record| Duration::from_secs(record.ttl.into()))
        .min()
        .unwrap_or(MIN_TTL)
        .min(MAX_TTL)
}

/// The response of the first resolver that has the host. A response such as NXDOMAIN is only used
/// if no other resolver has it.
async fn query_resolvers(
    resolvers: &[SocketAddr],
    name: &Name,
    kind: RecordType,
) -> Option<Message> {
    let mut id = [0; 2];

    // The socket is used for this query only, so a forged response must match its port as well.
    let _ = cryptography::provider().secure_random.fill(&mut id);
    let mut question = Message::new(u16::from_be_bytes(id), MessageType::Query, OpCode::Query);
    question.metadata.recursion_desired = true;
    question.add_query(Query::query(name.clone(), kind));
    let question = question.to_vec().ok()?;
    let mut answered = None;

    for resolver in resolvers {
        let answer = tokio::time::timeout(LOOKUP_TIMEOUT, exchange(*resolver, &question)).await;
        match answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(answer) if answer.metadata.response_code == ResponseCode::ServFail => {}
            Ok(answer) if answer.metadata.response_code == ResponseCode::NoError => {
                return Some(answer);
            }
            Ok(answer) => answered = Some(answer),
            Err(error) => tracing::debug!(%resolver, %error, "failed to query the DNS resolver"),
        }
    }

    answered
}

/// Queries one resolver; over TCP if the response does not fit in a datagram.
async fn exchange(resolver: SocketAddr, question: &[u8]) -> io::Result<Message> {
    let any = if resolver.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };

    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(resolver).await?;
    socket.send(question).await?;
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let answer = loop {
        let length = socket.recv(&mut buffer).await?;
        let datagram = buffer
            .get(..length)
            .expect("recv returns at most the length of its buffer");
        // A datagram with another id is not the response to this query.
        if datagram.get(..2) == question.get(..2)
            && let Ok(answer) = Message::from_vec(datagram)
        {
            break answer;
        }
    };

    if !answer.metadata.truncation {
        return Ok(answer);
    }

    let mut stream = TcpStream::connect(resolver).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream
        .write_all(&[&length.to_be_bytes()[..], question].concat())
        .await?;
    let mut whole = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut whole).await?;

    Message::from_vec(&whole).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::rdata::{A, AAAA};
    use parking_lot::Mutex;

    use super::*;

    /// Addresses, and for how many seconds they hold.
    type Records = Vec<(IpAddr, u32)>;

    /// The answers of a fake resolver for its only host; `None` makes it fail.
    #[derive(Clone, Default)]
    struct Zone(Arc<Mutex<Option<Records>>>);

    impl Zone {
        /// A resolver that answers from the zone, and fails while there is none.
        #[expect(clippy::disallowed_methods, reason = "the resolver ends with the test")]
        async fn serve(&self) -> SocketAddr {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let address = socket.local_addr().unwrap();
            let zone = self.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 512];
                loop {
                    let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
                    let query = Message::from_vec(&buffer[..length]).unwrap();
                    socket
                        .send_to(&zone.answer(&query).to_vec().unwrap(), peer)
                        .await
                        .unwrap();
                }
            });
            address
        }

        fn answer(&self, query: &Message) -> Message {
            let question = &query.queries[0];
            let mut reply = Message::response(query.metadata.id, OpCode::Query);
            reply.add_query(question.clone());

            match &*self.0.lock() {
                None => reply.metadata.response_code = ResponseCode::ServFail,
                Some(records) => {
                    for (ip, seconds) in records {
                        let data = match (ip, question.query_type()) {
                            (IpAddr::V4(ip), RecordType::A) => RData::A(A(*ip)),
                            (IpAddr::V6(ip), RecordType::AAAA) => RData::AAAA(AAAA(*ip)),
                            _ => continue,
                        };
                        reply.answers.push(Record::from_rdata(
                            question.name().clone(),
                            *seconds,
                            data,
                        ));
                    }
                }
            }

            reply
        }
    }

    fn wanted(hosts: &[&str]) -> BTreeSet<Arc<str>> {
        hosts.iter().map(|host| Arc::from(*host)).collect()
    }

    #[tokio::test]
    async fn a_host_keeps_its_addresses_while_dns_is_unavailable() {
        let zone = Zone::default();
        let ips: [IpAddr; 3] = ["10.0.0.2", "10.0.0.1", "fd00::1"].map(|ip| ip.parse().unwrap());
        *zone.0.lock() = Some(ips.map(|ip| (ip, 60)).to_vec());

        // The first resolver is down.
        let silent = UdpSocket::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        let mut names = HostNames::new(vec![silent, zone.serve().await]);
        let host = Arc::<str>::from("gw.example.com");

        let all = wanted(&["gw.example.com"]);
        let news = names.refresh(&all).await;
        let sorted: HostAddresses = Arc::from([ips[1], ips[0], ips[2]]);
        assert_eq!(news, [(host.clone(), Some(sorted.clone()))]);
        assert_eq!(names.refresh(&all).await, [], "it is not due");
        let due = names.due().unwrap();
        assert!(due > Instant::now() + MIN_TTL && due <= Instant::now() + Duration::from_secs(60));

        *zone.0.lock() = None;
        names.known.get_mut(&host).unwrap().due = Instant::now();
        assert_eq!(names.refresh(&all).await, [], "the last ones stay");
        assert_eq!(names.known[&host].addresses, sorted);
        *zone.0.lock() = Some(Vec::new());
        names.known.get_mut(&host).unwrap().due = Instant::now();
        assert_eq!(
            names.refresh(&all).await,
            [(host.clone(), Some(Arc::from([])))],
            "it has none"
        );

        assert_eq!(names.refresh(&wanted(&[])).await, [(host, None)]);
        assert_eq!(names.due(), None);
    }
}

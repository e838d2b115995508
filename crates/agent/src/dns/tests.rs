//! DNS table, responses, and the server on real sockets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use navarch_proto::istio::networking::nds::v1::NameTable;
use navarch_proto::istio::networking::nds::v1::name_table::NameInfo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::answer::Carrier;
use super::*;

fn table_config() -> TableConfig {
    TableConfig {
        namespace: "shop".to_owned(),
        domain: "shop.svc.cluster.local".to_owned(),
        search: vec![
            "shop.svc.cluster.local".to_owned(),
            "svc.cluster.local".to_owned(),
        ],
    }
}

fn wire() -> NameTable {
    let kubernetes = |ips: &[&str], name: &str, namespace: &str| NameInfo {
        ips: ips.iter().map(ToString::to_string).collect(),
        registry: "Kubernetes".to_owned(),
        shortname: name.to_owned(),
        namespace: namespace.to_owned(),
        ..NameInfo::default()
    };

    let external = |ips: &[&str]| NameInfo {
        ips: ips.iter().map(ToString::to_string).collect(),
        registry: "External".to_owned(),
        ..NameInfo::default()
    };
    let many: Vec<String> = (0..100).map(|last| format!("10.9.0.{last}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    NameTable {
        table: BTreeMap::from([
            (
                "web.shop.svc.cluster.local".to_owned(),
                kubernetes(&["10.0.0.1", "fd00::1"], "web", "shop"),
            ),
            (
                "db.bank.svc.cluster.local".to_owned(),
                kubernetes(&["10.0.0.2"], "db", "bank"),
            ),
            (
                "pod-0.head.shop.svc.cluster.local".to_owned(),
                kubernetes(&["10.0.0.3"], "pod-0.head", "shop"),
            ),
            (
                "far.shop.svc.other.domain".to_owned(),
                kubernetes(&["10.0.0.4"], "far", "shop"),
            ),
            ("API.Example.com".to_owned(), external(&["10.0.0.5"])),
            ("*.wild.example".to_owned(), external(&["10.0.0.6"])),
            ("many.example".to_owned(), external(&many)),
            ("none.example".to_owned(), external(&["nonsense"])),
        ]),
    }
}

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

/// The table's response: code, truncation, and records.
fn table_response(name: &str, kind: RecordType) -> Option<(ResponseCode, Vec<String>)> {
    let table = Table::new(&wire(), &table_config());
    let bytes = query(name, kind).to_vec().unwrap();
    match answer(&bytes, Carrier::Udp, Some(&table), 1, false) {
        DnsAnswer::Now(answer) => {
            let answer = Message::from_vec(&answer).unwrap();
            assert!(answer.metadata.authoritative && answer.metadata.recursion_desired);
            assert_eq!((answer.metadata.id, answer.queries.len()), (7, 1));
            let records = answer
                .answers
                .iter()
                .map(|record| format!("{} {}", record.name, record.data))
                .collect();
            Some((answer.metadata.response_code, records))
        }
        DnsAnswer::Forward(_) => None,
        DnsAnswer::Nothing => panic!("no answer"),
    }
}

#[test]
fn names_are_found_in_all_their_forms() {
    use RecordType::{A, AAAA, MX};

    let some = |records: &[&str]| {
        Some((
            ResponseCode::NoError,
            records.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ))
    };

    for (name, kind, expected) in [
        (
            "web.shop.svc.cluster.local.",
            A,
            some(&["web.shop.svc.cluster.local. 10.0.0.1"]),
        ),
        (
            "web.shop.svc.cluster.local.",
            AAAA,
            some(&["web.shop.svc.cluster.local. fd00::1"]),
        ),
        ("WEB.shop.", A, some(&["WEB.shop. 10.0.0.1"])),
        ("web.", A, some(&["web. 10.0.0.1"])),
        ("web.shop.svc.", A, some(&["web.shop.svc. 10.0.0.1"])),
        ("db.bank.", A, some(&["db.bank. 10.0.0.2"])),
        ("db.bank.", AAAA, some(&[])),
        ("db.", A, None),
        ("pod-0.head.", A, some(&["pod-0.head. 10.0.0.3"])),
        // In another domain there are no short names.
        (
            "far.shop.svc.other.domain.",
            A,
            some(&["far.shop.svc.other.domain. 10.0.0.4"]),
        ),
        ("far.", A, None),
        ("api.example.com.", A, some(&["api.example.com. 10.0.0.5"])),
        // A name with the first search domain appended is an alias.
        (
            "api.example.com.shop.svc.cluster.local.",
            A,
            some(&[
                "api.example.com.shop.svc.cluster.local. api.example.com.",
                "api.example.com. 10.0.0.5",
            ]),
        ),
        ("api.example.com.shop.svc.cluster.local.", AAAA, some(&[])),
        ("api.example.com.svc.cluster.local.", A, None),
        (
            "a.b.wild.example.",
            A,
            some(&["a.b.wild.example. 10.0.0.6"]),
        ),
        (
            "a.wild.example.shop.svc.cluster.local.",
            A,
            some(&[
                "a.wild.example.shop.svc.cluster.local. a.wild.example.",
                "a.wild.example. 10.0.0.6",
            ]),
        ),
        ("wild.example.", A, None),
        ("none.example.", A, None),
        ("web.", MX, None),
        (".", A, None),
    ] {
        assert_eq!(table_response(name, kind), expected, "{name} {kind}");
    }
}

#[test]
fn large_dns_responses_are_truncated_to_the_clients_limit() {
    let table = Table::new(&wire(), &table_config());
    let sizes = [
        (None, Carrier::Udp, 512, true),
        (Some(4096), Carrier::Udp, 4096, false),
        (None, Carrier::Tcp, 65535, false),
    ];

    for (payload, carrier, limit, cut) in sizes {
        let mut message = query("many.example.", RecordType::A);

        if let Some(payload) = payload {
            let mut edns = Edns::new();
            edns.set_max_payload(payload);
            message.edns = Some(edns);
        }

        let bytes = message.to_vec().unwrap();
        let DnsAnswer::Now(answered) = answer(&bytes, carrier, Some(&table), 1, false) else {
            panic!("no answer")
        };

        let parsed = Message::from_vec(&answered).unwrap();
        assert!(
            answered.len() <= limit && parsed.metadata.truncation == cut,
            "{payload:?}"
        );
        assert!(if cut {
            parsed.answers.len() > 20
        } else {
            parsed.answers.len() == 100
        });

        assert_eq!(parsed.edns.is_some(), payload.is_some());
    }
}

#[test]
fn malformed_dns_queries_get_no_or_a_short_response() {
    let table = Table::new(&wire(), &table_config());
    let think = |bytes: &[u8]| answer(bytes, Carrier::Udp, Some(&table), 1, false);
    assert_eq!(think(b""), DnsAnswer::Nothing);
    assert_eq!(think(&[0; 11]), DnsAnswer::Nothing);
    let mut response = query("web.", RecordType::A);
    response.metadata.message_type = MessageType::Response;
    assert_eq!(think(&response.to_vec().unwrap()), DnsAnswer::Nothing);
    let mut cut = query("web.", RecordType::A).to_vec().unwrap();
    cut.truncate(14);

    let DnsAnswer::Now(answered) = think(&cut) else {
        panic!("no answer")
    };

    let answered = Message::from_vec(&answered).unwrap();
    assert_eq!(
        (answered.metadata.id, answered.metadata.response_code),
        (7, ResponseCode::FormErr)
    );
    let unsynced = answer(
        &query("web.", RecordType::A).to_vec().unwrap(),
        Carrier::Udp,
        None,
        1,
        false,
    );

    let DnsAnswer::Now(answered) = unsynced else {
        panic!("no answer")
    };

    assert_eq!(
        Message::from_vec(&answered).unwrap().metadata.response_code,
        ResponseCode::ServFail
    );
}

/// A resolver with a single name. If `liar` is set, it first sends responses with wrong ids.
async fn resolver(liar: bool, tasks: &mut JoinSet<()>) -> (SocketAddr, Arc<AtomicU16>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(address).await.unwrap();
    let requests = Arc::new(AtomicU16::new(0));
    let reply = |bytes: &[u8]| {
        let query = Message::from_vec(bytes).unwrap();
        let mut reply = Message::response(query.metadata.id, OpCode::Query);
        reply.queries.clone_from(&query.queries);
        let name = query.queries[0].name().clone();
        reply.add_answer(Record::from_rdata(
            name,
            1,
            RData::A(A("192.0.2.1".parse().unwrap())),
        ));
        reply
    };

    let counter = requests.clone();
    tasks.spawn(async move {
        let mut buffer = vec![0; 4096];

        loop {
            let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
            let mut reply = reply(&buffer[..length]);

            if liar {
                let id = reply.metadata.id;
                reply.metadata.id = id.wrapping_add(1);
                reply.answers[0].data = RData::A(A("203.0.113.66".parse().unwrap()));
                socket
                    .send_to(&reply.to_vec().unwrap(), peer)
                    .await
                    .unwrap();
                reply.metadata.id = id;

                reply.queries[0].set_name(Name::from_ascii("other.example.").unwrap());
                socket
                    .send_to(&reply.to_vec().unwrap(), peer)
                    .await
                    .unwrap();
                continue;
            }

            socket
                .send_to(&reply.to_vec().unwrap(), peer)
                .await
                .unwrap();
        }
    });

    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let length = stream.read_u16().await.unwrap();
            let mut bytes = vec![0; usize::from(length)];
            stream.read_exact(&mut bytes).await.unwrap();
            let reply = reply(&bytes).to_vec().unwrap();
            stream
                .write_u16(u16::try_from(reply.len()).unwrap())
                .await
                .unwrap();
            stream.write_all(&reply).await.unwrap();
        }
    });

    (address, requests)
}

async fn by_udp(server: SocketAddr, message: &Message) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket
        .send_to(&message.to_vec().unwrap(), server)
        .await
        .unwrap();
    let mut buffer = vec![0; 65535];
    let received = tokio::time::timeout(Duration::from_secs(10), socket.recv(&mut buffer)).await;
    Message::from_vec(&buffer[..received.unwrap().unwrap()]).unwrap()
}

async fn by_tcp(server: SocketAddr, message: &Message) -> Message {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let bytes = message.to_vec().unwrap();
    stream
        .write_u16(u16::try_from(bytes.len()).unwrap())
        .await
        .unwrap();
    stream.write_all(&bytes).await.unwrap();
    let length = stream.read_u16().await.unwrap();
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await.unwrap();
    Message::from_vec(&bytes).unwrap()
}

#[tokio::test]
async fn the_rest_is_forwarded_and_lies_loops_and_failures_are_survived() {
    let mut tasks = JoinSet::new();
    let (good, _) = resolver(false, &mut tasks).await;
    let (liar, lied) = resolver(true, &mut tasks).await;
    let names = NameTableSink::new(table_config());
    let stop = CancellationToken::new();
    let config = |resolvers: Vec<SocketAddr>, parallel| DnsConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        resolvers,
        parallel,
        timeout: Duration::from_millis(300),
        before_table: BeforeTable::Fail,
    };

    let dead: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let outside = query("outside.example.", RecordType::A);

    for (resolvers, parallel, known) in [
        (vec![dead, good, liar], false, true),
        (vec![dead, good, liar], true, true),
        (vec![dead, liar], false, false),
        (vec![], false, false),
    ] {
        let server = DnsServer::bind(config(resolvers, parallel), names.clone())
            .await
            .unwrap();
        let address = server.addresses().unwrap()[0];
        tasks.spawn(serve(server, stop.clone()));
        assert_eq!(
            by_udp(address, &query("web.", RecordType::A))
                .await
                .metadata
                .response_code,
            if names.table().is_some() {
                ResponseCode::NoError
            } else {
                ResponseCode::ServFail
            }
        );
        names.replace(wire());
        for answer in [
            by_udp(address, &outside).await,
            by_tcp(address, &outside).await,
        ] {
            assert_eq!(answer.metadata.id, 7);
            if known {
                assert_eq!(
                    answer.answers[0].data,
                    RData::A(A("192.0.2.1".parse().unwrap()))
                );
            } else {
                let via_tcp = answer.answers.first().map(|record| record.data.to_string());
                assert!(
                    via_tcp.is_none() || via_tcp.as_deref() == Some("192.0.2.1"),
                    "{via_tcp:?}"
                );
            }
        }

        assert_eq!(
            by_tcp(address, &query("web.", RecordType::A))
                .await
                .answers
                .len(),
            1
        );
    }

    assert!(lied.load(Ordering::Relaxed) > 0);

    // A resolver that sends queries back to the agent must not cause a loop.
    let mirror = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = DnsServer::bind(config(vec![mirror.local_addr().unwrap()], false), names)
        .await
        .unwrap();
    let address = server.addresses().unwrap()[0];
    tasks.spawn(serve(server, stop.clone()));
    tasks.spawn(async move {
        let mut buffer = vec![0; 4096];
        let (length, peer) = mirror.recv_from(&mut buffer).await.unwrap();
        let back = by_udp(address, &Message::from_vec(&buffer[..length]).unwrap()).await;
        mirror.send_to(&back.to_vec().unwrap(), peer).await.unwrap();
    });

    assert_eq!(
        by_udp(address, &outside).await.metadata.response_code,
        ResponseCode::ServFail
    );
    stop.cancel();
}

#[test]
fn addresses_to_listen_on_follow_the_resolvers() {
    let resolvers = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| text.parse().unwrap())
            .collect::<Vec<SocketAddr>>()
    };

    let listen = |resolvers: &[SocketAddr]| {
        DnsConfig::addresses("localhost:15053", resolvers)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };

    assert_eq!(listen(&[]), ["127.0.0.1:15053"]);
    assert_eq!(listen(&resolvers(&["10.0.0.1:53"])), ["127.0.0.1:15053"]);
    assert_eq!(listen(&resolvers(&["[fd00::1]:53"])), ["[::1]:15053"]);
    assert_eq!(
        listen(&resolvers(&["[fd00::1]:53", "10.0.0.1:53"])),
        ["127.0.0.1:15053", "[::1]:15053"]
    );
    assert_eq!(
        DnsConfig::addresses("0.0.0.0:53", &[]).unwrap(),
        resolvers(&["0.0.0.0:53"])
    );
}

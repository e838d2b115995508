//! Ports on loopback; the addresses 127.0.0.x are different peers.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use super::*;

/// Longer than any step takes.
const LONG: Duration = Duration::from_secs(20);

/// The address of a pod.
fn pod(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// Whether a permit was given to another connection.
async fn is_evicted(place: &ConnectionPermit) -> bool {
    timeout(Duration::ZERO, place.activity().evicted())
        .await
        .is_ok()
}

fn port(limits: PortLimits) -> (Arc<Port>, Rejections) {
    let rejections = Rejections::default();
    (Port::new("test", limits, rejections.clone()), rejections)
}

#[tokio::test]
async fn one_peer_with_all_connections_does_not_block_others() {
    let (port, rejections) = port(PortLimits::plain(512));
    let held: Vec<ConnectionPermit> = (0..2000).map(|_| port.admit(pod(1))).collect();
    assert_eq!(port.len(), 512);

    for other in 2..=255 {
        let place = port.admit(pod(other));
        assert!(!is_evicted(&place).await);
        drop(place);
    }

    let others: Vec<ConnectionPermit> = (0..200).map(|_| port.admit(pod(2))).collect();
    for place in &others {
        assert!(
            !is_evicted(place).await,
            "while another peer has more connections"
        );
    }

    assert_eq!(
        (
            port.len(),
            rejections.counted("test", "too_many_connections")
        ),
        (512, 1488 + 1 + 199)
    );

    drop((held, others));
    assert!(
        port.is_empty(),
        "permits of evicted connections are released once"
    );
}

#[tokio::test]
async fn addresses_of_either_family_are_one_peer() {
    let (port, _) = port(PortLimits::plain(2));
    let mapped = port.admit("::ffff:10.0.0.1".parse().unwrap());
    let other = port.admit(pod(2));
    let third = port.admit(pod(1));
    assert!(is_evicted(&mapped).await && !is_evicted(&other).await && !is_evicted(&third).await);
}

#[tokio::test]
async fn handshakes_have_a_separate_limit() {
    let limits = PortLimits {
        connections: 100,
        handshakes: Some(4),
        loopback: 0,
    };
    let (port, rejections) = port(limits);
    let done: Vec<ConnectionPermit> = (0..50)
        .map(|_| port.admit(pod(1)))
        .inspect(ConnectionPermit::established)
        .collect();

    let silent: Vec<ConnectionPermit> = (0..4).map(|_| port.admit(pod(1))).collect();
    let newcomer = port.admit(pod(2));
    assert!(
        is_evicted(&silent[0]).await
            && !is_evicted(&silent[1]).await
            && !is_evicted(&newcomer).await
    );
    for place in &done {
        assert!(!is_evicted(place).await);
    }

    assert_eq!(rejections.counted("test", "too_many_handshakes"), 1);
    drop((silent, newcomer));
    assert_eq!(port.len(), 50);
}

#[tokio::test]
async fn places_are_kept_for_this_machine() {
    let (port, _) = port(PortLimits {
        connections: 8,
        handshakes: None,
        loopback: 3,
    });

    // As many pods as the limit allows, with one connection each: no peer has more than others.
    let remote: Vec<ConnectionPermit> = (1..=20).map(|last| port.admit(pod(last))).collect();
    assert_eq!(port.len(), 5);
    let local: Vec<ConnectionPermit> = (0..3)
        .map(|_| port.admit(IpAddr::from([127, 0, 0, 1])))
        .collect();
    for place in remote.iter().skip(15).chain(&local) {
        assert!(!is_evicted(place).await);
    }

    let newcomer = port.admit(pod(100));
    assert!(
        is_evicted(&remote[15]).await
            && !is_evicted(&local[0]).await
            && !is_evicted(&newcomer).await
    );
}

#[tokio::test]
async fn evicted_connections_are_closed_and_others_served() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (port, _) = port(PortLimits::plain(16));
    let mut server = JoinSet::new();
    server.spawn(async move {
        let echo = |mut stream: PortStream, _| async move {
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok()
                && stream.write_all(&byte).await.is_ok()
            {}
        };
        port.for_each(&listener, &mut JoinSet::new(), echo).await;
    });

    let connect = async |from: [u8; 4]| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(address).await.unwrap()
    };
    let mut flood = Vec::new();
    for _ in 0..64 {
        flood.push(connect([127, 0, 0, 2]).await);
    }

    let mut good = connect([127, 0, 0, 3]).await;
    let mut answer = [0];

    for _ in 0..10 {
        for _ in 0..10 {
            flood.push(connect([127, 0, 0, 2]).await);
        }
        timeout(LONG, good.write_all(b"x")).await.unwrap().unwrap();
        timeout(LONG, good.read_exact(&mut answer))
            .await
            .unwrap()
            .unwrap();
    }

    // All but the last are closed.
    let closed = flood.len() - 16;
    for stream in flood.iter_mut().take(closed) {
        assert!(!matches!(
            timeout(LONG, stream.read(&mut answer)).await.unwrap(),
            Ok(1..)
        ));
    }
}

#[tokio::test]
async fn a_reader_that_stops_loses_its_connection() {
    let (port, rejections) = port(PortLimits::plain(1));
    let (mut client, server) = tokio::io::duplex(1000);
    let limit = Duration::from_millis(500);
    let mut server = PortStream::new(server, port.admit(pod(1))).with_read_limit(limit);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { server.write_all(&[0; 100_000]).await });

    // Slow, but with progress.
    for _ in 0..10 {
        tokio::time::sleep(limit / 5).await;
        client.read_exact(&mut [0; 1000]).await.unwrap();
    }

    let error = timeout(LONG, tasks.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .unwrap_err();

    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(rejections.counted("test", "slow_reader"), 1);
}

#[tokio::test]
async fn bytes_count_as_activity_until_only_requests_do() {
    let (port, _) = port(PortLimits::plain(1));
    let (mut client, server) = tokio::io::duplex(1000);
    let mut server = PortStream::new(server, port.admit(pod(1)));
    let activity = server.place().activity().clone();

    // Wait until the port's time is above zero.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut byte = [0];

    for counts in [true, false] {
        if !counts {
            server.count_requests_only();
        }
        activity.set(0);
        client.write_all(b"x").await.unwrap();
        server.read_exact(&mut byte).await.unwrap();
        server.write_all(b"x").await.unwrap();
        assert_eq!(activity.last() > 0, counts);
    }

    activity.record_request();
    assert!(activity.last() > 0 && activity.has_request());
}

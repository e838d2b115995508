//! Entries of a server that has only the address and identity of a client.

use navarch_base::metrics_log::LABELS_EXTENSION;
use navarch_proto::any::pack;
use navarch_proto::istio::workload::{Extension, Workload as WireWorkload};
use navarch_proto::raw::{RawAny, RawDeltaDiscoveryResponse, RawResource};

use super::*;
use crate::mesh_metrics::wire::{Address, SocketAddress};

const OPENED: &str = "istio_tcp_connections_opened_total{";
const KNOWN: &str = "source_workload=\"client-v1\",source_canonical_service=\"client\",source_canonical_revision=\"v1\",\
    source_workload_namespace=\"buyers\",source_principal=\"spiffe://cluster.local/ns/buyers/sa/client\",\
    source_app=\"client\",source_version=\"v1\",source_cluster=\"east\",";

/// A server's metrics and its log, with an open stream for lookups.
fn server() -> (MeshMetrics, Arc<Log>, peer_subscription::PeerSubscription) {
    server_with(Vec::new())
}

/// The same, with these changes of metrics.
fn server_with(
    changes: Vec<MetricChange>,
) -> (MeshMetrics, Arc<Log>, peer_subscription::PeerSubscription) {
    let metrics = MeshMetrics::in_network(workload("web", "shop"), "", "net");
    let reporter = Reporter::Destination;
    let name = MetricsLog {
        reporter,
        host_names_service: false,
        finds_peers: true,
        metrics: changes,
    }
    .to_name();
    let log = metrics.log(&name).unwrap();
    let asking = metrics.subscribe_to_peers();
    (metrics, log, asking)
}

fn address(ip: &str) -> Option<Address> {
    Some(Address {
        socket_address: Some(SocketAddress {
            address: ip.to_owned().into(),
        }),
    })
}

/// An entry of a connection from 10.0.0.1 with an identity.
fn entry(id: &str, kind: AccessLogType, received: u64) -> TcpEntry {
    let mut entry = connection(id, kind, received, 0);
    let common = entry.common_properties.as_mut().unwrap();
    common.custom_tags = Texts::default();
    inbound(common);
    common.metadata = None;
    common.downstream_remote_address = address("10.0.0.1");
    entry
}

/// The control plane sends the workload at 10.0.0.1, or that there is none.
fn answer(metrics: &MeshMetrics, is_known: bool) {
    let workload = WireWorkload {
        workload_name: "client-v1".to_owned(),
        namespace: "buyers".to_owned(),
        canonical_name: "client".to_owned(),
        canonical_revision: "v1".to_owned(),
        cluster_id: "east".to_owned(),
        service_account: "client".to_owned(),
        addresses: vec![vec![10, 0, 0, 1].into()],
        extensions: vec![Extension {
            name: LABELS_EXTENSION.to_owned(),
            config: Some(pack(&"app=client,tier=gold".to_owned())),
        }],
        ..WireWorkload::default()
    };

    let any = RawAny {
        type_url: WORKLOAD.to_owned(),
        value: workload.encode_to_vec().into(),
    };
    let resource = RawResource {
        name: "a".to_owned(),
        resource: Some(any),
        ..RawResource::default()
    };

    let answer = RawDeltaDiscoveryResponse {
        resources: if is_known { vec![resource] } else { Vec::new() },
        removed_resources: if is_known {
            Vec::new()
        } else {
            vec!["net/10.0.0.1".to_owned()]
        },
        nonce: "n".to_owned(),
        ..RawDeltaDiscoveryResponse::default()
    };

    assert_eq!(
        metrics.take_peers(answer.encode_to_vec().into()),
        ("n".to_owned(), None)
    );
}

fn lines(metrics: &MeshMetrics, name: &str) -> Vec<String> {
    metrics
        .exposition()
        .lines()
        .filter(|line| line.starts_with(name))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn a_connection_waits_for_the_answer_and_is_counted_with_it() {
    let (metrics, log, mut asking) = server();
    let now = Instant::now();
    metrics.count_connections(&log, &[entry("a", AccessLogType::TcpPeriodic, 10)], now);
    metrics.count_connections(
        &log,
        &[entry("a", AccessLogType::TcpConnectionEnd, 15)],
        now,
    );

    assert!(lines(&metrics, OPENED).is_empty());
    assert_eq!(asking.next().await.subscribe, ["net/10.0.0.1"]);
    answer(&metrics, true);

    for (name, value) in [
        (OPENED, 1),
        ("istio_tcp_connections_closed_total{", 1),
        ("istio_tcp_received_bytes_total{", 15),
    ] {
        let lines = lines(&metrics, name);
        assert!(
            lines.len() == 1
                && lines[0].contains(KNOWN)
                && lines[0].ends_with(&format!("}} {value}")),
            "{lines:?}"
        );
    }

    // From then on entries do not wait, and requests without a header get the workload's labels,
    // too.
    metrics.count_connections(&log, &[entry("b", AccessLogType::TcpPeriodic, 1)], now);
    let mut plain = request(&[]);
    let common = plain.common_properties.as_mut().unwrap();
    inbound(common);
    common.metadata = None;
    common.downstream_remote_address = address("192.0.2.1");
    common.downstream_direct_remote_address = address("::ffff:10.0.0.1");

    metrics.count_requests(&log, &[plain], now);
    assert!(lines(&metrics, OPENED)[0].ends_with("} 2"));
    assert!(lines(&metrics, "istio_requests_total{")[0].contains(KNOWN));
}

#[test]
fn a_request_with_headers_waits_if_a_label_of_its_client_is_read() {
    let tier = PeerAttribute {
        peer: Peer::Downstream,
        field: PeerField::Label("tier".to_owned()),
    };
    let change = MetricChange {
        peers: BTreeMap::from([("client_tier".to_owned(), tier)]),
        ..MetricChange::default()
    };
    let (metrics, log, _asking) = server_with(vec![change]);
    let mut with_headers = request(&[]);
    let common = with_headers.common_properties.as_mut().unwrap();
    inbound(common);
    common.downstream_remote_address = address("10.0.0.1");

    metrics.count_requests(&log, &[with_headers], Instant::now());
    assert!(lines(&metrics, "istio_requests_total{").is_empty());

    answer(&metrics, true);
    let counted = lines(&metrics, "istio_requests_total{");
    assert!(
        counted.len() == 1
            && counted[0].contains(KNOWN)
            && counted[0].ends_with(",client_tier=\"gold\"} 1"),
        "{counted:?}"
    );
}

#[test]
fn unresolved_peers_are_counted_as_unknown_after_a_timeout() {
    let (metrics, log, _asking) = server();
    let begin = Instant::now();
    metrics.count_connections(&log, &[entry("a", AccessLogType::TcpPeriodic, 10)], begin);
    metrics.count_connections(&log, &[], begin + Duration::from_millis(1999));
    assert!(lines(&metrics, OPENED).is_empty());
    metrics.count_connections(&log, &[], begin + Duration::from_secs(2));
    let counted = lines(&metrics, OPENED);
    assert!(
        counted.len() == 1 && counted[0].contains("source_workload=\"unknown\""),
        "{counted:?}"
    );

    // Its labels do not change when the workload becomes known.
    answer(&metrics, true);
    metrics.count_connections(
        &log,
        &[entry("a", AccessLogType::TcpConnectionEnd, 10)],
        Instant::now(),
    );
    let closed = lines(&metrics, "istio_tcp_connections_closed_total{");

    assert!(
        closed.len() == 1 && closed[0].contains("source_workload=\"unknown\""),
        "{closed:?}"
    );
}

#[tokio::test]
async fn a_stream_subscribes_again_when_the_one_that_replaced_it_has_ended() {
    let (metrics, log, mut first) = server();
    let mut second = metrics.subscribe_to_peers();
    let now = Instant::now();
    metrics.count_connections(&log, &[entry("a", AccessLogType::TcpPeriodic, 10)], now);
    assert_eq!(second.next().await.subscribe, ["net/10.0.0.1"]);

    let waits = tokio::time::timeout(Duration::from_millis(10), first.next()).await;
    assert!(waits.is_err(), "the second one subscribes");

    drop(second);
    assert_eq!(first.next().await.subscribe, ["net/10.0.0.1"]);
}

#[test]
fn known_and_unresolvable_peers_are_counted_at_once() {
    let (metrics, log, asking) = server();
    let now = Instant::now();

    // Entries that never wait: without an identity, with a header, or without lookups at the
    // control plane.
    let mut plain = entry("a", AccessLogType::TcpPeriodic, 1);
    plain.common_properties.as_mut().unwrap().tls_properties = None;
    metrics.count_connections(&log, &[plain], now);
    let mut with_headers = request(&[]);
    inbound(with_headers.common_properties.as_mut().unwrap());
    with_headers
        .common_properties
        .as_mut()
        .unwrap()
        .downstream_remote_address = address("10.0.0.1");

    metrics.count_requests(&log, &[with_headers], now);
    let other = metrics
        .log(&super::log(Reporter::Destination, Vec::new()))
        .unwrap();
    metrics.count_connections(&other, &[entry("b", AccessLogType::TcpPeriodic, 1)], now);
    let mut pipe = entry("c", AccessLogType::TcpPeriodic, 1);
    pipe.common_properties
        .as_mut()
        .unwrap()
        .downstream_remote_address = None;

    metrics.count_connections(&log, &[pipe], now);
    assert!(!metrics.state.lock().lookups.has_changes());
    assert_eq!(lines(&metrics, OPENED).len(), 2);

    // The address has no workload, and is not requested again.
    metrics.count_connections(&log, &[entry("d", AccessLogType::TcpPeriodic, 1)], now);
    answer(&metrics, false);
    drop(asking);
    metrics.count_connections(&log, &[entry("e", AccessLogType::TcpPeriodic, 1)], now);
    let counted: u32 = lines(&metrics, OPENED)
        .iter()
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u32>().ok())
        .sum();
    assert_eq!(counted, 5);
}

#[test]
fn waiting_requests_are_bounded_and_the_oldest_counted_without_peers() {
    let (metrics, log, _asking) = server();
    // Ahead of the time at which metrics are read: on a slow machine the waits would end before.
    let now = Instant::now() + Duration::from_mins(1);

    for number in 0..=1000 {
        metrics.count_connections(
            &log,
            &[entry(&number.to_string(), AccessLogType::TcpPeriodic, 1)],
            now,
        );
    }

    let counted = lines(&metrics, OPENED);
    assert!(
        counted.len() == 1 && counted[0].ends_with("} 1"),
        "{counted:?}"
    );

    // The size of waiting entries is limited, too.
    let mut large = entry("large", AccessLogType::TcpPeriodic, 1);
    let tag = ("value.0".to_owned(), vec![b'x'; 5 << 20]);
    large
        .common_properties
        .as_mut()
        .unwrap()
        .custom_tags
        .extend([tag]);

    metrics.count_connections(&log, &[large], now);
    assert!(lines(&metrics, OPENED)[0].ends_with("} 1002"));
}

//! From access log entries to Prometheus metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use navarch_base::metrics_log::{
    BAGGAGE_TAG, LabelValue, MetricChange, OWN_TAG, PEER_KEY, PEER_NAMESPACE, PEER_TAG, Peer,
    PeerAttribute, PeerField, Reporter, SERVICES_TAG, WORKLOAD_TAG,
};
use navarch_proto::envoy::data::accesslog::v3::{
    AccessLogType, ConnectionProperties, ResponseFlags,
};
use navarch_proto::envoy::extensions::filters::http::grpc_stats::v3::FilterObject;
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Any, Struct, Value};

use super::wire::{
    AlternativeName, Certificate, Common, HttpRequest, HttpResponse, Metadata, Texts, Tls,
};
use super::*;

mod label_sets;
mod peer_attributes;
mod tunnels;
mod waiting;

const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";
const CLIENT: &str = "spiffe://cluster.local/ns/buyers/sa/client";
const SERVICES: &str = r#"[{"host":"web.shop.svc.cluster.local","name":"web","namespace":"shop"},{"host":"x","name":"x","namespace":"y"}]"#;

fn workload(name: &str, namespace: &str) -> Workload {
    Workload {
        name: format!("{name}-v1"),
        namespace: namespace.to_owned(),
        canonical_name: name.to_owned(),
        canonical_revision: "v1".to_owned(),
        app: name.to_owned(),
        version: "v1".to_owned(),
        cluster: "east".to_owned(),
    }
}

fn log(reporter: Reporter, metrics: Vec<MetricChange>) -> String {
    MetricsLog {
        reporter,
        host_names_service: reporter == Reporter::Source,
        finds_peers: false,
        metrics,
    }
    .to_name()
}

fn texts(pairs: &[(&str, &str)]) -> Texts {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).into()))
        .collect()
}

/// A request with status 200 after 7 ms.
fn request(tags: &[(&str, &str)]) -> HttpEntry {
    HttpEntry {
        common_properties: Some(Common {
            custom_tags: texts(tags),
            duration: Some(prost_types::Duration {
                seconds: 0,
                nanos: 7_900_000,
            }),
            downstream_wire_bytes_received: 300,
            downstream_wire_bytes_sent: 1500,
            access_log_type: AccessLogType::DownstreamEnd.into(),
            ..Common::default()
        }),
        request: Some(HttpRequest {
            authority: "web:80".into(),
            ..HttpRequest::default()
        }),
        response: Some(HttpResponse {
            response_code: Some(200),
            ..HttpResponse::default()
        }),
    }
}

/// Envoy's tags for an endpoint of the mesh.
const OUTBOUND: [(&str, &str); 4] = [
    (WORKLOAD_TAG, "web-v1;shop;web;;west"),
    (SERVICES_TAG, SERVICES),
    (
        PEER_TAG,
        "spiffe://cluster.local/ns/shop/sa/web,spiffe://other",
    ),
    (OWN_TAG, CLIENT),
];

fn certificate(uri: &str) -> Option<Certificate> {
    let names = ["", uri].map(|uri| AlternativeName {
        uri: uri.to_owned().into(),
    });
    Some(Certificate {
        subject_alt_name: names.into(),
    })
}

/// Sets the properties of a client of the mesh.
fn inbound(common: &mut Common) {
    common.tls_properties = Some(Tls {
        local_certificate_properties: certificate(WEB),
        peer_certificate_properties: certificate(CLIENT),
    });
    let header = Value {
        kind: Some(Kind::StringValue(workload("client", "buyers").header())),
    };
    let kept = Struct {
        fields: BTreeMap::from([(PEER_KEY.to_owned(), header)]),
    }
    .encode_to_vec();
    common.metadata = Some(Metadata {
        filter_metadata: BTreeMap::from([(PEER_NAMESPACE.to_owned(), kept)]),
    });
}

/// The resulting lines of a metric.
fn counted(own: Workload, name: &str, entries: &[HttpEntry]) -> String {
    let metrics = MeshMetrics::new(own, "1.32\"");
    let log = metrics.log(name).unwrap();
    metrics.count_requests(&log, entries, Instant::now());
    metrics.exposition()
}

#[test]
fn client_requests_are_labelled_with_endpoint_metadata() {
    let text = counted(
        workload("client", "buyers"),
        &log(Reporter::Source, Vec::new()),
        &[request(&OUTBOUND), request(&OUTBOUND)],
    );

    let labels = "reporter=\"source\",source_workload=\"client-v1\",source_canonical_service=\"client\",\
        source_canonical_revision=\"v1\",source_workload_namespace=\"buyers\",\
        source_principal=\"spiffe://cluster.local/ns/buyers/sa/client\",source_app=\"client\",source_version=\"v1\",\
        source_cluster=\"east\",destination_workload=\"web-v1\",destination_workload_namespace=\"shop\",\
        destination_principal=\"spiffe://cluster.local/ns/shop/sa/web\",destination_app=\"unknown\",\
        destination_version=\"unknown\",destination_service=\"web.shop.svc.cluster.local\",\
        destination_canonical_service=\"web\",destination_canonical_revision=\"latest\",destination_service_name=\"web\",\
        destination_service_namespace=\"shop\",destination_cluster=\"west\",request_protocol=\"http\",response_code=\"200\",\
        grpc_response_status=\"\",response_flags=\"-\",connection_security_policy=\"unknown\"";

    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "# TYPE istio_requests_total counter");
    assert_eq!(lines[2], format!("istio_requests_total{{{labels}}} 2"));
    assert_eq!(
        lines[4],
        "# TYPE istio_request_duration_milliseconds histogram"
    );
    let heads = MeshMetrics::heads();

    let unknown: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with('#') && !heads.lines().any(|head| head == **line))
        .collect();
    assert_eq!(unknown, Vec::<&&str>::new());

    for line in [
        format!("istio_request_duration_milliseconds_bucket{{{labels},le=\"5\"}} 0"),
        format!("istio_request_duration_milliseconds_bucket{{{labels},le=\"10\"}} 2"),
        format!("istio_request_duration_milliseconds_bucket{{{labels},le=\"3600000\"}} 2"),
        format!("istio_request_duration_milliseconds_bucket{{{labels},le=\"+Inf\"}} 2"),
        format!("istio_request_duration_milliseconds_sum{{{labels}}} 14"),
        format!("istio_request_bytes_sum{{{labels}}} 600"),
        format!("istio_response_bytes_count{{{labels}}} 2"),
        "istio_build{component=\"proxy\",tag=\"1.32\"} 1".to_owned(),
        "navarch_mesh_metrics_label_sets 4".to_owned(),
        "navarch_mesh_metrics_dropped_total 0".to_owned(),
    ] {
        assert!(lines.contains(&line.as_str()), "{line}: {text}");
    }

    assert!(
        !text.contains("istio_tcp") && !text.contains("messages"),
        "{text}"
    );
}

#[test]
fn client_metrics_have_the_application_of_endpoints_with_sidecars() {
    let tags = [
        &[(WORKLOAD_TAG, "web-v1;shop;web;;west;;shop-web;2")][..],
        &OUTBOUND[1..],
    ]
    .concat();
    let text = counted(
        workload("client", "buyers"),
        &log(Reporter::Source, Vec::new()),
        &[request(&tags)],
    );
    let labels = "destination_workload=\"web-v1\",destination_workload_namespace=\"shop\",\
        destination_principal=\"spiffe://cluster.local/ns/shop/sa/web\",destination_app=\"shop-web\",\
        destination_version=\"2\",";
    assert!(text.contains(labels), "{text}");
}

#[test]
fn server_requests_are_labelled_with_client_metadata() {
    let mut entry = request(&[(SERVICES_TAG, SERVICES)]);
    inbound(entry.common_properties.as_mut().unwrap());
    let text = counted(
        workload("web", "shop"),
        &log(Reporter::Destination, Vec::new()),
        &[entry],
    );

    let labels = "reporter=\"destination\",source_workload=\"client-v1\",source_canonical_service=\"client\",\
        source_canonical_revision=\"v1\",source_workload_namespace=\"buyers\",\
        source_principal=\"spiffe://cluster.local/ns/buyers/sa/client\",source_app=\"client\",source_version=\"v1\",\
        source_cluster=\"east\",destination_workload=\"web-v1\",destination_workload_namespace=\"shop\",\
        destination_principal=\"spiffe://cluster.local/ns/shop/sa/web\",destination_app=\"web\",\
        destination_version=\"v1\",destination_service=\"web.shop.svc.cluster.local\",\
        destination_canonical_service=\"web\",destination_canonical_revision=\"v1\",destination_service_name=\"web\",\
        destination_service_namespace=\"shop\",destination_cluster=\"east\",request_protocol=\"http\",response_code=\"200\",\
        grpc_response_status=\"\",response_flags=\"-\",connection_security_policy=\"mutual_tls\"";

    assert!(
        text.contains(&format!("\nistio_requests_total{{{labels}}} 1\n")),
        "{text}"
    );
}

#[test]
fn peers_outside_of_the_mesh_have_unknown_labels() {
    let mut entry = request(&[]);
    entry.common_properties.as_mut().unwrap().response_flags = Some(ResponseFlags {
        no_healthy_upstream: true,
        downstream_connection_termination: true,
        ..ResponseFlags::default()
    });

    let inbound = counted(
        workload("web", "shop"),
        &log(Reporter::Destination, Vec::new()),
        &[entry.clone()],
    );

    for label in [
        "source_workload=\"unknown\"",
        "source_canonical_revision=\"latest\"",
        "source_workload_namespace=\"unknown\"",
        "destination_service=\"web\"",
        "response_flags=\"UH,DC\"",
        "connection_security_policy=\"none\"",
    ] {
        assert!(inbound.contains(label), "{label}: {inbound}");
    }

    let outbound = counted(
        workload("client", "shop"),
        &log(Reporter::Source, Vec::new()),
        &[entry.clone()],
    );
    assert!(
        outbound.contains("destination_service=\"web:80\"")
            && outbound.contains("destination_service_name=\"web:80\"")
    );

    entry.common_properties.as_mut().unwrap().upstream_cluster = "PassthroughCluster".into();
    let passed = counted(
        workload("client", "shop"),
        &log(Reporter::Source, Vec::new()),
        &[entry],
    );
    assert!(
        passed.contains("destination_service_name=\"PassthroughCluster\""),
        "{passed}"
    );
}

#[test]
fn messages_of_grpc_are_counted_beside_its_status() {
    let mut entry = request(&OUTBOUND);
    let stats = FilterObject {
        request_message_count: 3,
        response_message_count: 5,
    };
    let any = Any {
        type_url: String::new(),
        value: stats.encode_to_vec(),
    };

    entry
        .common_properties
        .as_mut()
        .unwrap()
        .filter_state_objects = BTreeMap::from([("envoy.filters.http.grpc_stats".to_owned(), any)]);
    entry.request.as_mut().unwrap().request_headers =
        texts(&[("content-type", "application/grpc+proto")]);
    let mut unavailable = entry.clone();

    entry.response.as_mut().unwrap().response_trailers = texts(&[("grpc-status", "0")]);
    unavailable.response.as_mut().unwrap().response_code = Some(503);
    let text = counted(
        workload("client", "buyers"),
        &log(Reporter::Source, Vec::new()),
        &[entry, unavailable],
    );

    for ending in [
        "request_protocol=\"grpc\",response_code=\"200\",grpc_response_status=\"0\",response_flags=\"-\",connection_security_policy=\"unknown\"} 1",
        "response_code=\"503\",grpc_response_status=\"14\",response_flags=\"-\",connection_security_policy=\"unknown\"} 1",
    ] {
        assert!(
            text.lines()
                .any(|line| line.starts_with("istio_requests_total{") && line.ends_with(ending)),
            "{text}"
        );
    }

    // Received and sent messages are counted without the status, so that both have the same labels.
    let ends = |name: &str, ending: &str| {
        text.lines()
            .any(|line| line.starts_with(name) && line.ends_with(ending))
    };
    assert!(
        ends(
            "istio_request_messages_total{",
            "destination_cluster=\"west\"} 6"
        ),
        "{text}"
    );

    assert!(
        ends(
            "istio_response_messages_total{",
            "destination_cluster=\"west\"} 10"
        ),
        "{text}"
    );
}

fn connection(id: &str, kind: AccessLogType, received: u64, sent: u64) -> TcpEntry {
    TcpEntry {
        common_properties: Some(Common {
            custom_tags: texts(&OUTBOUND),
            stream_id: id.to_owned().into(),
            access_log_type: kind.into(),
            ..Common::default()
        }),
        connection_properties: Some(ConnectionProperties {
            received_bytes: received,
            sent_bytes: sent,
        }),
    }
}

#[test]
fn open_connections_are_counted_and_their_bytes_once() {
    let metrics = MeshMetrics::new(workload("client", "buyers"), "");
    let log = metrics.log(&log(Reporter::Source, Vec::new())).unwrap();
    let tell = |kind, received, sent| {
        metrics.count_connections(
            &log,
            &[connection("a", kind, received, sent)],
            Instant::now(),
        );
        let text = metrics.exposition();
        let value = |name: &str| {
            let line = text
                .lines()
                .find(|line| line.starts_with(&format!("istio_tcp_{name}_total{{")))?;
            line.rsplit_once(' ')?.1.parse::<u64>().ok()
        };

        [
            "connections_opened",
            "connections_closed",
            "received_bytes",
            "sent_bytes",
        ]
        .map(|name| value(name).unwrap_or(0))
    };

    assert_eq!(
        tell(AccessLogType::TcpUpstreamConnected, 0, 0),
        [1, 0, 0, 0]
    );
    assert_eq!(tell(AccessLogType::TcpPeriodic, 10, 100), [1, 0, 10, 100]);
    assert_eq!(tell(AccessLogType::TcpPeriodic, 15, 100), [1, 0, 15, 100]);
    assert_eq!(
        tell(AccessLogType::TcpConnectionEnd, 20, 200),
        [1, 1, 20, 200]
    );

    // A connection without earlier entries counts when it ends.
    metrics.count_connections(
        &log,
        &[connection("b", AccessLogType::TcpConnectionEnd, 1, 1)],
        Instant::now(),
    );
    assert_eq!(tell(AccessLogType::TcpConnectionEnd, 1, 1), [3, 3, 22, 202]);
    assert!(
        metrics
            .exposition()
            .contains("request_protocol=\"tcp\",response_flags=\"-\",")
    );
}

#[test]
fn a_connection_that_no_service_takes_is_counted_by_its_cluster() {
    let metrics = MeshMetrics::new(workload("client", "buyers"), "");
    let log = metrics.log(&log(Reporter::Source, Vec::new())).unwrap();
    let mut blocked = connection("a", AccessLogType::TcpConnectionEnd, 0, 0);
    blocked.common_properties.as_mut().unwrap().custom_tags =
        texts(&[("cluster", "BlackHoleCluster")]);

    metrics.count_connections(&log, &[blocked], Instant::now());

    let text = metrics.exposition();
    let closed = text
        .lines()
        .find(|line| line.starts_with("istio_tcp_connections_closed_total{"))
        .unwrap();
    assert!(
        closed.contains("destination_service_name=\"BlackHoleCluster\""),
        "{closed}"
    );
}

#[test]
fn a_telemetry_changes_metrics_and_labels() {
    let named = |name: &str| MetricChange {
        name: name.to_owned(),
        ..MetricChange::default()
    };
    let set = [
        ("tier", LabelValue::Literal("a\"b".to_owned())),
        ("source_app", LabelValue::Tag("value.0".to_owned())),
        ("more", LabelValue::Tag("value.1".to_owned())),
        ("le", LabelValue::Literal("1".to_owned())),
        ("1.a", LabelValue::Literal("2".to_owned())),
    ];

    let changes = vec![
        MetricChange {
            drop: true,
            ..named("request_bytes")
        },
        MetricChange {
            remove: vec!["source_version".to_owned(), "tier".to_owned()],
            set: set.map(|(label, value)| (label.to_owned(), value)).into(),
            ..named("requests_total")
        },
    ];

    let entry = request(&[&OUTBOUND[..], &[("value.0", "x")]].concat());
    let text = counted(
        workload("client", "buyers"),
        &log(Reporter::Source, changes),
        &[entry],
    );
    let line = text
        .lines()
        .find(|line| line.starts_with("istio_requests_total{"))
        .unwrap();

    assert!(
        line.contains("source_app=\"x\",source_cluster=\"east\"")
            && !line.contains("source_version"),
        "{line}"
    );
    assert!(
        line.ends_with(",_1_a=\"2\",more=\"unknown\",tier=\"a\\\"b\"} 1"),
        "{line}"
    );

    assert!(
        !text.contains("istio_request_bytes") && text.contains("istio_response_bytes_count"),
        "{text}"
    );
    assert!(
        text.contains("istio_request_duration_milliseconds_count{reporter=\"source\",source_workload=\"client-v1\"")
    );
}

#[test]
fn other_logs_and_unfinished_entries_are_not_counted() {
    let metrics = MeshMetrics::new(Workload::default(), "");
    assert!(metrics.log("http_envoy_accesslog").is_none());
    let log = metrics.log(&log(Reporter::Source, Vec::new())).unwrap();
    let mut entry = request(&OUTBOUND);
    entry.common_properties.as_mut().unwrap().access_log_type =
        AccessLogType::DownstreamPeriodic.into();
    metrics.count_requests(&log, &[entry, HttpEntry::default()], Instant::now());
    assert!(metrics.exposition().contains("label_sets 0\n"));
}

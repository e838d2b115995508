//! Labels that a Telemetry sets to attributes of peers.

use super::*;

/// The name of a log that sets labels to attributes.
fn reading(reporter: Reporter, labels: &[(&str, Peer, PeerField)]) -> String {
    let attribute = |(label, peer, field): &(&str, Peer, PeerField)| {
        let attribute = PeerAttribute {
            peer: *peer,
            field: field.clone(),
        };
        ((*label).to_owned(), attribute)
    };
    let change = MetricChange {
        peers: labels.iter().map(attribute).collect(),
        ..MetricChange::default()
    };
    log(reporter, vec![change])
}

/// The line of the requests.
fn line(text: &str) -> &str {
    text.lines()
        .find(|line| line.starts_with("istio_requests_total{"))
        .unwrap()
}

#[test]
fn a_client_reads_attributes_of_the_server_only() {
    let label = |name: &str| PeerField::Label(name.to_owned());
    let name = reading(
        Reporter::Source,
        &[
            ("a", Peer::Upstream, PeerField::Workload),
            ("b", Peer::Upstream, PeerField::Cluster),
            ("c", Peer::Upstream, label("tier")),
            ("d", Peer::Upstream, label("missing")),
            ("e", Peer::Downstream, PeerField::App),
            ("destination_version", Peer::Upstream, PeerField::Service),
        ],
    );
    let tags = [
        &[(
            WORKLOAD_TAG,
            "web-v1;shop;web;;west;;shop-web;2;app=web,tier=gold",
        )][..],
        &OUTBOUND[1..],
    ]
    .concat();
    let text = counted(workload("client", "buyers"), &name, &[request(&tags)]);

    let line = line(&text);
    assert!(
        line.ends_with(",a=\"web-v1\",b=\"west\",c=\"gold\",d=\"unknown\",e=\"unknown\"} 1"),
        "{line}"
    );
    assert!(line.contains("destination_version=\"web\""), "{line}");
}

#[test]
fn a_server_reads_attributes_of_the_client_only() {
    let name = reading(
        Reporter::Destination,
        &[
            ("a", Peer::Downstream, PeerField::Namespace),
            ("b", Peer::Downstream, PeerField::Version),
            ("c", Peer::Upstream, PeerField::App),
        ],
    );
    let mut entry = request(&[(SERVICES_TAG, SERVICES)]);
    inbound(entry.common_properties.as_mut().unwrap());
    let text = counted(workload("web", "shop"), &name, &[entry]);

    let line = line(&text);
    assert!(
        line.ends_with(",a=\"buyers\",b=\"v1\",c=\"unknown\"} 1"),
        "{line}"
    );
}

#[test]
fn a_waypoint_reads_attributes_of_both_peers() {
    let name = reading(
        Reporter::Waypoint,
        &[
            ("a", Peer::Downstream, PeerField::Service),
            ("b", Peer::Upstream, PeerField::Revision),
        ],
    );
    let tags = [
        (PEER_TAG, CLIENT),
        (
            BAGGAGE_TAG,
            "k8s.deployment.name=client-v1,service.name=client",
        ),
        (WORKLOAD_TAG, "web-v1;shop;web;v2;west;;web;v2"),
    ];
    let text = counted(workload("way", "shop"), &name, &[request(&tags)]);

    let line = line(&text);
    assert!(line.ends_with(",a=\"client\",b=\"v2\"} 1"), "{line}");
}

//! Requests that come through tunnels, at waypoints and at sidecars.

use super::*;

/// Envoy's tags for the client at the end of a tunnel.
const TUNNEL: [(&str, &str); 3] = [
    (PEER_TAG, CLIENT),
    (OWN_TAG, "spiffe://cluster.local/ns/shop/sa/way"),
    (
        BAGGAGE_TAG,
        "k8s.cluster.name=east,k8s.namespace.name=liars,k8s.deployment.name=client-v1,service.name=client",
    ),
];

/// The metrics of a waypoint after a request with these tags.
fn counted_at_waypoint(tags: &[(&str, &str)]) -> String {
    counted(
        workload("way", "shop"),
        &log(Reporter::Waypoint, Vec::new()),
        &[request(tags)],
    )
}

#[test]
fn a_request_through_a_waypoint_is_counted_with_labels_of_tunnel_and_endpoint() {
    let endpoint = "web-v1;shop;web;v2;west;spiffe://cluster.local/ns/shop/sa/web;web;v2";
    let tags = [
        &TUNNEL[..],
        &[(WORKLOAD_TAG, endpoint), (SERVICES_TAG, SERVICES)],
    ]
    .concat();
    let text = counted_at_waypoint(&tags);

    let labels = "reporter=\"waypoint\",source_workload=\"client-v1\",source_canonical_service=\"client\",\
        source_canonical_revision=\"latest\",source_workload_namespace=\"buyers\",\
        source_principal=\"spiffe://cluster.local/ns/buyers/sa/client\",source_app=\"client\",source_version=\"unknown\",\
        source_cluster=\"east\",destination_workload=\"web-v1\",destination_workload_namespace=\"shop\",\
        destination_principal=\"spiffe://cluster.local/ns/shop/sa/web\",destination_app=\"web\",\
        destination_version=\"v2\",destination_service=\"web.shop.svc.cluster.local\",\
        destination_canonical_service=\"web\",destination_canonical_revision=\"v2\",destination_service_name=\"web\",\
        destination_service_namespace=\"shop\",destination_cluster=\"west\",request_protocol=\"http\",response_code=\"200\",\
        grpc_response_status=\"\",response_flags=\"-\",connection_security_policy=\"mutual_tls\"";

    assert!(
        text.contains(&format!("\nistio_requests_total{{{labels}}} 1\n")),
        "{text}"
    );
}

#[test]
fn a_request_that_a_policy_denies_at_a_waypoint_has_an_unknown_destination() {
    let text = counted_at_waypoint(&[&TUNNEL[..], &[(WORKLOAD_TAG, "-")]].concat());

    let labels = "destination_workload=\"unknown\",destination_workload_namespace=\"unknown\",destination_principal=\"unknown\",\
        destination_app=\"unknown\",destination_version=\"unknown\",destination_service=\"unknown\",\
        destination_canonical_service=\"unknown\",destination_canonical_revision=\"unknown\",destination_service_name=\"unknown\",\
        destination_service_namespace=\"unknown\",destination_cluster=\"unknown\"";
    assert!(text.contains(labels), "{text}");
}

#[test]
fn a_server_counts_a_request_through_a_tunnel_with_the_identity_of_the_tunnel() {
    let text = counted(
        workload("web", "shop"),
        &log(Reporter::Destination, Vec::new()),
        &[request(&TUNNEL)],
    );
    let source = "source_workload=\"client-v1\",source_canonical_service=\"client\",source_canonical_revision=\"latest\",\
        source_workload_namespace=\"buyers\",source_principal=\"spiffe://cluster.local/ns/buyers/sa/client\"";
    assert!(
        text.contains(source) && text.contains("connection_security_policy=\"mutual_tls\""),
        "{text}"
    );
}

#[test]
fn a_client_counts_a_request_through_a_tunnel_with_the_expected_identity_of_the_server() {
    // The tag of the endpoint has the identity; the access log has no TLS of the tunnel.
    let endpoint = "web-v1;shop;web;;west;spiffe://cluster.local/ns/shop/sa/web";
    let entry = request(&[(WORKLOAD_TAG, endpoint), (PEER_TAG, "-"), (OWN_TAG, "-")]);
    let text = counted(
        workload("client", "buyers"),
        &log(Reporter::Source, Vec::new()),
        &[entry],
    );

    assert!(
        text.contains("source_principal=\"unknown\"")
            && text.contains(&format!("destination_principal=\"{WEB}\"")),
        "{text}"
    );
}

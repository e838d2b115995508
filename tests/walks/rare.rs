//! Walks through features that few meshes use: persistent sessions, services that stay within their
//! cluster, IPv6 without IPv4.

use navarch_proto::envoy::config::core::v3::HealthStatus;
use serde_json::json;

use super::mesh::Mesh;
use super::{bytes, request, shop};

/// The Service `reviews` with additional metadata.
fn reviews(metadata: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: reviews, namespace: shop, {metadata}}}\n\
         spec: {{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], selector: {{app: reviews}}, \
         ports: [{{name: http, port: 9080, targetPort: 8080, protocol: TCP}}]}}"
    )
}

#[test]
fn a_labelled_service_keeps_sessions_even_at_pods_that_drain() {
    let draining = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
                    metadata: {name: reviews-x, namespace: shop, labels: {kubernetes.io/service-name: reviews}}\n\
                    addressType: IPv4\nendpoints: [{addresses: [10.1.0.1], nodeName: n1, conditions: {ready: true}, \
                    targetRef: {kind: Pod, name: reviews-0, namespace: shop}}, {addresses: [10.1.0.2], nodeName: n2, \
                    conditions: {ready: false, serving: true, terminating: true}, \
                    targetRef: {kind: Pod, name: reviews-1, namespace: shop}}]\n\
                    ports: [{name: http, port: 8080, protocol: TCP}]";

    let session = "envoy.filters.http.stateful_session";
    let has = |labels: &str, on: bool| {
        let mesh = shop().with(&reviews(labels)).with(draining);
        let mesh = mesh.settings(|settings| settings.persistent_session_filter = on);
        let client = mesh.sidecar("shop", "client");
        let host = client.routes["9080"]
            .hosts()
            .find(|host| host.name == "reviews.shop.svc.cluster.local:9080")
            .unwrap();
        let keeps = host.typed_per_filter_config.contains_key(session)
            || host
                .routes
                .iter()
                .any(|route| route.typed_per_filter_config.contains_key(session));

        let endpoints = &client.endpoints["outbound|9080||reviews.shop.svc.cluster.local"];
        let all = endpoints
            .endpoints
            .iter()
            .flat_map(|group| &group.lb_endpoints);
        let sent: Vec<HealthStatus> = all.map(|endpoint| endpoint.health_status()).collect();

        (keeps, sent)
    };

    let cookie = "labels: {istio.io/persistent-session: sid}";
    let draining = vec![HealthStatus::Healthy, HealthStatus::Draining];
    assert_eq!(
        has(cookie, true),
        (true, draining),
        "the draining pod is still an endpoint"
    );
    assert!(has("labels: {istio.io/persistent-session-header: x-sid}", true).0);

    assert_eq!(
        has("labels: {}", true),
        (false, vec![HealthStatus::Healthy])
    );
}

#[test]
fn a_service_may_stay_within_its_cluster() {
    let from = |mesh: &Mesh, cluster: &str| {
        let client = mesh.proxy_with(
            "sidecar",
            "10.9.9.9",
            "shop",
            "client",
            "",
            &json!({ "CLUSTER_ID": cluster }),
        );
        client
            .walk(&request("10.96.0.1:9080", "reviews", "/", &[]))
            .addresses()
    };

    let all = ["10.1.0.1:8080", "10.1.0.2:8080"];
    let open = shop();
    assert_eq!(from(&open, "Kubernetes"), all);
    assert_eq!(from(&open, "far"), all);
    let kept =
        "serviceSettings: [{settings: {clusterLocal: true}, hosts: ['*.shop.svc.cluster.local']}]";
    let kept = shop().config(kept);
    assert_eq!(from(&kept, "Kubernetes"), all);

    assert_eq!(from(&kept, "far"), Vec::<String>::new());
    let but_one = "serviceSettings: [{settings: {clusterLocal: true}, hosts: ['*']}, \
                   {settings: {clusterLocal: false}, hosts: [reviews.shop.svc.cluster.local]}]";
    assert_eq!(
        from(&shop().config(but_one), "far"),
        all,
        "the more specific host decides"
    );
}

/// A Service with one pod, with IPv6 only.
fn six() -> Mesh {
    Mesh::default().with(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web-0, namespace: shop, labels: {app: web}}\n\
         status: {phase: Running, podIP: 'fd00::1', podIPs: [{ip: 'fd00::1'}]}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
         spec: {clusterIP: 'fd00:10::1', clusterIPs: ['fd00:10::1'], ipFamilies: [IPv6], selector: {app: web}, \
         ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP}, {name: tcp, port: 90, targetPort: 9090, protocol: TCP}]}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {name: web-x, namespace: shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv6\n\
         endpoints: [{addresses: ['fd00::1'], conditions: {ready: true}, targetRef: {kind: Pod, name: web-0, namespace: shop}}]\n\
         ports: [{name: http, port: 8080, protocol: TCP}, {name: tcp, port: 9090, protocol: TCP}]",
    )
}

#[test]
fn ipv6_alone_is_enough() {
    let client = six().proxy("sidecar", "fd00::9", "shop", "client", "");
    let walk = client.walk(&request("[fd00:10::1]:80", "web", "/", &[]));
    assert_eq!(
        walk.clusters(),
        [("outbound|80||web.shop.svc.cluster.local", 1)]
    );
    assert_eq!(walk.addresses().len(), 1);
    let walk = client.walk(&bytes("[fd00:10::1]:90"));

    assert_eq!(
        walk.clusters(),
        [("outbound|90||web.shop.svc.cluster.local", 1)]
    );
    assert_eq!(
        client.walk(&bytes("[2001:db8::7]:7777")).clusters(),
        [("PassthroughCluster", 1)]
    );

    let server = six().proxy("sidecar", "fd00::1", "shop", "web", "");
    let inbound = navarch::walk::Connection {
        entry: navarch::walk::Entry::Inbound,
        ..request("[fd00::1]:8080", "web", "/", &[])
    };
    assert_eq!(server.walk(&inbound).clusters(), [("inbound|8080||", 1)]);
}

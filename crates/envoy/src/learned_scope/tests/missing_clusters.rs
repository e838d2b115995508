//! Requests whose route names a cluster that does not exist.

use navarch_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use navarch_proto::envoy::config::route::v3::{RouteConfiguration, route};
use navarch_push::engine::ProxyId;
use navarch_push::resource::ResourceType;

use super::{MESH, SECRET};
use crate::test_mesh::TestMesh;

/// The clusters of a proxy's routes at port 80 that Envoy does not request on demand.
fn not_requested(mesh: &mut TestMesh, proxy: ProxyId) -> Vec<String> {
    let filter = crate::filters::on_demand::NAME;
    let tables = mesh.named::<RouteConfiguration>(proxy, ResourceType::Route, &["80"]);
    let hosts = tables.values().flat_map(|table| &table.virtual_hosts);
    let mut names = Vec::new();
    for route in hosts.flat_map(|host| &host.routes) {
        let Some(route::Action::Route(action)) = &route.action else {
            continue;
        };
        let is_off = route.typed_per_filter_config.contains_key(filter);
        match &action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(name)) => {
                names.extend(is_off.then(|| name.clone()));
            }
            Some(ClusterSpecifier::WeightedClusters(weighted)) => {
                let mut clusters = weighted.clusters.clone();
                clusters.retain(|cluster| cluster.typed_per_filter_config.contains_key(filter));
                names.extend(clusters.into_iter().map(|cluster| cluster.name));
            }
            Some(_) | None => {}
        }
    }
    names.sort_unstable();
    names
}

#[test]
fn requests_for_clusters_that_do_not_exist_wait_for_none() {
    let mut mesh = TestMesh::new(&format!(
        "{MESH}
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: reviews, namespace: shop}}
spec:
  hosts: [reviews]
  http:
  - match: [{{uri: {{prefix: /none}}}}]
    route: [{{destination: {{host: none}}}}]
  - match: [{{uri: {{prefix: /hidden}}}}]
    route: [{{destination: {{host: secret.bank.svc.cluster.local}}}}]
  - route:
    - {{destination: {{host: reviews, subset: v1}}, weight: 90}}
    - {{destination: {{host: reviews, subset: v9}}, weight: 10}}
"
    ));
    let none = "outbound|80||none.shop.svc.cluster.local";
    let v9 = "outbound|80|v9|reviews.shop.svc.cluster.local";
    let whole = mesh.sidecar("shop", "web");
    assert_eq!(not_requested(&mut mesh, whole), Vec::<String>::new());
    let learned = mesh.learned_sidecar("shop", "web");
    assert_eq!(not_requested(&mut mesh, learned), [v9, none, SECRET]);

    // Once it exists it is requested.
    mesh.apply(
        "
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: reviews, subsets: [{name: v1, labels: {version: v1}}, {name: v9, labels: {version: v9}}]}
",
    );
    assert_eq!(not_requested(&mut mesh, learned), [none, SECRET]);
}

//! A plan on a copy of the serving engine equals a plan with a new engine.

use std::collections::BTreeMap;
use std::net::IpAddr;

use navarch_api::settings::Settings;
use navarch_push::mesh_state::MeshState;
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::testing::changes;
use serde_json::json;

use super::*;
use crate::received::find;

const MESH: &str = r"
apiVersion: v1
kind: Service
metadata: { name: reviews, namespace: shop }
spec:
  clusterIP: 10.96.0.10
  selector: { app: reviews }
  ports: [{ name: http, port: 9080 }]
---
apiVersion: v1
kind: Service
metadata: { name: ratings, namespace: bank }
spec:
  clusterIP: 10.96.0.11
  selector: { app: ratings }
  ports: [{ name: http, port: 9080 }, { name: tcp, port: 7000 }]
---
apiVersion: v1
kind: Pod
metadata: { name: reviews-1, namespace: shop, labels: { app: reviews, version: v1 } }
spec: { containers: [{ name: app, ports: [{ containerPort: 9080 }] }] }
status: { phase: Running, podIP: 10.0.0.1, conditions: [{ type: Ready, status: 'True' }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: reviews-1, namespace: shop, labels: { kubernetes.io/service-name: reviews } }
addressType: IPv4
ports: [{ name: http, port: 9080 }]
endpoints: [{ addresses: [10.0.0.1], conditions: { ready: true }, targetRef: { kind: Pod, name: reviews-1, namespace: shop } }]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: { name: reviews, namespace: shop }
spec:
  hosts: [reviews]
  http: [{ timeout: 5s, route: [{ destination: { host: reviews } }] }]
";

/// Changes of every kind: of routes, clusters, endpoints and listeners, of facts about a proxy, and
/// without effect.
const CHANGES: [&str; 9] = [
    "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: { name: reviews, namespace: shop }
spec:
  hosts: [reviews]
  http: [{ timeout: 9s, route: [{ destination: { host: reviews } }] }]",
    "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: { name: ratings, namespace: bank }
spec:
  hosts: [ratings]
  exportTo: [.]
  http: [{ fault: { abort: { httpStatus: 500, percentage: { value: 100 } } }, route: [{ destination: { host: ratings } }] }]",
    "apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: { name: reviews, namespace: shop }
spec:
  host: reviews
  subsets: [{ name: v1, labels: { version: v1 } }]",
    "apiVersion: v1
kind: Service
metadata: { name: details, namespace: shop }
spec:
  clusterIP: 10.96.0.12
  selector: { app: details }
  ports: [{ name: tcp, port: 9000 }]",
    "apiVersion: v1
kind: Pod
metadata: { name: reviews-1, namespace: shop, labels: { app: reviews, version: v2 } }
spec: { containers: [{ name: app, ports: [{ containerPort: 9080 }] }] }
status: { phase: Running, podIP: 10.0.0.1, conditions: [{ type: Ready, status: 'True' }] }",
    "apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: { name: default, namespace: shop }
spec: { mtls: { mode: STRICT } }",
    "apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: { name: default, namespace: bank }
spec: { egress: [{ hosts: ['./*'] }] }",
    "apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: { name: broken, namespace: shop }
spec:
  configPatches:
  - applyTo: CLUSTER
    match: { context: SIDECAR_OUTBOUND }
    patch: { operation: MERGE, value: { no_such_field: 1 } }",
    "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: { name: elsewhere, namespace: bank }
spec:
  hosts: [nobody.example]
  exportTo: [.]
  gateways: [nowhere]
  http: [{ route: [{ destination: { host: ratings } }] }]",
];

fn sidecar(name: &str, namespace: &str, address: [u8; 4], labels: &[(&str, &str)]) -> Client {
    let labels: BTreeMap<String, String> = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let id = format!(
        "sidecar~{}~{name}.{namespace}~{namespace}.svc.cluster.local",
        IpAddr::from(address)
    );
    let metadata = json!({ "NAMESPACE": namespace, "LABELS": labels, "CLUSTER_ID": "Kubernetes" });
    Client::fresh(Proxy::parse(&id, metadata, Locality::default()).unwrap())
}

/// So many services that marking waits at the tables that depend on them.
fn further() -> String {
    let service = |n: usize| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: more-{n}, namespace: shop }}\n\
             spec: {{ clusterIP: 10.97.0.{n}, selector: {{ app: more }}, ports: [{{ name: http, port: 9080 }}] }}\n"
        )
    };
    (1..=40).map(service).collect()
}

/// The memory addresses of a mirror's resources, by proxy.
fn places(mirror: &Mirror) -> Vec<Vec<usize>> {
    all_resources(mirror)
        .values()
        .map(|had| had.values().map(|one| Arc::as_ptr(one).addr()).collect())
        .collect()
}

/// A plan on copies, and one on a mirror with a new engine.
fn both(served: &Mirror, change: &Change) -> [Plan; 2] {
    let clients = served.clients().cloned().collect();
    let before = places(served);
    let plans = [
        &mut served.copy(),
        &mut Mirror::of(&served.context(), clients),
    ]
    .map(|one| plan_of(one, change.clone()));
    assert_eq!(places(served), before, "the served resources are unchanged");
    plans
}

#[test]
fn a_plan_on_copies_equals_a_plan_from_scratch() {
    let mut state = MeshState::new(Settings::default());
    state.apply(changes(&format!("{MESH}{}", further())));
    let proxies = vec![
        sidecar("reviews-1", "shop", [10, 0, 0, 1], &[("app", "reviews")]),
        sidecar("web-1", "shop", [10, 0, 0, 2], &[("app", "web")]),
        sidecar("ratings-1", "bank", [10, 0, 0, 3], &[("app", "ratings")]),
    ];
    let mut served = Mirror::of(&state.context(), proxies);

    let all: Vec<Change> = CHANGES.iter().flat_map(|yaml| changes(yaml)).collect();
    let mut reaching = 0;

    for change in &all {
        let [copied, anew] = both(&served, change);
        reaching += usize::from(anew.reached > 0);
        assert_eq!(copied, anew, "{change:?}");
    }

    assert!(reaching >= 7, "only {reaching} changes reach a proxy");

    // Each change on top of the previous ones, and reverted.
    let removed = |change: &Change| {
        let Change::Put(object) = change else {
            panic!("the changes put objects, not {change:?}")
        };
        Change::Removed(object.object_ref())
    };

    for change in all.iter().cloned().chain(all.iter().map(removed)) {
        let [copied, anew] = both(&served, &change);
        assert_eq!(copied, anew, "{change:?}");
        let had = all_resources(&served);
        served.apply(vec![change]);
        let reached = all_resources(&served)
            .into_iter()
            .filter(|(at, now)| had.get(at) != Some(now))
            .count();
        assert_eq!(
            copied.reached, reached,
            "as many proxies as get a push when the change is made"
        );
    }
}

#[test]
fn a_plan_has_clusters_that_a_learned_scope_gets_on_demand() {
    let mut state = MeshState::new(Settings::default());
    state.apply(changes(MESH));
    let labels = [("app", "web"), ("navarch.io/scope", "learned")];
    let mut learner = sidecar("web-1", "shop", [10, 0, 0, 2], &labels);
    Arc::make_mut(&mut learner.proxy).has_learned_scope = true;
    let served = Mirror::of(&state.context(), vec![learner]);

    let reviews = "outbound|9080||reviews.shop.svc.cluster.local";
    for mirror in [&served, &served.copy()] {
        let client = mirror.clients().next().unwrap();
        let interest = &client.interests[&ResourceType::Cluster];
        assert!(interest.wildcard && interest.names.contains(reviews));
        let had = mirror.had(0);
        for resource_type in [ResourceType::Cluster, ResourceType::Endpoint] {
            assert!(find(&had, resource_type, reviews).is_some());
        }
    }
}

//! Which clusters are lazy, for whom, and what widens a scope.

mod cost;
mod missing_clusters;
mod reasons;

use navarch_api::object::Kind;
use navarch_proto::envoy::config::listener::v3::{Listener, filter};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_push::engine::ProxyId;
use navarch_push::resource::ResourceType;

use crate::test_mesh::TestMesh;

const REVIEWS: &str = "outbound|80||reviews.shop.svc.cluster.local";
const REVIEWS_V1: &str = "outbound|80|v1|reviews.shop.svc.cluster.local";
const LEDGER: &str = "outbound|80||ledger.bank.svc.cluster.local";
const SECRET: &str = "outbound|80||secret.bank.svc.cluster.local";

/// A namespace that opts in with two pods of one workload, and services of HTTP.
const MESH: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {navarch.io/scope: learned}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {service.istio.io/workload-name: web}}
spec: {serviceAccountName: web}
status: {phase: Running, podIP: 10.244.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: web-2, namespace: shop, labels: {service.istio.io/workload-name: web}}
spec: {serviceAccountName: web}
status: {phase: Running, podIP: 10.244.0.2}
---
apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: reviews, subsets: [{name: v1, labels: {version: v1}}]}
---
apiVersion: v1
kind: Service
metadata: {name: ledger, namespace: bank}
spec: {clusterIP: 10.0.0.2, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: secret, namespace: bank, annotations: {networking.istio.io/exportTo: '.'}}
spec: {clusterIP: 10.0.0.3, ports: [{name: http, port: 80}]}
---
";

fn clusters(mesh: &mut TestMesh, proxy: ProxyId) -> Vec<String> {
    let mut names = mesh.all_names(proxy, ResourceType::Cluster);
    names.retain(|name| name.starts_with("outbound|"));
    names
}

/// The outbound clusters at the start of a sidecar of the sample mesh with these objects added.
fn at_start(further: &str) -> Vec<String> {
    let mut mesh = TestMesh::new(&format!("{MESH}{further}"));
    let proxy = mesh.learned_sidecar("shop", "web");
    clusters(&mut mesh, proxy)
}

#[test]
fn clusters_of_http_routes_are_lazy_and_others_stay() {
    assert_eq!(at_start(""), Vec::<String>::new());

    let mut mesh = TestMesh::new(MESH);
    let whole = mesh.sidecar("shop", "web");
    assert_eq!(clusters(&mut mesh, whole), [REVIEWS_V1, LEDGER, REVIEWS]);

    let proxy = mesh.learned_sidecar("shop", "web");
    let others = mesh.all_names(proxy, ResourceType::Cluster);
    for fixed in [
        "BlackHoleCluster",
        "InboundPassthroughCluster",
        "PassthroughCluster",
    ] {
        assert!(others.iter().any(|name| name == fixed), "{others:?}");
    }
}

#[test]
fn clusters_of_tcp_and_of_undeclared_protocols_stay() {
    let service = "
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec:
  clusterIP: 10.0.0.9
  ports:
  - {name: tcp, port: 5432}
  - {name: https, port: 443}
  - {name: any, port: 7000}
  - {name: http-admin, port: 8080}
";
    let host = "db.shop.svc.cluster.local";
    let expected = [443, 5432, 7000].map(|port| format!("outbound|{port}||{host}"));
    assert_eq!(at_start(service), expected);
}

#[test]
fn destinations_of_tcp_routes_stay() {
    let routed = "
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: 10.0.0.9, ports: [{name: tcp, port: 5432}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: db, namespace: shop}
spec:
  hosts: [db]
  tcp:
  - route:
    - {destination: {host: db, port: {number: 5432}}, weight: 1}
    - {destination: {host: reviews, subset: v1, port: {number: 80}}, weight: 99}
";
    let found = at_start(routed);
    assert!(found.iter().any(|name| name == REVIEWS_V1), "{found:?}");
    assert!(!found.iter().any(|name| name == REVIEWS), "{found:?}");
}

#[test]
fn mirrors_stay() {
    let mirrored = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews]
  http:
  - route: [{destination: {host: reviews}}]
    mirrors: [{destination: {host: ledger.bank.svc.cluster.local}}]
";
    assert_eq!(at_start(mirrored), [LEDGER]);
}

#[test]
fn what_the_alias_of_a_mirror_stands_for_stays() {
    let mirrored = "
apiVersion: v1
kind: Service
metadata: {name: copy, namespace: shop}
spec: {type: ExternalName, externalName: ledger.bank.svc.cluster.local, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews]
  http:
  - route: [{destination: {host: reviews}}]
    mirror: {host: copy}
";
    assert_eq!(at_start(mirrored), [LEDGER]);
}

#[test]
fn with_and_without_patches_of_clusters_the_same_ones_are_lazy() {
    let further = "
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: 10.0.0.9, ports: [{name: tcp, port: 5432}, {name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: any, namespace: shop}
spec:
  hosts: ['*.example.com']
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: DYNAMIC_DNS
---
";
    let patch = "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: added, namespace: shop}
spec:
  configPatches:
  - applyTo: CLUSTER
    patch: {operation: ADD, value: {name: added, type: STATIC}}
";

    let names = |further: &str| {
        let mut mesh = TestMesh::new(&format!("{MESH}{further}"));
        let proxy = mesh.learned_sidecar("shop", "web");
        assert!(mesh.learn(proxy, &[REVIEWS]));
        let mut names = mesh.all_names(proxy, ResourceType::Cluster);
        names.retain(|name| name != "added");
        names
    };

    let generated = names(further);
    let has = |name: &str| generated.iter().any(|other| other == name);
    assert!(has("outbound|5432||db.shop.svc.cluster.local") && has(REVIEWS_V1));
    assert!(!has("outbound|80||db.shop.svc.cluster.local") && !has(LEDGER));

    assert_eq!(generated, names(&format!("{further}{patch}")));
}

#[test]
fn hosts_that_envoy_resolves_or_has_credentials_for_stay() {
    let resolved = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: shop}
spec:
  hosts: [api.example.com]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: DNS
";
    assert_eq!(at_start(resolved), ["outbound|80||api.example.com"]);

    let rule = |policy: &str| {
        format!(
            "
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: ledger, namespace: shop}}
spec: {{host: ledger.bank.svc.cluster.local, trafficPolicy: {policy}}}
"
        )
    };
    let of_port = "{portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE, caCertificates: /etc/ca.pem}}]}";
    assert_eq!(at_start(&rule(of_port)), [LEDGER]);
    let of_mesh = "{tls: {mode: ISTIO_MUTUAL}}";
    assert_eq!(at_start(&rule(of_mesh)), Vec::<String>::new());
}

#[test]
fn services_of_extension_providers_stay() {
    let mut mesh = TestMesh::new(MESH);
    mesh.mesh_config(
        "extensionProviders: [{name: otel, opentelemetry: {service: bank/ledger.bank.svc.cluster.local, port: 80}}]",
    );
    let proxy = mesh.learned_sidecar("shop", "web");
    assert_eq!(clusters(&mut mesh, proxy), [LEDGER]);
}

/// An EnvoyFilter with one patch of HTTP filters.
fn envoy_filter(context: &str, operation: &str) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{name: lua, namespace: shop}}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    match:
      context: {context}
      listener: {{filterChain: {{filter: {{name: envoy.filters.network.http_connection_manager, subFilter: {{name: envoy.filters.http.router}}}}}}}}
    patch:
      operation: {operation}
      value:
        name: envoy.filters.http.lua
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code: {{inline_string: \"h:httpCall('{LEDGER}', {{}})\"}}
"
    )
}

#[test]
fn clusters_that_envoy_filters_name_stay() {
    let inbound = envoy_filter("SIDECAR_INBOUND", "INSERT_BEFORE");
    assert_eq!(at_start(&inbound), [LEDGER]);
}

#[test]
fn filters_that_envoy_filters_add_to_outbound_listeners_need_all_clusters() {
    let mut mesh = TestMesh::new(MESH);
    let proxy = mesh.learned_sidecar("shop", "web");
    assert_eq!(clusters(&mut mesh, proxy), Vec::<String>::new());

    mesh.apply(&envoy_filter("SIDECAR_OUTBOUND", "INSERT_BEFORE"));
    assert_eq!(clusters(&mut mesh, proxy), [REVIEWS_V1, LEDGER, REVIEWS]);
    let remarks = mesh.remarks();
    let says_why = remarks
        .iter()
        .any(|remark| remark.contains("EnvoyFilter shop/lua: spec.configPatches[0]"));
    assert!(says_why, "{remarks:?}");

    mesh.remove(Kind::EnvoyFilter, "shop", "lua");
    assert_eq!(clusters(&mut mesh, proxy), Vec::<String>::new());
}

#[test]
fn connection_managers_that_envoy_filters_merge_into_outbound_listeners_need_all_clusters() {
    let filter = |value: &str| {
        format!(
            "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{name: chains, namespace: shop}}
spec:
  configPatches:
  - applyTo: LISTENER
    match: {{context: SIDECAR_OUTBOUND}}
    patch: {{operation: MERGE, value: {value}}}
"
        )
    };
    let manager = "{'@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: own}";
    let chain = format!("{{filterChains: [{{filters: [{{name: own, typedConfig: {manager}}}]}}]}}");
    assert_eq!(at_start(&filter(&chain)), [REVIEWS_V1, LEDGER, REVIEWS]);
    let field = "{perConnectionBufferLimitBytes: 65536}";
    assert_eq!(at_start(&filter(field)), Vec::<String>::new());
}

#[test]
fn what_one_pod_requests_all_pods_of_its_workload_get() {
    let mut mesh = TestMesh::new(MESH);
    let first = mesh.learned_sidecar("shop", "web");
    assert!(mesh.learn(first, &[REVIEWS]));
    // All clusters of the host, so that a shifted weight needs no request.
    assert_eq!(clusters(&mut mesh, first), [REVIEWS_V1, REVIEWS]);
    let second = mesh.learned_sidecar("shop", "web");
    assert_eq!(clusters(&mut mesh, second), [REVIEWS_V1, REVIEWS]);

    assert!(!mesh.learn(second, &[REVIEWS, REVIEWS_V1]), "it has them");
    assert!(mesh.learn(second, &[REVIEWS, LEDGER]));
    assert_eq!(clusters(&mut mesh, first), [REVIEWS_V1, LEDGER, REVIEWS]);
}

#[test]
fn a_request_by_name_is_answered_beside_the_wildcard_as_far_as_the_proxy_sees_the_service() {
    let mut mesh = TestMesh::new(MESH);
    let proxy = mesh.learned_sidecar("shop", "web");
    let unknown = "outbound|80||none.shop.svc.cluster.local";
    let unknown_subset = "outbound|80|v9|reviews.shop.svc.cluster.local";
    let wanted = [LEDGER, SECRET, unknown, unknown_subset];

    let mut found = mesh.all_names_and(proxy, ResourceType::Cluster, &wanted);
    found.retain(|name| name.starts_with("outbound|"));
    assert_eq!(found, [LEDGER]);
    assert!(!mesh.learn(proxy, &[SECRET, unknown, unknown_subset]));
    assert!(!mesh.learn(proxy, &["PassthroughCluster", "inbound|80||", "x"]));

    mesh.remove(Kind::Service, "bank", "ledger");
    let found = mesh.all_names_and(proxy, ResourceType::Cluster, &wanted);
    assert!(!found.iter().any(|name| name == LEDGER), "{found:?}");
}

#[test]
fn a_client_widens_the_scope_of_its_own_workload_only() {
    let mut mesh = TestMesh::new(MESH);
    // It has the name of the pod web-1, and the identity of another account.
    let forged = mesh.learned_sidecar("shop", "other");
    assert!(!mesh.learn(forged, &[REVIEWS]));
    let own = mesh.learned_sidecar("shop", "web");
    assert_eq!(clusters(&mut mesh, own), Vec::<String>::new());

    // The pod web-3 is not known.
    let unknown = mesh.learned_sidecar("shop", "web");
    assert!(!mesh.learn(unknown, &[REVIEWS]));
    assert_eq!(clusters(&mut mesh, unknown), Vec::<String>::new());
}

#[test]
fn nothing_is_kept_for_a_pod_without_a_controller() {
    let mut mesh = TestMesh::new(&MESH.replace("workload-name: web", "other: web"));
    let proxy = mesh.learned_sidecar("shop", "web");
    assert_eq!(clusters(&mut mesh, proxy), Vec::<String>::new());
    assert!(!mesh.learn(proxy, &[REVIEWS]));
}

#[test]
fn the_label_of_the_pod_takes_precedence_and_unknown_values_have_no_effect() {
    let whole = [REVIEWS_V1, LEDGER, REVIEWS];
    let mut mesh = TestMesh::new(MESH);
    let proxy = mesh.learned_sidecar("shop", "web");
    assert_eq!(clusters(&mut mesh, proxy), Vec::<String>::new());

    let pod = |value: &str| {
        format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: web-1, namespace: shop, labels: {{service.istio.io/workload-name: web, navarch.io/scope: {value}}}}}
spec: {{serviceAccountName: web}}
status: {{phase: Running, podIP: 10.244.0.1}}
"
        )
    };
    mesh.apply(&pod("whole"));
    assert_eq!(clusters(&mut mesh, proxy), whole);
    mesh.apply(&pod("learned"));
    assert_eq!(clusters(&mut mesh, proxy), Vec::<String>::new());
    mesh.apply(&pod("lerned"));
    assert_eq!(clusters(&mut mesh, proxy), whole);
}

#[test]
fn a_sidecar_restricts_a_learned_scope_too() {
    let mut mesh = TestMesh::new(&format!(
        "{MESH}
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: own, namespace: shop}}
spec: {{egress: [{{hosts: ['./*']}}]}}
"
    ));
    let proxy = mesh.learned_sidecar("shop", "web");
    assert!(!mesh.learn(proxy, &[LEDGER]), "it is not imported");
    assert!(mesh.learn(proxy, &[REVIEWS]));
    assert_eq!(clusters(&mut mesh, proxy), [REVIEWS_V1, REVIEWS]);
}

/// The names of the HTTP filters of each connection manager.
fn http_filters(listener: &Listener) -> Vec<Vec<String>> {
    let filters = listener
        .filter_chains
        .iter()
        .flat_map(|chain| &chain.filters);
    filters
        .filter_map(|filter| match &filter.config_type {
            Some(filter::ConfigType::TypedConfig(config)) => {
                config.to_msg::<HttpConnectionManager>().ok()
            }
            Some(_) | None => None,
        })
        .map(|manager| {
            let filters = manager.http_filters.into_iter();
            filters.map(|filter| filter.name).collect()
        })
        .collect()
}

#[test]
fn the_filter_is_the_first_one_of_outbound_listeners() {
    let mut mesh = TestMesh::new(MESH);
    let proxy = mesh.learned_sidecar("shop", "web");
    let whole = mesh.sidecar("shop", "web");
    let wanted = ["0.0.0.0_80", "virtualInbound"];
    let is_wanted = |name: &String| name == "envoy.filters.http.on_demand";

    let listeners = mesh.named::<Listener>(proxy, ResourceType::Listener, &wanted);
    let outbound = http_filters(&listeners["0.0.0.0_80"]);
    assert!(!outbound.is_empty());
    for filters in &outbound {
        assert!(is_wanted(&filters[0]), "{filters:?}");
        assert!(!filters[1..].iter().any(is_wanted), "{filters:?}");
    }

    let others = mesh.named::<Listener>(whole, ResourceType::Listener, &wanted);
    for listener in [&listeners["virtualInbound"], &others["0.0.0.0_80"]] {
        let filters = http_filters(listener).concat();
        assert!(
            !filters.iter().any(is_wanted),
            "{}: {filters:?}",
            listener.name
        );
    }
}

#[test]
fn after_extensions_which_may_change_the_route_the_filter_is_there_again() {
    let mut mesh = TestMesh::new(&format!(
        "{MESH}
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {{name: router, namespace: shop}}
spec: {{url: 'oci://registry.example/router:1'}}
"
    ));
    let proxy = mesh.learned_sidecar("shop", "web");
    let listeners = mesh.named::<Listener>(proxy, ResourceType::Listener, &["0.0.0.0_80"]);
    let outbound = http_filters(&listeners["0.0.0.0_80"]);
    assert!(!outbound.is_empty());
    for filters in &outbound {
        let end = [
            "envoy.filters.http.on_demand".to_owned(),
            "envoy.filters.http.router".to_owned(),
        ];
        assert_eq!(filters[0], end[0]);
        assert!(filters.ends_with(&end), "{filters:?}");
    }
}

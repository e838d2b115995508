//! Suggestions for a mesh of three namespaces.

use navarch_answers::STACK;

use super::*;
use crate::reading::{Claim, Reader, Reading};
use crate::test_mesh::{MESH, MESH_CONFIG, TestMesh};

/// The evidence of an exposition.
pub(crate) fn evidence(text: &str) -> Evidence {
    let read: Moment = serde_json::from_str("\"2026-01-03T00:00:00Z\"").unwrap();
    let is_host = |host: &str| host.ends_with(".svc.cluster.local");
    let mut reader = Reader::new(Reading::new("f", read), Claim::Operator, &is_host);
    reader.read(text);
    let mut evidence = Evidence::default();
    evidence.add(&reader.finish());
    evidence
}

/// A series of requests of `shop/web` to a service.
pub(crate) fn called(service: &str, namespace: &str) -> String {
    format!(
        "istio_requests_total{{reporter=\"source\",source_workload=\"web\",\
         source_workload_namespace=\"shop\",\
         destination_service=\"{service}.{namespace}.svc.cluster.local\",response_code=\"200\"}} 7\n"
    )
}

pub(crate) const TWO_DAYS: &str = "envoy_server_uptime{} 172800\n";

/// The suggestion for `shop/web`.
fn suggestion(objects: &str, metrics: &str, options: Options) -> Suggestion {
    let mesh = TestMesh::new(MESH_CONFIG, &format!("{MESH}{objects}"));
    let evidence = evidence(metrics);
    let all = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || suggest(&mesh.context, &mesh.workloads, evidence, &options))
        .unwrap()
        .join()
        .unwrap();
    let web = WorkloadName::new("shop", "web");
    let mut found = all.workloads.into_iter();
    found.find(|one| one.workload == web).unwrap()
}

fn hosts(suggestion: &Suggestion) -> Vec<&str> {
    suggestion
        .hosts
        .iter()
        .map(|kept| kept.host.as_str())
        .collect()
}

#[test]
fn a_sidecar_has_the_called_hosts_and_those_that_the_proxy_needs() {
    let metrics = called("reviews", "shop") + &called("ratings", "bank") + TWO_DAYS;
    let options = Options {
        min_age: 86_400,
        ..Options::default()
    };
    let found = suggestion("", &metrics, options);
    assert_eq!(found.against, [""; 0]);
    assert_eq!(found.warnings, [""; 0]);

    let expected = [
        "./reviews.shop.svc.cluster.local",
        "bank/ratings.bank.svc.cluster.local",
        "obs/zipkin.obs.svc.cluster.local",
    ];
    assert_eq!(hosts(&found), expected);
    let extension = "envoy.tracers.zipkin".to_owned();
    let reason = Reason::Extensions(BTreeSet::from([extension]));
    assert_eq!(found.hosts[2].reasons, [reason]);

    let after = found.after.unwrap();
    assert!(after.clusters < found.before.clusters, "{after:?}");
    assert!(after.bytes < found.before.bytes, "{after:?}");
    let sidecar = found.sidecar.unwrap();
    assert_eq!(sidecar["spec"]["workloadSelector"]["labels"]["app"], "web");
}

/// A service with port 80, at which hosts are routed that are no services, and two such hosts.
const ROUTED: &str = "
---
apiVersion: v1
kind: Service
metadata: { name: edge, namespace: shop }
spec: { clusterIP: 10.96.0.20, selector: { app: edge }, ports: [{ name: http, port: 80 }] }
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: { name: front, namespace: routing }
spec:
  hosts: [front.example]
  http: [{ route: [{ destination: { host: ratings.bank.svc.cluster.local } }] }]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: { name: unrelated, namespace: routing }
spec:
  hosts: [other.example]
  http: [{ route: [{ destination: { host: details.shop.svc.cluster.local } }] }]
";

#[test]
fn hosts_of_virtual_services_that_route_calls_are_kept() {
    let metrics = called("ratings", "bank") + &called("edge", "shop");
    let found = suggestion(ROUTED, &metrics, Options::default());
    assert!(found.sidecar.is_some(), "{:?}", found.against);
    assert!(
        hosts(&found).contains(&"routing/front.example"),
        "{found:?}"
    );
    assert!(!hosts(&found).contains(&"routing/other.example"));
}

/// A host outside of Kubernetes whose VirtualService, in another namespace, sends to a gateway.
const EGRESS: &str = "
---
apiVersion: v1
kind: Service
metadata: { name: egress, namespace: gateways }
spec: { clusterIP: 10.96.0.30, selector: { app: egress }, ports: [{ name: http, port: 8080 }] }
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: outside, namespace: partners }
spec:
  hosts: [partner.example]
  ports: [{ number: 8443, name: http, protocol: HTTP }]
  resolution: DNS
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: { name: outside, namespace: gateways }
spec:
  hosts: [partner.example]
  http: [{ route: [{ destination: { host: egress.gateways.svc.cluster.local } }] }]
";

#[test]
fn calls_through_an_egress_gateway_keep_the_host_outside() {
    let found = suggestion(EGRESS, &called("egress", "gateways"), Options::default());
    assert!(found.sidecar.is_some(), "{:?}", found.against);
    for host in ["gateways/partner.example", "partners/partner.example"] {
        assert!(hosts(&found).contains(&host), "{found:?}");
    }
}

#[test]
fn a_suggestion_that_would_route_calls_differently_is_withdrawn() {
    // Without a service at port 80, requests to front.example are not routed any more.
    let found = suggestion(ROUTED, &called("ratings", "bank"), Options::default());
    assert_eq!(found.sidecar, None);
    assert_eq!(found.after, None);
    let against = found.against.join("\n");
    assert!(
        against.contains("virtual host front.example:80"),
        "{against}"
    );
}

/// A VirtualService for a service, and another service with another port.
const OTHER_PORT: &str = "
---
apiVersion: v1
kind: Service
metadata: { name: edge, namespace: edge }
spec: { clusterIP: 10.96.0.20, selector: { app: edge }, ports: [{ name: http, port: 80 }] }
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: { name: reviews, namespace: shop }
spec:
  hosts: [reviews]
  http: [{ timeout: 2s, route: [{ destination: { host: reviews } }] }]
";

#[test]
fn a_route_at_a_port_that_the_service_does_not_have_is_warned_of_and_not_kept() {
    // Envoy has reviews.shop.svc.cluster.local:80 as long as it sees a service with port 80.
    let found = suggestion(OTHER_PORT, &called("reviews", "shop"), Options::default());
    assert!(found.sidecar.is_some(), "{:?}", found.against);
    assert!(!hosts(&found).contains(&"edge/edge.edge.svc.cluster.local"));

    let place = "virtual host reviews.shop.svc.cluster.local:80 of routes 80";
    let warnings = found.warnings.join("\n");
    assert!(warnings.contains(place), "{warnings}");
    assert!(
        !warnings.contains("reviews.shop.svc.cluster.local:9080"),
        "{warnings}"
    );
}

/// A VirtualService that sends requests for a host that is not called to one that is.
const SENT_ELSEWHERE: &str = "
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: { name: details, namespace: shop }
spec:
  hosts: [details]
  http:
  - match: [{ port: 80 }]
    route: [{ destination: { host: reviews } }]
  - route: [{ destination: { host: details } }]
";

#[test]
fn calls_that_a_route_at_another_port_sends_to_a_service_are_not_cut() {
    // The client may call details.shop.svc.cluster.local:80, which is counted as reviews.
    let objects = format!("{OTHER_PORT}{SENT_ELSEWHERE}");
    let found = suggestion(&objects, &called("reviews", "shop"), Options::default());
    assert_eq!(found.sidecar, None);
    let against = found.against.join("\n");
    assert!(
        against.contains("virtual host details.shop.svc.cluster.local:80"),
        "{against}"
    );
}

#[test]
fn calls_that_a_called_services_route_at_another_port_sends_to_another_are_not_cut() {
    // The client may call reviews.shop.svc.cluster.local:80, which is counted as ratings.
    let own = "http: [{ timeout: 2s, route: [{ destination: { host: reviews } }] }]";
    let both = "http:
  - match: [{ port: 80 }]
    route: [{ destination: { host: ratings.bank.svc.cluster.local } }]
  - route: [{ destination: { host: reviews } }]";
    assert!(OTHER_PORT.contains(own));
    let objects = OTHER_PORT.replace(own, both);
    let metrics = called("reviews", "shop") + &called("ratings", "bank");
    let found = suggestion(&objects, &metrics, Options::default());
    assert_eq!(found.sidecar, None);
    let against = found.against.join("\n");
    assert!(
        against.contains("virtual host reviews.shop.svc.cluster.local:80"),
        "{against}"
    );

    let reviews_alone = suggestion(&objects, &called("reviews", "shop"), Options::default());
    assert!(reviews_alone.sidecar.is_some(), "{reviews_alone:?}");
}

#[test]
fn what_speaks_against_a_sidecar_is_named() {
    let sidecar = |more: &str| {
        format!(
            "
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{ name: own, namespace: shop }}
spec: {{ {more} egress: [{{ hosts: ['./*', 'bank/*', 'obs/*'] }}] }}
"
        )
    };
    let metrics = called("reviews", "shop");
    let against = |objects: &str, metrics: &str| {
        let found = suggestion(objects, metrics, Options::default());
        assert_eq!(found.sidecar, None);
        found.against.join("\n")
    };

    let selecting = sidecar("workloadSelector: { labels: { app: web } },");
    assert!(against(&selecting, &metrics).contains("Sidecar shop/own selects it already"));
    let named = sidecar("workloadSelector: { labels: { app: db } },").replace("own", "scope-web");
    let replaced = against(&named, &metrics);
    assert!(
        replaced.contains("Sidecar shop/scope-web exists"),
        "{replaced}"
    );
    let replaced = against(&format!("{}{named}", sidecar("")), &metrics);
    assert!(
        replaced.contains("Sidecar shop/scope-web exists"),
        "{replaced}"
    );
    let of_namespace = sidecar("").replace("own", "scope-web");
    let replaced = against(&of_namespace, &metrics);
    assert!(
        replaced.contains("Sidecar shop/scope-web exists"),
        "{replaced}"
    );
    let policy = sidecar("outboundTrafficPolicy: { mode: REGISTRY_ONLY },");
    assert!(against(&policy, &metrics).contains("with outboundTrafficPolicy"));
    assert!(against("", "").contains("no metrics of it were read"));
    let other = metrics.replace("reviews", "unknown-service");
    assert!(against("", &other).contains("sees none of the services"));

    let of_namespace = suggestion(&sidecar(""), &metrics, Options::default());
    assert!(of_namespace.sidecar.is_some());
    let warnings = of_namespace.warnings.join("\n");
    assert!(
        warnings.contains("Sidecar shop/own applies to it now"),
        "{warnings}"
    );
}

#[test]
fn young_and_incomplete_evidence_is_a_warning() {
    let outside = called("reviews", "shop").replace(
        "destination_service=\"reviews.shop.svc.cluster.local\"",
        "destination_service=\"example.org\",destination_service_name=\"PassthroughCluster\"",
    );
    let metrics = called("reviews", "shop") + &outside + "envoy_server_uptime{} 7200\n";
    let options = Options {
        min_age: 86_400,
        unread: BTreeMap::from([(WorkloadName::new("shop", "web"), 1)]),
        ..Options::default()
    };

    let found = suggestion("", &metrics, options);
    assert!(found.sidecar.is_some());
    let warnings = found.warnings.join("\n");
    for part in [
        "1 of 1 pods could not be read",
        "counted for 2 h only, and --min-age is 24 h",
        "7 calls to PassthroughCluster",
    ] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
}

#[test]
fn policies_allow_the_clients_that_had_mutual_tls() {
    let received = |principal: &str| {
        format!(
            "istio_requests_total{{reporter=\"destination\",destination_workload=\"web\",\
             destination_workload_namespace=\"shop\",source_principal=\"{principal}\"}} 3\n"
        )
    };
    let policy = |metrics: &str| {
        let options = Options {
            with_policies: true,
            ..Options::default()
        };
        suggestion("", metrics, options).policy.unwrap()
    };

    let known = received("spiffe://cluster.local/ns/bank/sa/ratings");
    let found = policy(&known).policy.unwrap();
    let principals = &found["spec"]["rules"][0]["from"][0]["source"]["principals"];
    assert_eq!(principals[0], "cluster.local/ns/bank/sa/ratings");
    assert_eq!(found["spec"]["selector"]["matchLabels"]["app"], "web");

    let mixed = policy(&(known + &received("unknown")));
    assert_eq!(mixed.policy, None);
    assert!(mixed.against[0].contains("3 requests and connections were without mutual TLS"));
    let without = policy(&called("reviews", "shop"));
    assert_eq!(without.against, ["it has had no clients"]);
}

#[test]
fn a_policy_does_not_admit_clients_that_were_only_denied() {
    let received = |principal: &str, code: &str| {
        format!(
            "istio_requests_total{{reporter=\"destination\",destination_workload=\"web\",\
             destination_workload_namespace=\"shop\",source_principal=\"{principal}\",\
             response_code=\"{code}\"}} 3\n"
        )
    };
    let options = Options {
        with_policies: true,
        ..Options::default()
    };
    let metrics = received("spiffe://cluster.local/ns/bank/sa/ratings", "200")
        + &received("spiffe://cluster.local/ns/bank/sa/ratings", "403")
        + &received("spiffe://cluster.local/ns/evil/sa/evil", "403")
        + &received("unknown", "403");

    let found = suggestion("", &metrics, options.clone()).policy.unwrap();
    let clients: Vec<&String> = found.clients.keys().collect();
    assert_eq!(clients, ["cluster.local/ns/bank/sa/ratings"]);
    assert!(found.policy.is_some(), "{:?}", found.against);
    let warnings = found.warnings.join("\n");
    assert!(
        warnings.contains("all requests of spiffe://cluster.local/ns/evil/sa/evil were denied"),
        "{warnings}"
    );

    let other = "
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: scope-web, namespace: shop }
spec: { selector: { matchLabels: { app: db } }, action: DENY, rules: [{}] }
";
    let of_all = other.replace("selector: { matchLabels: { app: db } },", "");
    for existing in [other, &of_all] {
        let replaced = suggestion(existing, &metrics, options.clone());
        let replaced = replaced.policy.unwrap();
        assert_eq!(replaced.policy, None);
        assert!(
            replaced.against[0].contains("shop/scope-web exists"),
            "{:?}",
            replaced.against
        );
    }

    let former = other.replace("app: db", "app: web");
    let replaced = suggestion(&former, &metrics, options).policy.unwrap();
    assert!(replaced.policy.is_some(), "{:?}", replaced.against);
    let warning = "AuthorizationPolicy shop/scope-web exists; the suggestion replaces it";
    assert!(replaced.warnings.contains(&warning.to_owned()));
}

#[test]
fn workloads_without_sidecars_are_named_and_not_looked_at() {
    let mesh = TestMesh::new(MESH_CONFIG, MESH);
    let metrics = called("reviews", "shop").replace("\"web\"", "\"ingress\"");
    let context = mesh.context.clone();
    let all = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || {
            let evidence = evidence(&metrics);
            suggest(&context, &mesh.workloads, evidence, &Options::default())
        })
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(all.others, [WorkloadName::new("shop", "ingress")]);
    let text = all.to_string();
    let line = "# shop/ingress has evidence, but is not selected, or has no sidecar now";
    assert!(text.contains(line), "{text}");
}

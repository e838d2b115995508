//! Edges of a mesh of three namespaces.

use navarch_answers::STACK;
use navarch_answers::mirror::Mirror;
use navarch_answers::why_not::ProxySnapshot;

use super::*;
use crate::difference::tests::{CLOSED, REVIEWS};
use crate::suggestion::tests::{TWO_DAYS, called, evidence};
use crate::test_mesh::{MESH, MESH_CONFIG, TestMesh};

const REVIEWS_HOST: &str = "reviews.shop.svc.cluster.local";
const RATINGS_HOST: &str = "ratings.bank.svc.cluster.local";

/// Endpoints without proxies for the services `details` and `ratings`.
const WITHOUT_PROXIES: &str = "
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: details-1, namespace: shop, labels: { kubernetes.io/service-name: details } }
addressType: IPv4
ports: [{ name: http, port: 9080 }]
endpoints: [{ addresses: [10.0.0.8], conditions: { ready: true } }]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: ratings-1, namespace: bank, labels: { kubernetes.io/service-name: ratings } }
addressType: IPv4
ports: [{ name: http, port: 9080 }]
endpoints: [{ addresses: [10.0.0.9], conditions: { ready: true } }]
";

/// What to look for, and how much of it.
#[derive(Clone, Copy)]
struct Case {
    namespace: &'static str,
    workload: Option<&'static str>,
    limit: usize,
    is_over: bool,
}

const OF_SHOP: Case = Case {
    namespace: "shop",
    workload: None,
    limit: 100,
    is_over: false,
};

/// Edges with calls, and those that are allowed.
struct Found {
    measured: Vec<Edge>,
    allowed: AllowedEdges,
}

impl Found {
    fn of(case: Case, objects: &str, metrics: &str) -> Self {
        let mesh = TestMesh::new(MESH_CONFIG, &format!("{MESH}{objects}"));
        let evidence = evidence(metrics);
        std::thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || Self::in_mesh(case, &mesh, &evidence))
            .unwrap()
            .join()
            .unwrap()
    }

    fn in_mesh(case: Case, mesh: &TestMesh, evidence: &Evidence) -> Self {
        let clients = mesh.workloads.iter().map(|one| one.client.clone());
        let mirror = Mirror::of(&mesh.context, clients.collect());
        let snapshot = |(index, workload): (usize, &crate::Workload)| ProxySnapshot {
            proxy: workload.client.proxy.clone(),
            had: mirror.had(index),
        };
        let proxies = mesh.workloads.iter().enumerate().map(snapshot).collect();
        let walks = Walks::new(&mesh.context, proxies);
        let source = |(proxy, workload): (usize, &crate::Workload)| Source {
            name: workload.name.clone(),
            proxy,
        };
        let sources: Vec<Source> = mesh.workloads.iter().enumerate().map(source).collect();

        let selection = Selection {
            namespace: case.namespace,
            workload: case.workload,
            is_wanted: &|_, _| true,
        };
        let limits = Limits {
            edges: case.limit,
            is_over: &|| case.is_over,
        };
        Self {
            measured: measured(&mesh.context, evidence, &selection),
            allowed: allowed(&walks, &sources, evidence, &selection, &limits),
        }
    }

    fn allowed_of_web(&self) -> Vec<&str> {
        let all = self.allowed.edges.iter();
        all.filter(|edge| edge.from.name == "web")
            .map(|edge| edge.to.as_str())
            .collect()
    }
}

#[test]
fn used_edges_have_rates_and_allowed_ones_no_calls() {
    let objects = format!("{REVIEWS}{WITHOUT_PROXIES}");
    let found = Found::of(OF_SHOP, &objects, &(called("reviews", "shop") + TWO_DAYS));
    let [used] = found.measured.as_slice() else {
        panic!("{:?}", found.measured);
    };
    assert_eq!(used.class, EdgeClass::Used);
    assert_eq!(used.to, REVIEWS_HOST);
    assert_eq!(used.to_namespace.as_deref(), Some("shop"));
    assert_eq!(used.calls.counts.requests, 7);
    assert_eq!(used.per_second, Some(7.0 / 172_800.0));
    assert!(used.calls.last_seen.is_some());

    let expected = ["details.shop.svc.cluster.local", RATINGS_HOST];
    let mut allowed = found.allowed_of_web();
    allowed.sort_unstable();
    assert_eq!(allowed, expected, "zipkin is that of the tracer");
    let edge = &found.allowed.edges[0];
    assert_eq!(edge.class, EdgeClass::Allowed);
    assert_eq!(edge.calls, Calls::default());
    assert_eq!(edge.note.as_deref(), Some(UNSEEN), "they have no proxies");
    assert_eq!(found.allowed.more, 0);
}

#[test]
fn an_edge_is_denied_if_all_of_its_calls_were() {
    let reviews = called("reviews", "shop");
    let denied = reviews.replace("\"200\"", "\"403\"");
    let black_hole = reviews.replace(
        "response_code=\"200\"",
        "response_code=\"502\",destination_service_name=\"BlackHoleCluster\"",
    );
    let classes = |found: &Found| -> Vec<(EdgeClass, String)> {
        let edges = found.measured.iter();
        edges.map(|edge| (edge.class, edge.to.clone())).collect()
    };

    let metrics = format!("{denied}{black_hole}{}", called("ratings", "bank"));
    let expected = [
        (EdgeClass::Denied, BLACK_HOLE.to_owned()),
        (EdgeClass::Denied, REVIEWS_HOST.to_owned()),
        (EdgeClass::Used, RATINGS_HOST.to_owned()),
    ];
    assert_eq!(classes(&Found::of(OF_SHOP, "", &metrics)), expected);

    let both = Found::of(OF_SHOP, "", &format!("{denied}{reviews}"));
    let expected = [(EdgeClass::Used, REVIEWS_HOST.to_owned())];
    assert_eq!(classes(&both), expected);
    assert_eq!(both.measured[0].calls.counts.denied, 7);
}

#[test]
fn what_a_policy_refuses_is_not_allowed() {
    let open = Found::of(OF_SHOP, REVIEWS, "");
    assert!(open.allowed_of_web().contains(&REVIEWS_HOST));
    let closed = Found::of(OF_SHOP, &format!("{REVIEWS}{CLOSED}"), "");
    assert!(!closed.allowed_of_web().contains(&REVIEWS_HOST));
    assert!(closed.allowed.refused > open.allowed.refused);
}

#[test]
fn edges_of_other_namespaces_are_seen_from_their_services_alone() {
    let metrics = called("reviews", "shop") + &called("ratings", "bank") + &called("old", "bank");
    let of_bank = Case {
        namespace: "bank",
        ..OF_SHOP
    };
    let found = Found::of(of_bank, "", &metrics);
    let [edge] = found.measured.as_slice() else {
        panic!("{:?}", found.measured);
    };
    assert_eq!(edge.to, RATINGS_HOST);
    assert_eq!(edge.from.to_string(), "shop/web");
    assert!(found.allowed.edges.is_empty(), "bank has no workloads");

    let of_another = Case {
        workload: Some("another"),
        ..OF_SHOP
    };
    assert!(Found::of(of_another, "", &metrics).measured.is_empty());
    let gone = Found::of(OF_SHOP, "", &called("old", "bank"));
    assert_eq!(gone.measured[0].to_namespace, None);
    assert!(gone.measured[0].note.is_some());
}

#[test]
fn walks_end_at_the_limit_and_with_the_time() {
    let objects = format!("{REVIEWS}{WITHOUT_PROXIES}");
    let of_web = Case {
        workload: Some("web"),
        ..OF_SHOP
    };
    let one = Case { limit: 1, ..of_web };
    let found = Found::of(one, &objects, "").allowed;
    assert_eq!(found.edges.len(), 1);
    assert!(found.more >= 2, "{found:?}");

    let late = Case {
        is_over: true,
        ..of_web
    };
    let found = Found::of(late, &objects, "").allowed;
    assert_eq!(found.more_workloads, 1);
    assert!(found.edges.is_empty());
}

//! Differences of a mesh with a Sidecar.

use navarch_answers::STACK;

use super::*;
use crate::suggestion::tests::{called, evidence};
use crate::test_mesh::{MESH, MESH_CONFIG, TestMesh};

const SIDECAR: &str = "
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: { name: own, namespace: shop }
spec: { egress: [{ hosts: ['./*'] }] }
";

/// A pod with a sidecar behind the service `shop/reviews`.
pub(crate) const REVIEWS: &str = "
---
apiVersion: v1
kind: Pod
metadata: { name: reviews-1, namespace: shop, labels: { app: reviews, security.istio.io/tlsMode: istio } }
spec: { serviceAccountName: reviews, containers: [{ name: app, ports: [{ containerPort: 9080 }] }] }
status: { phase: Running, podIP: 10.0.0.2, conditions: [{ type: Ready, status: 'True' }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: reviews-1, namespace: shop, labels: { kubernetes.io/service-name: reviews } }
addressType: IPv4
ports: [{ name: http, port: 9080 }]
endpoints: [{ addresses: [10.0.0.2], conditions: { ready: true }, targetRef: { kind: Pod, name: reviews-1, namespace: shop } }]
";

pub(crate) const CLOSED: &str = "
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: closed, namespace: shop }
spec: { selector: { matchLabels: { app: reviews } }, action: DENY, rules: [{}] }
";

fn difference(objects: &str, metrics: &str) -> (Difference, String) {
    let mesh = TestMesh::new(MESH_CONFIG, &format!("{MESH}{objects}"));
    let evidence = evidence(metrics);
    let all = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || compare(&mesh.context, &mesh.workloads, Vec::new(), evidence))
        .unwrap()
        .join()
        .unwrap();
    let text = all.to_string();
    let web = WorkloadName::new("shop", "web");
    let found = all.workloads.iter().find(|one| one.workload == web);
    let found = found.unwrap().clone();
    assert_eq!(all.has_cut_calls(), !found.cut.is_empty());
    (found, text)
}

fn names(calls: &[HostCalls]) -> Vec<&str> {
    calls.iter().map(|one| one.host.as_str()).collect()
}

#[test]
fn calls_that_a_sidecar_cuts_are_told_from_those_to_services_that_are_gone() {
    let metrics = called("reviews", "shop") + &called("ratings", "bank") + &called("old", "bank");
    let (found, text) = difference(SIDECAR, &metrics);
    assert_eq!(names(&found.cut), ["ratings.bank.svc.cluster.local"]);
    assert_eq!(names(&found.gone), ["old.bank.svc.cluster.local"]);
    assert_eq!(found.first_unused, ["details.shop.svc.cluster.local"]);
    assert!(
        text.contains("cut: ratings.bank.svc.cluster.local (7 requests"),
        "{text}"
    );
    assert!(
        text.contains("Sidecar shop/own does not import it"),
        "{text}"
    );

    let (found, _) = difference("", &metrics);
    assert!(found.cut.is_empty());
    assert_eq!(names(&found.gone), ["old.bank.svc.cluster.local"]);
    assert!(
        !found
            .first_unused
            .contains(&"zipkin.obs.svc.cluster.local".to_owned()),
        "traces are sent to it"
    );
}

#[test]
fn denied_calls_are_listed() {
    let denied = called("reviews", "shop").replace("\"200\"", "\"403\"");
    let black_hole = called("reviews", "shop").replace(
        "response_code=\"200\"",
        "response_code=\"502\",destination_service_name=\"BlackHoleCluster\"",
    );
    let (found, text) = difference("", &(denied + &black_hole));
    let expected = ["reviews.shop.svc.cluster.local", BLACK_HOLE];
    assert_eq!(names(&found.denied), expected);
    assert!(text.contains("7 requests, 100.0 % denied"), "{text}");

    let none = black_hole.replace("} 7", "} 0");
    let (found, _) = difference("", &none);
    assert!(found.denied.is_empty());

    let (silent, text) = difference("", "");
    assert!(!silent.is_read);
    assert!(text.contains("no metrics of it were read"), "{text}");
}

#[test]
fn calls_that_policies_in_force_refuse_are_listed_and_cut_nothing() {
    let metrics = called("reviews", "shop");
    let (open, text) = difference(REVIEWS, &metrics);
    assert!(open.refused.is_empty(), "{text}");

    let (closed, text) = difference(&format!("{REVIEWS}{CLOSED}"), &metrics);
    assert_eq!(names(&closed.refused), ["reviews.shop.svc.cluster.local"]);
    assert!(closed.cut.is_empty());
    assert!(
        text.contains("refused: reviews.shop.svc.cluster.local (7 requests"),
        "{text}"
    );
    assert!(text.contains("AuthorizationPolicy shop/closed"), "{text}");
}

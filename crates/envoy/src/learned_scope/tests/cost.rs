//! What changes of services cost further workloads.

use std::fmt::Write as _;

use super::clusters;
use crate::test_mesh::TestMesh;

/// Services that no workload has used.
const SERVICES: u64 = 1_000;

/// The HTTP service of this number.
fn service(number: u64) -> String {
    let [high, low] = [number / 250, number % 250 + 1];
    format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: s{number}, namespace: shop}}
spec: {{clusterIP: 10.1.{high}.{low}, ports: [{{name: http, port: 80}}]}}
"
    )
}

/// What the engine visits when a service is added, with this number of workloads.
fn visited(workloads: u64) -> u64 {
    let mut text = "
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {navarch.io/scope: learned}}
"
    .to_owned();
    for number in 1..=workloads {
        write!(
            text,
            "---
apiVersion: v1
kind: Pod
metadata: {{name: web-{number}, namespace: shop, labels: {{service.istio.io/workload-name: w{number}}}}}
spec: {{serviceAccountName: web}}
status: {{phase: Running, podIP: 10.244.0.{number}}}
"
        )
        .expect("a String takes all text");
    }
    text.extend((0..SERVICES).map(service));

    let mut mesh = TestMesh::new(&text);
    for number in 1..=workloads {
        let proxy = mesh.learned_sidecar("shop", "web");
        assert!(clusters(&mut mesh, proxy).is_empty(), "workload {number}");
        let used = format!("outbound|80||s{number}.shop.svc.cluster.local");
        assert!(mesh.learn(proxy, &[&used]), "workload {number}");
        assert_eq!(clusters(&mut mesh, proxy), [used]);
    }
    mesh.apply(&service(SERVICES)).visited
}

#[test]
fn a_new_service_costs_a_further_workload_less_than_a_look_at_each_service() {
    let one = visited(1);
    let many = visited(11);
    let of_each = (many - one) / 10;
    assert!(
        of_each < SERVICES,
        "{of_each} visits for each further workload"
    );
}

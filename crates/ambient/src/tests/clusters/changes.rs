//! Changes in the remote cluster, and their cost.

use navarch_api::names::Namespace;
use navarch_api::testing::objects;
use navarch_proto::istio::workload::WorkloadStatus;

use super::*;

#[test]
fn changes_in_a_remote_cluster_give_the_same_result_as_a_fresh_start() {
    let mut mesh = two_clusters(settings(true));
    let ztunnel = mesh.ztunnel("n9");
    let asking = mesh.ztunnel("n1");
    let subscribed = [
        "n/10.200.0.1",
        "n/10.2.0.1",
        "m/10.200.0.1",
        "shop/all.shop.svc.cluster.local",
    ];

    mesh.ask(ztunnel, ResourceType::Address, &[]);
    mesh.ask(asking, ResourceType::Address, &subscribed);
    let parts: Vec<&str> = SECOND.split("---").collect();
    let gone = |kind, name: &str| {
        let object = ObjectRef {
            kind,
            name: NamespacedName::of(Namespace::new("shop"), name.into()),
        };
        Change::Remote(ClusterId::new("two"), RemoteChange::Removed(object))
    };

    let reset = |text: &str| {
        vec![Change::Remote(
            ClusterId::new("two"),
            RemoteChange::Reset(objects(text)),
        )]
    };

    let all = cluster("n", "10.200.0") + SECOND;

    // The objects of the second cluster after each step, and the step.
    let steps: Vec<(String, Vec<Change>)> = vec![
        (
            all.replace("'True'", "'False'"),
            remote(&parts[2].replace("'True'", "'False'")),
        ),
        (
            all.replace("phase: Running", "phase: Succeeded"),
            remote(&parts[2].replace("Running", "Succeeded")),
        ),
        (all.clone(), remote(parts[2])),
        (
            all.replace("z2", "z3"),
            remote(&parts[0].replace("z2", "z3")),
        ),
        (
            all.replace("way, namespace", "by, namespace"),
            [
                remote(&parts[5].replace("way, namespace", "by, namespace")),
                vec![gone(Kind::KubernetesGateway, "way")],
                remote(parts[0]),
            ]
            .concat(),
        ),
        (
            all.replace("10.200.0.1", "10.200.0.7"),
            reset(&all.replace("10.200.0.1", "10.200.0.7")),
        ),
        (
            all.replace("network: n", "network: m"),
            reset(&all.replace("network: n", "network: m")),
        ),
        (all.clone(), reset(&all)),
        (
            String::new(),
            vec![Change::Remote(ClusterId::new("two"), RemoteChange::Gone)],
        ),
        (all.clone(), remote(&all)),
    ];

    for (step, (there, change)) in steps.into_iter().enumerate() {
        mesh.change(change);
        let mut fresh = empty(settings(true));
        fresh.change(remote(&there));
        fresh.put(&(cluster("n", "10.96.0") + FIRST));
        let all_of = fresh.ztunnel("n9");
        let some_of = fresh.ztunnel("n1");
        let of_all = fresh.ask(all_of, ResourceType::Address, &[]);
        let of_some = fresh.ask(some_of, ResourceType::Address, &subscribed);

        assert_eq!(
            mesh.shown(ztunnel, ResourceType::Address),
            of_all,
            "step {step}"
        );

        assert_eq!(
            mesh.shown(asking, ResourceType::Address),
            of_some,
            "step {step}"
        );
    }

    // The own network is changed to another than the other cluster's, and back.
    let ztunnels = [names(&mesh.shown(ztunnel, ResourceType::Address)).len()];
    mesh.put(&cluster("m", "10.96.0"));
    assert!(!mesh.shown(ztunnel, ResourceType::Address).contains_key(POD));
    mesh.put(&cluster("n", "10.96.0"));
    assert_eq!(
        [names(&mesh.shown(ztunnel, ResourceType::Address)).len()],
        ztunnels
    );
}

/// A global service by number, with its pod, in its namespace.
fn service_and_pod(n: usize, namespace: &str) -> String {
    let name = format!("s{n:04}");
    let vip = format!("10.100.{}.{}", n / 250, n % 250 + 1);
    let address = format!("10.2.{}.{}", n / 250, n % 250 + 1);
    format!(
        "
{{ apiVersion: v1, kind: Namespace, metadata: {{ name: {namespace} }} }}
---
{{ apiVersion: v1, kind: Service, metadata: {{ name: {name}, namespace: {namespace}, labels: {{ far: 'yes' }} }},
  spec: {{ clusterIP: {vip}, selector: {{ app: {name} }}, ports: [{{ name: http, port: 80, targetPort: 8080 }}] }} }}
---
{{ apiVersion: v1, kind: Pod, metadata: {{ name: {name}, namespace: {namespace}, labels: {{ app: {name} }} }},
  spec: {{ nodeName: n1, serviceAccountName: web, containers: [] }},
  status: {{ phase: Running, podIP: {address}, conditions: [{{ type: Ready, status: 'True' }}] }} }}
---
{{ apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
  metadata: {{ name: {name}, namespace: {namespace}, labels: {{ kubernetes.io/service-name: {name} }} }}, ports: [{{ name: http, port: 8080 }}],
  endpoints: [{{ addresses: [{address}], conditions: {{ ready: true }}, targetRef: {{ kind: Pod, namespace: {namespace}, name: {name} }} }}] }}
---
"
    )
}

/// The gateway into the network of the second cluster.
const EAST_WEST_GATEWAY: &str = "
{ apiVersion: gateway.networking.k8s.io/v1, kind: Gateway,
  metadata: { name: ways, namespace: istio-system, labels: { topology.istio.io/network: m } },
  spec: { gatewayClassName: istio-east-west, listeners: [{ name: mesh, port: 15008, protocol: HBONE, tls: { mode: Terminate } }] },
  status: { addresses: [{ type: IPAddress, value: 172.16.0.1 }] } }
---
";

#[test]
fn a_remote_change_updates_only_what_it_affects() {
    // A service's selector is evaluated on the pods of its namespace; pods in another network are
    // not visible.
    let apart = |n: usize| format!("ns{n:04}");
    let together = |_: usize| "shop".to_owned();
    for (network, namespace) in [("n", &apart as &dyn Fn(usize) -> String), ("m", &together)] {
        let costs = [100, 600].map(|count| {
            let mut mesh = empty(settings(true));
            mesh.put(&cluster("n", "10.96.0"));
            let all: String = (0..count)
                .map(|n| service_and_pod(n, &namespace(n)))
                .collect();
            mesh.change(remote(
                &(cluster(network, "10.200.0") + EAST_WEST_GATEWAY + &all),
            ));
            let all = mesh.ztunnel("n9");
            let asking = mesh.ztunnel("n8");
            mesh.ask(all, ResourceType::Address, &[]);
            let first = format!("{}/s0000.{0}.svc.cluster.local", namespace(0));

            mesh.ask(
                asking,
                ResourceType::Address,
                &["n/10.100.0.2", "m/10.100.0.2", &first],
            );

            // A service is added with its pod, as the last one by name; then the pod is removed, then
            // the service.
            let come = mesh.change(remote(&service_and_pod(count, &namespace(count))));
            assert_eq!(come.published, 1, "{come:?}");
            let name = NamespacedName::new(&namespace(count), &format!("s{count:04}"));
            let gone = [Kind::Pod, Kind::EndpointSlice, Kind::Service].map(|kind| {
                let object = ObjectRef {
                    kind,
                    name: name.clone(),
                };
                let gone = mesh.change(vec![Change::Remote(
                    ClusterId::new("two"),
                    RemoteChange::Removed(object),
                )]);
                gone.computed + gone.visited
            });

            [&[come.computed + come.visited][..], &gone].concat()
        });

        let [small, large] = &costs;
        for (small, large) in small.iter().zip(large) {
            // A longer list has more chunks, which are cut at random, and the changed one may be
            // longer: up to 370 visits were measured. Visiting every service would be 500.
            assert!(*large <= *small + 450, "network {network}: {costs:?}");
        }
    }
}

#[test]
fn an_unready_pod_of_a_remote_cluster_is_unhealthy() {
    let mut mesh = two_clusters(settings(true));
    let ztunnel = mesh.ztunnel("n9");
    mesh.ask(ztunnel, ResourceType::Workload, &[]);
    let changed = mesh.change(remote(
        &SECOND
            .split("---")
            .nth(2)
            .unwrap()
            .replace("'True'", "'False'"),
    ));
    assert_eq!(changed.published, 1);
    let pod = Workload::decode(mesh.shown(ztunnel, ResourceType::Workload)[POD].clone()).unwrap();
    assert_eq!(pod.status(), WorkloadStatus::Unhealthy);
}

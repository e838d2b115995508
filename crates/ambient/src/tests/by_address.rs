//! The resources that agents receive for addresses of peers.

use navarch_push::fact::FactKey;

use super::*;

/// A pod of a Deployment, one in its node's network, and a machine.
const WORKLOADS: &str = "
{ apiVersion: v1, kind: Pod,
  metadata: { name: client-5d-x, generateName: client-5d-, namespace: shop, labels: { app: client, version: v2, pod-template-hash: 5d },
    ownerReferences: [{ apiVersion: apps/v1, kind: ReplicaSet, name: client-5d, controller: true }] },
  spec: { nodeName: n1, serviceAccountName: buyer, containers: [] },
  status: { phase: Running, podIPs: [{ ip: 10.0.0.1 }, { ip: 'fd00::1' }] } }
---
{ apiVersion: v1, kind: Pod, metadata: { name: agent, namespace: shop },
  spec: { nodeName: n1, hostNetwork: true, containers: [] }, status: { phase: Running, podIP: 10.9.0.1 } }
---
{ apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: { name: vm, namespace: shop, labels: { app: old } },
  spec: { address: 10.2.0.1, network: far, serviceAccount: old } }
---
{ apiVersion: v1, kind: Service, metadata: { name: client, namespace: shop },
  spec: { clusterIP: 10.96.0.1, selector: { app: client }, ports: [{ port: 80 }] } }";

/// A sidecar of a mesh with lookups of peers but without ambient mode.
fn mesh() -> (Mesh, ProxyId) {
    let mut mesh = Mesh::with(Settings::default());
    mesh.put(WORKLOADS);
    mesh.change(vec![Change::FindPeers]);
    let sidecar = sidecar(&mut mesh);
    (mesh, sidecar)
}

fn sidecar(mesh: &mut Mesh) -> ProxyId {
    client(mesh, "sidecar")
}

/// A client of some kind on a node.
fn client(mesh: &mut Mesh, kind: &str) -> ProxyId {
    let metadata = json!({ "NODE_NAME": "n1" });
    let id = format!("{kind}~10.0.0.9~web.shop~shop.svc.cluster.local");
    let proxy = Proxy::parse(&id, metadata, Locality::default()).unwrap();
    mesh.engine.connect(Arc::new(proxy), Arc::new(NoSink))
}

#[test]
fn a_pod_requested_by_address_is_sent_with_its_names_only() {
    let (mut mesh, sidecar) = mesh();
    let shown = mesh.ask(sidecar, ResourceType::Workload, &["/10.0.0.1"]);
    let uid = "Kubernetes//Pod/shop/client-5d-x";
    assert_eq!(names(&shown), [uid]);
    let expected = Workload {
        uid: uid.to_owned(),
        name: "client-5d-x".to_owned(),
        namespace: "shop".to_owned(),
        addresses: ["10.0.0.1", "fd00::1"]
            .map(|ip| crate::wire::ip_bytes(ip.parse().unwrap()))
            .into(),
        cluster_id: "Kubernetes".to_owned(),
        service_account: "buyer".to_owned(),
        workload_name: "client".to_owned(),
        workload_type: navarch_proto::istio::workload::WorkloadType::Pod.into(),
        canonical_name: "client".to_owned(),
        canonical_revision: "v2".to_owned(),
        ..Workload::default()
    };

    assert_eq!(Workload::decode(shown[uid].clone()).unwrap(), expected);

    // The response is updated with the pod, and removed with it.
    mesh.put(&WORKLOADS.replace("version: v2", "version: v3"));
    let shown = mesh.shown(sidecar, ResourceType::Workload);
    assert_eq!(
        Workload::decode(shown[uid].clone())
            .unwrap()
            .canonical_revision,
        "v3"
    );

    let Change::Put(pod) = changes(WORKLOADS).remove(0) else {
        panic!("an object")
    };

    mesh.change(vec![Change::Removed(pod.object_ref())]);
    assert!(mesh.shown(sidecar, ResourceType::Workload).is_empty());
}

#[test]
fn a_pod_requested_by_address_has_the_labels_that_are_exchanged() {
    let mut mesh = Mesh::with(Settings {
        metadata_exchange_labels: "version,missing,app".to_owned(),
        ..Settings::default()
    });
    mesh.put(WORKLOADS);
    mesh.change(vec![Change::FindPeers]);
    let sidecar = sidecar(&mut mesh);
    let shown = mesh.ask(sidecar, ResourceType::Workload, &["/10.0.0.1"]);
    let workload = Workload::decode(shown["Kubernetes//Pod/shop/client-5d-x"].clone()).unwrap();

    let [extension] = workload.extensions.as_slice() else {
        panic!("{workload:?}")
    };
    assert_eq!(extension.name, "navarch.io/exchanged-labels");
    let config = extension.config.as_ref().unwrap();
    assert_eq!(
        config.type_url,
        "type.googleapis.com/google.protobuf.StringValue"
    );
    assert_eq!(
        String::decode(config.value.as_slice()).unwrap(),
        "app=client,version=v2"
    );
}

#[test]
fn lookups_by_address_find_no_services_or_other_networks() {
    let (mut mesh, sidecar) = mesh();
    let mut found = |names_: &[&str]| {
        let shown = mesh.ask(sidecar, ResourceType::Workload, names_);
        shown.into_keys().collect::<Vec<_>>()
    };
    let vm = "Kubernetes/networking.istio.io/WorkloadEntry/shop/vm";
    assert_eq!(found(&["far/10.2.0.1"]), [vm]);
    assert_eq!(
        found(&["/10.2.0.1"]),
        [vm],
        "a proxy without a network finds workloads of all networks"
    );

    assert_eq!(
        found(&[
            "near/10.2.0.1",
            "/10.96.0.1",
            "/10.0.0.7",
            "shop/client.shop.svc.cluster.local"
        ]),
        [""; 0]
    );

    assert_eq!(
        found(&["Kubernetes//Pod/shop/client-5d-x"]),
        [""; 0],
        "addresses cannot be looked up by names of pods"
    );
    let host = mesh.ask(sidecar, ResourceType::Workload, &["/10.9.0.1"]);
    let host = Workload::decode(host["Kubernetes//Pod/shop/agent"].clone()).unwrap();
    assert_eq!(
        host.network_mode(),
        navarch_proto::istio::workload::NetworkMode::HostNetwork
    );
}

#[test]
fn pods_of_remote_clusters_are_found_with_theirs() {
    let mut mesh = Mesh::with(Settings::default());
    mesh.put(WORKLOADS);
    mesh.change(remote(&WORKLOADS.replace("10.0.0.1", "10.5.0.1")));
    mesh.change(vec![Change::FindPeers]);
    let sidecar = sidecar(&mut mesh);
    let shown = mesh.ask(sidecar, ResourceType::Workload, &["/10.5.0.1"]);
    let found = Workload::decode(shown["two//Pod/shop/client-5d-x"].clone()).unwrap();
    assert_eq!(found.cluster_id, "two");
    mesh.change(vec![Change::Remote(
        ClusterId::new("two"),
        RemoteChange::Gone,
    )]);
    assert!(mesh.shown(sidecar, ResourceType::Workload).is_empty());
}

#[test]
fn the_address_index_is_built_on_first_request() {
    let mut state = MeshState::new(Settings::default());
    state.apply(changes(WORKLOADS));
    assert_eq!(
        state
            .context()
            .addresses
            .at("10.0.0.1".parse().unwrap())
            .count(),
        0
    );

    let facts = state.apply([Change::FindPeers]);
    assert!(
        facts.iter().all(|fact| matches!(fact, FactKey::Found(_))) && facts.len() == 4,
        "{facts:?}"
    );
    assert_eq!(
        state
            .context()
            .addresses
            .at("10.0.0.1".parse().unwrap())
            .count(),
        1
    );

    assert_eq!(state.apply([Change::FindPeers]), [], "once");
    let fork = MeshState::fork(&state.context()).context();
    assert!(fork.finds_peers && fork.addresses.at("fd00::1".parse().unwrap()).count() == 1);
}

#[test]
fn in_ambient_mode_remote_clusters_are_indexed_on_first_request() {
    let ip = "10.5.0.1".parse().unwrap();
    let remote_pods = || remote(&WORKLOADS.replace("10.0.0.1", "10.5.0.1"));

    for (east_west, found) in [(false, [0, 1]), (true, [1, 1])] {
        let mut settings = Settings {
            ambient: true,
            ..Settings::default()
        };
        settings.gateway_api.east_west = east_west;
        let mut state = MeshState::new(settings);
        state.apply(changes(WORKLOADS).into_iter().chain(remote_pods()));
        let of_remote = |state: &MeshState| {
            let context = state.context();
            let index = context.remote_addresses.get(&ClusterId::new("two"));
            index.map_or(0, |index| index.at(ip).count())
        };
        let before = of_remote(&state);

        let facts = state.apply([Change::FindPeers]);
        assert_eq!([before, of_remote(&state)], found, "east_west: {east_west}");
        assert_eq!(
            facts.is_empty(),
            east_west,
            "the own cluster has an index already: {facts:?}"
        );
        let context = state.context();

        assert_eq!(
            context.addresses.at("10.96.0.1".parse().unwrap()).count(),
            1
        );
        assert!(
            !facts.contains(&FactKey::AddressNames),
            "a ztunnel needs no index of names: {facts:?}"
        );

        // The index stays up to date, also in a copy of the snapshot.
        let gone = Change::Remote(ClusterId::new("two"), RemoteChange::Gone);
        assert_eq!(of_remote(&MeshState::fork(&context)), 1);
        state.apply([gone]);
        assert_eq!(of_remote(&state), 0);
    }
}

/// Clients in ambient mode: a sidecar, a gateway, a waypoint, and a ztunnel on their node.
fn ambient() -> (Mesh, [ProxyId; 3], ProxyId) {
    let mut mesh = Mesh::new();
    mesh.put(WORKLOADS);
    mesh.change(vec![Change::FindPeers]);
    let proxies = ["sidecar", "router", "waypoint"].map(|kind| client(&mut mesh, kind));
    let ztunnel = mesh.ztunnel("n1");
    (mesh, proxies, ztunnel)
}

#[test]
fn lookups_by_address_are_equal_in_ambient_mode() {
    let (mut mesh, proxies, ztunnel) = ambient();
    let uid = "Kubernetes//Pod/shop/client-5d-x";
    let (mut plain, sidecar) = self::mesh();
    let expected = plain.ask(sidecar, ResourceType::Workload, &["/10.0.0.1"]);

    for proxy in proxies {
        let shown = mesh.ask(proxy, ResourceType::Workload, &["/10.0.0.1"]);
        assert_eq!(names(&shown), [uid], "no other workload of its node");
        assert_eq!(shown, expected, "without services, node and health");
        let unknown = [
            "/10.96.0.1",
            "shop/client.shop.svc.cluster.local",
            uid,
            "/10.0.0.7",
        ];
        assert_eq!(
            names(&mesh.ask(proxy, ResourceType::Workload, &unknown)),
            [""; 0]
        );
    }

    // A ztunnel still gets the same: the workloads of its node, services by address, all fields.
    let host = "Kubernetes//Pod/shop/agent";
    let shown = mesh.ask(ztunnel, ResourceType::Workload, &["/10.96.0.1"]);
    assert_eq!(names(&shown), [host, uid]);
    let full = Workload::decode(shown[uid].clone()).unwrap();
    assert!(
        full.node == "n1"
            && full
                .services
                .contains_key("shop/client.shop.svc.cluster.local"),
        "{full:?}"
    );

    // A wildcard subscription, which Istio's Envoy may have, returns the same as a ztunnel's.
    let all = mesh.ask(ztunnel, ResourceType::Workload, &[]);
    assert_eq!(mesh.ask(proxies[0], ResourceType::Workload, &[]), all);
    assert_eq!(all[uid], shown[uid]);
}

#[test]
fn in_ambient_mode_addresses_requested_by_a_proxy_are_updated() {
    let (mut mesh, [sidecar, ..], _) = ambient();
    let uid = "Kubernetes//Pod/shop/client-5d-x";
    mesh.ask(sidecar, ResourceType::Workload, &["/10.0.0.1"]);
    mesh.put(&WORKLOADS.replace("version: v2", "version: v3"));
    let shown = mesh.shown(sidecar, ResourceType::Workload);
    assert_eq!(
        Workload::decode(shown[uid].clone())
            .unwrap()
            .canonical_revision,
        "v3"
    );

    let facts = mesh
        .engine
        .provenance(sidecar, ResourceType::Workload, &ResourceName::new(uid));
    assert!(
        !facts.iter().any(|fact| matches!(fact, FactKey::Service(_))),
        "the facts of a peer: {facts:?}"
    );
    let Change::Put(pod) = changes(WORKLOADS).remove(0) else {
        panic!("an object")
    };

    mesh.change(vec![Change::Removed(pod.object_ref())]);
    assert!(mesh.shown(sidecar, ResourceType::Workload).is_empty());
}

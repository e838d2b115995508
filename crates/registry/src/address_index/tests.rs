use super::*;
use navarch_api::testing;

/// Puts the objects of a text into a store.
fn put(objects: &mut Objects, yaml: &str) -> BTreeSet<ObjectRef> {
    let mut names = BTreeSet::new();
    for object in testing::objects(yaml) {
        names.insert(object.object_ref());
        objects.put_any(object);
    }
    names
}

/// The part of a cluster that an index covers.
fn scope(cluster: &ClusterId, coverage: Coverage) -> IndexScope<'_> {
    IndexScope {
        cluster,
        domain_suffix: "cluster.local",
        coverage,
    }
}

/// An index and its objects.
#[derive(Default)]
struct Mesh {
    objects: Objects,
    index: AddressIndex,
}

impl Mesh {
    fn put(&mut self, yaml: &str) -> AddressChange {
        let before = self.objects.clone();
        let changed = put(&mut self.objects, yaml);
        self.index.apply(
            &before,
            &self.objects,
            &changed,
            &scope(&ClusterId::new("Kubernetes"), Coverage::Own),
        )
    }

    fn remove(&mut self, kind: Kind, name: &str) -> AddressChange {
        let before = self.objects.clone();
        let object = ObjectRef {
            kind,
            name: NamespacedName::new("shop", name),
        };
        self.objects.remove_ref(kind, &object.name);
        self.index.apply(
            &before,
            &self.objects,
            &[object].into(),
            &scope(&ClusterId::new("Kubernetes"), Coverage::Own),
        )
    }

    fn at(&self, address: &str) -> Vec<String> {
        self.index
            .at(address.parse().unwrap())
            .map(|object| object.to_string())
            .collect()
    }
}

fn names(names: &BTreeSet<ResourceName>) -> Vec<&str> {
    names.iter().map(ResourceName::as_str).collect()
}

const POD: &str = "
{ apiVersion: v1, kind: Pod, metadata: { name: web, namespace: shop, labels: { app: web, pod-template-hash: x } },
  spec: { nodeName: n1, containers: [] }, status: { phase: Running, podIPs: [{ ip: 10.0.0.1 }, { ip: 'fd00::1' }] } }";

#[test]
fn a_pod_is_found_by_its_addresses_its_node_and_its_labels() {
    let mut mesh = Mesh::default();
    assert_eq!(names(&mesh.put(POD).added), ["Kubernetes//Pod/shop/web"]);
    assert_eq!(mesh.at("10.0.0.1"), ["Pod shop/web"]);
    assert_eq!(mesh.at("fd00::1"), ["Pod shop/web"]);
    assert_eq!(mesh.index.on(&"n1".into()).count(), 1);
    let shop = Namespace::new("shop");
    let with = |mesh: &Mesh, label: (&str, &str)| {
        mesh.index
            .with(LabelKey::of_pods(&shop, label.0, label.1))
            .count()
    };

    assert_eq!(
        (
            with(&mesh, ("app", "web")),
            with(&mesh, ("pod-template-hash", "x"))
        ),
        (1, 0)
    );

    let ended = mesh.put(&POD.replace("Running", "Succeeded"));
    assert_eq!(names(&ended.removed), ["Kubernetes//Pod/shop/web"]);
    assert_eq!(
        (mesh.at("10.0.0.1").len(), with(&mesh, ("app", "web"))),
        (0, 1)
    );
}

#[test]
fn an_equal_object_changes_nothing() {
    let mut mesh = Mesh::default();
    mesh.put(POD);
    assert_eq!(
        mesh.put(&POD.replace("containers: []", "containers: [{ name: c }]")),
        AddressChange::default()
    );
}

#[test]
fn a_name_stays_while_any_object_has_it() {
    let service = "
{ apiVersion: v1, kind: Service, metadata: { name: web, namespace: shop }, spec: { clusterIP: 10.96.0.1, ports: [{ port: 80 }] } }";
    let entry = "
{ apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: { name: web, namespace: shop },
  spec: { hosts: [web.shop.svc.cluster.local], addresses: [10.97.0.0/16], resolution: STATIC, ports: [{ number: 80, name: http }],
  endpoints: [{ address: 10.0.0.9 }] } }";
    let mut mesh = Mesh::default();
    assert_eq!(
        names(&mesh.put(service).added),
        ["shop/web.shop.svc.cluster.local"]
    );

    let added = mesh.put(entry).added;
    assert_eq!(
        names(&added),
        ["Kubernetes/networking.istio.io/ServiceEntry/shop/web/10.0.0.9"]
    );
    assert_eq!(
        (mesh.at("10.97.0.0"), mesh.at("10.0.0.9").len()),
        (vec!["ServiceEntry shop/web".to_owned()], 1)
    );

    assert!(mesh.remove(Kind::Service, "web").removed.is_empty());
    assert_eq!(mesh.remove(Kind::ServiceEntry, "web").removed.len(), 2);
}

#[test]
fn slices_are_indexed_by_pod_and_add_endpoints_without_pods() {
    let slice = "
{ apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
  metadata: { name: db-1, namespace: shop, labels: { kubernetes.io/service-name: db } },
  endpoints: [{ addresses: [10.0.0.1], targetRef: { kind: Pod, namespace: shop, name: web } }, { addresses: [10.9.0.1] }] }";
    let mut mesh = Mesh::default();
    let added = mesh.put(slice).added;
    assert_eq!(
        names(&added),
        ["Kubernetes/discovery.k8s.io/EndpointSlice/shop/db-1/10.9.0.1"]
    );

    let pod = NamespacedName::new("shop", "web");
    assert_eq!(mesh.index.slices_of(&pod).count(), 1);
    assert_eq!(
        mesh.index
            .with(LabelKey::of_slices(&Namespace::new("shop"), "db"))
            .count(),
        1
    );

    mesh.remove(Kind::EndpointSlice, "db-1");
    assert_eq!(
        (
            mesh.index.slices_of(&pod).count(),
            mesh.at("10.9.0.1").len()
        ),
        (0, 0)
    );
}

#[test]
fn of_remote_clusters_services_count_and_in_the_same_network_workloads() {
    let entry = "
---
{ apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: { name: vm, namespace: shop }, spec: { address: 10.2.0.1 } }
---
{ apiVersion: v1, kind: Service, metadata: { name: web, namespace: shop }, spec: { clusterIP: 10.96.0.1, ports: [{ port: 80 }] } }";
    let mut objects = Objects::default();
    let changed = put(&mut objects, &(POD.to_owned() + entry));
    let cluster = ClusterId::new("two");

    let [pod, vm, web] = [
        "two//Pod/shop/web",
        "two/networking.istio.io/WorkloadEntry/shop/vm",
        "shop/web.shop.svc.cluster.local",
    ];

    for (coverage, expected) in [
        (Coverage::Workloads { entries: true }, vec![web, pod, vm]),
        (Coverage::Workloads { entries: false }, vec![web, pod]),
        (Coverage::Services, vec![web]),
    ] {
        let mut index = AddressIndex::default();
        let change = index.apply(
            &Objects::default(),
            &objects,
            &changed,
            &scope(&cluster, coverage),
        );
        assert_eq!(names(&change.added), expected, "{coverage:?}");
        assert!(
            index.has_name(&ResourceName::new(web)) && !index.has_name(&ResourceName::new(pod))
        );
        let emptied = index.apply(
            &objects,
            &Objects::default(),
            &changed,
            &scope(&cluster, coverage),
        );
        assert_eq!(
            (names(&emptied.removed), emptied.keys),
            (expected, change.keys)
        );
    }
}

#[test]
fn peers_are_found_by_address_and_by_nothing_else() {
    let others = "
---
{ apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: { name: vm, namespace: shop }, spec: { address: 10.2.0.1 } }
---
{ apiVersion: v1, kind: Service, metadata: { name: web, namespace: shop }, spec: { clusterIP: 10.96.0.1, ports: [{ port: 80 }] } }";
    let mut objects = Objects::default();
    let changed = put(&mut objects, &(POD.to_owned() + others));
    let cluster = ClusterId::new("Kubernetes");

    let mut index = AddressIndex::default();
    let change = index.apply(
        &Objects::default(),
        &objects,
        &changed,
        &scope(&cluster, Coverage::Peers),
    );

    let addresses =
        ["10.0.0.1", "10.2.0.1", "fd00::1"].map(|ip| AddressKey::Address(ip.parse().unwrap()));
    assert_eq!(
        change,
        AddressChange {
            keys: addresses.into(),
            ..AddressChange::default()
        }
    );

    let at = |ip: &str| {
        index
            .at(ip.parse().unwrap())
            .map(|object| object.kind)
            .collect::<Vec<_>>()
    };

    assert_eq!(
        [at("fd00::1"), at("10.2.0.1"), at("10.96.0.1")],
        [vec![Kind::Pod], vec![Kind::WorkloadEntry], vec![]]
    );
    assert!(index.brought.is_empty());
}

//! Services, EndpointSlices, Pods and Nodes of Kubernetes.

use std::collections::BTreeSet;

use super::{House, WEB, a_pod, a_service, a_shop, a_slice, key, of_pod};
use crate::directory::DirectoryChange;
use navarch_api::mesh::MeshNetworks;
use navarch_api::object::{Kind, NamespacedName};
use navarch_api::settings::Settings;

#[test]
fn a_service_has_the_endpoints_of_its_slices_and_its_pods_serve_it() {
    let house = a_shop();
    assert_eq!(house.endpoints(&key("web")), ["10.1.0.1:8080 Healthy"]);
    let accounts = &house
        .registry
        .directory()
        .endpoints
        .get(&key("web"))
        .unwrap()
        .service_accounts;
    assert_eq!(
        *accounts,
        ["spiffe://cluster.local/ns/shop/sa/web-1".into()]
    );
    assert_eq!(
        house.targets("web-1"),
        ["web.shop.svc.cluster.local:80 at 8080"]
    );
}

#[test]
fn a_pod_touches_the_endpoints_of_its_services_and_nothing_else() {
    let mut house = a_shop();
    house.put(
        &(a_service(
            "db",
            "clusterIP: 10.0.0.2, ports: [{ name: http, port: 80 }]",
        ) + &a_slice("db-a", "db", "")),
    );
    let change = house.put(&a_pod("web-1", "10.1.0.1", "app: web, version: v2"));
    let expected = DirectoryChange {
        endpoints: BTreeSet::from([key("web")]),
        workloads: BTreeSet::from([NamespacedName::new("shop", "web-1")]),
        ..DirectoryChange::default()
    };
    assert_eq!(change, expected);
    let unchanged = house.put(&a_pod("web-1", "10.1.0.1", "app: web, version: v2"));
    assert_eq!(unchanged, DirectoryChange::default());
}

#[test]
fn an_endpoint_waits_for_its_pod_and_is_removed_with_it() {
    let mut house = House::of(
        &(a_service("web", WEB) + &a_slice("web-a", "web", &of_pod("10.1.0.1", "web-1"))),
    );
    assert_eq!(house.endpoints(&key("web")), Vec::<String>::new());
    assert_eq!(house.registry.pending_pods(), 1);
    house.put(&a_pod("web-1", "10.1.0.1", "app: web"));
    assert_eq!(house.endpoints(&key("web")), ["10.1.0.1:8080 Healthy"]);
    assert_eq!(house.registry.pending_pods(), 0);
    house.remove(Kind::Pod, "web-1");
    assert_eq!(house.endpoints(&key("web")), Vec::<String>::new());
    assert_eq!(house.registry.pending_pods(), 1);
    house.remove(Kind::EndpointSlice, "web-a");
    assert_eq!(house.registry.pending_pods(), 0);
}

#[test]
fn a_pod_in_two_slices_is_one_endpoint() {
    let mut house = a_shop();
    let change = house.put(&a_slice("web-b", "web", &of_pod("10.1.0.1", "web-1")));
    assert_eq!(change, DirectoryChange::default());
    house.remove(Kind::EndpointSlice, "web-a");
    assert_eq!(house.endpoints(&key("web")), ["10.1.0.1:8080 Healthy"]);
}

#[test]
fn endpoints_that_shut_down_drain_only_with_persistent_sessions() {
    let going = "{ addresses: [10.9.0.1], conditions: { ready: false, serving: true, terminating: true } }, \
                 { addresses: [10.9.0.2], conditions: { ready: false, serving: false, terminating: false } }";
    let mut house = House::of(&(a_service("web", WEB) + &a_slice("web-a", "web", going)));
    assert_eq!(
        house.endpoints(&key("web")),
        ["10.9.0.1:8080 Terminating", "10.9.0.2:8080 Unhealthy"]
    );
    let labelled = "name: web, namespace: shop, labels: { istio.io/persistent-session: cookie }";
    house.put(&a_service("web", WEB).replace("name: web, namespace: shop", labelled));
    assert_eq!(
        house.endpoints(&key("web")),
        ["10.9.0.1:8080 Draining", "10.9.0.2:8080 Unhealthy"]
    );
}

#[test]
fn a_dual_stack_pod_is_one_endpoint_with_both_addresses() {
    let pod = a_pod("web-1", "10.1.0.1", "app: web").replace(
        "podIP: 10.1.0.1",
        "podIPs: [{ ip: 10.1.0.1 }, { ip: 'fd00::1' }]",
    );
    let service = a_service(
        "web",
        "clusterIPs: [10.0.0.1, 'fd00::a'], selector: { app: web }, ports: [{ name: http, port: 80 }]",
    );

    let second = a_slice("web-b", "web", &of_pod("'fd00::1'", "web-1")).replace("IPv4", "IPv6");
    let yaml = service + &pod + &a_slice("web-a", "web", &of_pod("10.1.0.1", "web-1")) + &second;
    let dual = Settings {
        dual_stack: true,
        ..Settings::default()
    };
    let house = House::with(dual, &MeshNetworks::default(), &yaml);
    assert_eq!(
        house.endpoints(&key("web")),
        ["10.1.0.1+fd00::1:8080 Healthy"]
    );

    assert_eq!(
        House::of(&yaml).endpoints(&key("web")),
        ["10.1.0.1:8080 Healthy", "fd00::1:8080 Healthy"]
    );
}

#[test]
fn a_pod_that_no_service_selects_serves_those_that_list_its_address() {
    let bare = "clusterIP: None, ports: [{ name: http, port: 80 }]";
    let mut house = House::of(&(a_service("db", bare) + &a_pod("db-1", "10.1.0.7", "app: db")));
    assert_eq!(house.targets("db-1"), Vec::<String>::new());
    house.put(&a_slice("db-a", "db", "{ addresses: [10.1.0.7] }"));
    assert_eq!(
        house.targets("db-1"),
        ["db.shop.svc.cluster.local:80 at 8080"]
    );
    house.put(&a_service(
        "all",
        "clusterIP: 10.0.0.9, selector: { app: db }, ports: [{ name: tcp, port: 90 }]",
    ));
    assert_eq!(
        house.targets("db-1"),
        ["all.shop.svc.cluster.local:90 at 90"]
    );
}

#[test]
fn localities_come_from_nodes_unless_the_pod_has_a_label() {
    let mut house = a_shop();
    let locality = |house: &House| {
        let workload = house
            .registry
            .directory()
            .workloads
            .get(&NamespacedName::new("shop", "web-1"))
            .unwrap();
        workload.location.locality.to_string()
    };

    let node = "apiVersion: v1\nkind: Node\nmetadata: { name: n1, labels: { topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z } }\n";
    let change = house.put(node);
    assert_eq!(locality(&house), "r/z/");
    assert_eq!(change.endpoints, BTreeSet::from([key("web")]));
    house.put(&a_pod(
        "web-1",
        "10.1.0.1",
        "app: web, istio-locality: a.b.c",
    ));

    assert_eq!(locality(&house), "a/b/c");
}

#[test]
fn other_names_are_followed_to_the_service_that_they_name() {
    let mut house = a_shop();
    let alias = a_service(
        "old",
        "type: ExternalName, externalName: web.shop.svc.cluster.local",
    );
    let change = house.put(&alias);
    assert_eq!(change.services, BTreeSet::from([key("old"), key("web")]));
    let service = |house: &House| {
        house
            .registry
            .directory()
            .services
            .get(&key("web"))
            .unwrap()[0]
            .clone()
    };

    assert_eq!(service(&house).aliases, [key("old")]);
    house.remove(Kind::Service, "old");
    assert_eq!(service(&house).aliases, []);
}

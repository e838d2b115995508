//! ServiceEntries and WorkloadEntries.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::{House, WEB, a_pod, a_service, key, show_target};
use crate::directory::ListedTargets;
use crate::model::ServiceKey;
use navarch_api::mesh::MeshNetworks;
use navarch_api::object::Kind;
use navarch_api::settings::Settings;

fn a_service_entry(name: &str, created: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\n\
         metadata: {{ name: {name}, namespace: shop, creationTimestamp: '{created}' }}\nspec: {{ {spec} }}\n"
    )
}

#[test]
fn services_of_one_host_are_ordered_kubernetes_first_then_by_age() {
    let host = "hosts: [web.shop.svc.cluster.local], resolution: STATIC, ports: [{ number: 81, name: x, protocol: HTTP }]";
    let endpoints = |ip: &str| format!("{host}, endpoints: [{{ address: {ip} }}]");
    let entries = a_service_entry("a", "2026-01-02T00:00:00Z", &endpoints("10.5.0.1"))
        + &a_service_entry("b", "2026-01-01T00:00:00Z", &endpoints("10.5.0.2"));
    let mut house = House::of(&entries);
    let origins = |house: &House| -> Vec<String> {
        let slot = house
            .registry
            .directory()
            .services
            .get(&key("web"))
            .unwrap();
        slot.iter()
            .map(|service| service.origin.to_string())
            .collect()
    };

    assert_eq!(
        origins(&house),
        ["ServiceEntry shop/b", "ServiceEntry shop/a"]
    );
    assert_eq!(
        house.endpoints(&key("web")),
        ["10.5.0.1:81 Unknown", "10.5.0.2:81 Unknown"]
    );

    house.put(&a_service("web", WEB));
    assert_eq!(
        origins(&house),
        [
            "Service shop/web",
            "ServiceEntry shop/b",
            "ServiceEntry shop/a"
        ]
    );
}

#[test]
fn a_service_entry_selects_pods_and_workload_entries_of_its_namespace() {
    let spec = "hosts: [api.example], resolution: STATIC, workloadSelector: { labels: { app: web } }, \
                ports: [{ number: 443, name: named, protocol: HTTP, targetPort: 8443 }]";
    let vm = "---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: { name: vm, namespace: shop, labels: { app: web } }\n\
              spec: { address: 10.7.0.1, weight: 3 }\n";
    let named = "---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: { name: dns, namespace: shop, labels: { app: web } }\n\
                 spec: { address: vm.example }\n";
    let entry = a_service_entry("api", "2026-01-01T00:00:00Z", spec);
    let mut house = House::of(&(entry + &a_pod("web-1", "10.1.0.1", "app: web") + vm + named));

    let api = ServiceKey::new("shop", "api.example");
    assert_eq!(
        house.endpoints(&api),
        ["10.1.0.1:8080 Healthy", "10.7.0.1:8443 Unknown"]
    );
    let at = |ip: &str| {
        house
            .registry
            .directory()
            .targets
            .get(&ip.parse::<IpAddr>().unwrap())
            .cloned()
            .unwrap_or_default()
    };

    assert_eq!(
        at("10.1.0.1")
            .by_service_entry
            .iter()
            .flat_map(ListedTargets::targets)
            .map(|target| show_target(&target))
            .collect::<Vec<_>>(),
        ["api.example:443 at 8080"]
    );

    assert_eq!(at("10.7.0.1").entries.len(), 1);
    let change = house.put(&a_pod("web-1", "10.1.0.1", "app: other"));
    assert_eq!(change.endpoints, BTreeSet::from([api.clone()]));
    assert_eq!(house.endpoints(&api), ["10.7.0.1:8443 Unknown"]);
}

#[test]
fn an_edited_host_keeps_other_hosts_unchanged() {
    let spec = |hosts: &str| {
        let spec = format!(
            "hosts: [{hosts}], resolution: STATIC, endpoints: [{{ address: 10.7.0.1 }}], ports: [{{ number: 80, name: http, protocol: HTTP }}]"
        );
        a_service_entry("many", "2026-01-01T00:00:00Z", &spec)
    };

    let mut house = House::of(&spec("a.example, b.example, c.example"));
    let service = |house: &House, host: &str| {
        house
            .registry
            .directory()
            .services
            .get(&ServiceKey::new("shop", host))
            .map(|services| services[0].clone())
    };

    let endpoints = |house: &House, host: &str| {
        house
            .registry
            .directory()
            .endpoints
            .get(&ServiceKey::new("shop", host))
            .cloned()
            .unwrap()
    };

    let (a, of_a) = (
        service(&house, "a.example").unwrap(),
        endpoints(&house, "a.example"),
    );
    assert!(
        Arc::ptr_eq(&of_a, &endpoints(&house, "b.example")),
        "hosts share their endpoints"
    );

    let change = house.put(&spec("a.example, d.example, c.example"));
    let keys = |hosts: [&str; 2]| {
        hosts
            .map(|host| ServiceKey::new("shop", host))
            .into_iter()
            .collect::<BTreeSet<_>>()
    };

    assert_eq!(change.services, keys(["b.example", "d.example"]));
    assert_eq!(change.endpoints, keys(["b.example", "d.example"]));
    assert!(Arc::ptr_eq(&a, &service(&house, "a.example").unwrap()));
    assert!(Arc::ptr_eq(&of_a, &endpoints(&house, "d.example")));
    assert_eq!(service(&house, "b.example"), None);

    // A changed order alone is no change.
    assert_eq!(
        house.put(&spec("d.example, c.example, a.example")).services,
        BTreeSet::new()
    );
    assert_eq!(house.registry.directory().services.len(), 3);
}

#[test]
fn a_kubernetes_service_selects_workload_entries() {
    let vm = "---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: { name: vm, namespace: shop }\n\
              spec: { address: 10.7.0.1, labels: { app: web }, ports: { named: 7070 }, serviceAccount: vm }\n";
    let mut house = House::of(&(a_service("web", WEB) + vm));
    assert_eq!(house.endpoints(&key("web")), ["10.7.0.1:7070 Unknown"]);
    let at = house
        .registry
        .directory()
        .targets
        .get(&"10.7.0.1".parse::<IpAddr>().unwrap())
        .cloned()
        .unwrap();

    assert_eq!(
        at.entries[0]
            .targets
            .iter()
            .map(show_target)
            .collect::<Vec<_>>(),
        ["web.shop.svc.cluster.local:80 at 7070"]
    );

    house.remove(Kind::WorkloadEntry, "vm");
    assert_eq!(house.endpoints(&key("web")), Vec::<String>::new());
    assert!(house.registry.directory().targets.is_empty());
}

#[test]
fn a_workload_entry_whose_health_is_checked_counts_once_it_is_healthy() {
    let vm = |status: &str| {
        let annotations = "annotations: { proxy.istio.io/health-checks-enabled: 'true' }";
        format!(
            "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {{ name: vm, namespace: shop, {annotations} }}\n\
             spec: {{ address: 10.7.0.1, labels: {{ app: web }}, ports: {{ named: 1 }} }}\n\
             status: {{ conditions: [{{ type: Healthy, status: '{status}' }}] }}\n"
        )
    };
    let mut house = House::of(&(a_service("web", WEB) + "---\n" + &vm("False")));
    assert_eq!(house.endpoints(&key("web")), Vec::<String>::new());
    house.put(&vm("True"));
    assert_eq!(house.endpoints(&key("web")), ["10.7.0.1:1 Unknown"]);
}

#[test]
fn hosts_use_the_addresses_of_their_status() {
    let spec = "hosts: [a.example, b.example], resolution: DNS, ports: [{ number: 80, name: http, protocol: HTTP }]";
    let status = "status: { addresses: [{ host: a.example, value: 240.240.0.1 }, { host: a.example, value: '2001:2::1' }] }\n";
    let entry = a_service_entry("x", "2026-01-01T00:00:00Z", spec);
    let mut house = House::of(&(entry.clone() + status));
    let service = |house: &House, host: &str| {
        house
            .registry
            .directory()
            .services
            .get(&ServiceKey::new("shop", host))
            .unwrap()[0]
            .clone()
    };

    assert_eq!(
        service(&house, "a.example").auto_ipv4,
        "240.240.0.1".parse().ok()
    );
    assert_eq!(
        service(&house, "a.example").auto_ipv6,
        "2001:2::1".parse().ok()
    );

    assert_eq!(service(&house, "b.example").auto_ipv4, None);
    house.put(&entry);
    assert_eq!(service(&house, "a.example").auto_ipv4, None);
    let here = Settings {
        ip_autoallocate: false,
        ..Settings::default()
    };
    let house = House::with(here, &MeshNetworks::default(), &entry);
    assert!(service(&house, "b.example").auto_ipv4.is_some());
}

#[test]
fn a_socket_has_no_port_and_of_dns_round_robin_one_endpoint_per_port_counts() {
    let ports = "ports: [{ number: 80, name: http, protocol: HTTP }]";
    let socket = format!(
        "hosts: [s.example], resolution: STATIC, {ports}, endpoints: [{{ address: 'unix:///run/s' }}]"
    );
    let robin = format!(
        "hosts: [r.example], resolution: DNS_ROUND_ROBIN, {ports}, endpoints: [{{ address: a.example }}, {{ address: b.example }}]"
    );
    let plain = format!("hosts: [d.example], resolution: DNS, {ports}");

    let day = "2026-01-01T00:00:00Z";
    let house = House::of(
        &(a_service_entry("s", day, &socket)
            + &a_service_entry("r", day, &robin)
            + &a_service_entry("d", day, &plain)),
    );
    assert_eq!(
        house.endpoints(&ServiceKey::new("shop", "s.example")),
        ["/run/s:0 Unknown"]
    );

    assert_eq!(
        house.endpoints(&ServiceKey::new("shop", "r.example")),
        ["a.example:80 Unknown"]
    );
    assert_eq!(
        house.endpoints(&ServiceKey::new("shop", "d.example")),
        ["d.example:80 Unknown"]
    );
}

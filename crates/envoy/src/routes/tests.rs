//! Routes of sidecars, from YAML.

use std::collections::BTreeMap;

use navarch_proto::envoy::config::route::v3::RouteConfiguration;

use crate::test_mesh::{TestMesh, networking, service};

/// The domains by name of the virtual host.
fn domains(routes: &RouteConfiguration) -> BTreeMap<&str, Vec<&str>> {
    routes
        .virtual_hosts
        .iter()
        .map(|host| {
            (
                host.name.as_str(),
                host.domains.iter().map(String::as_str).collect(),
            )
        })
        .collect()
}

/// A VirtualService of `shop` for a host of that namespace.
fn virtual_service(name: &str, timeout: &str) -> String {
    let spec = format!(
        "{{hosts: [{name}], http: [{{timeout: {timeout}, route: [{{destination: {{host: {name}}}}}]}}]}}"
    );
    networking("VirtualService", "shop", name, &spec)
}

/// The number of results that an edit of one VirtualService computes, in a mesh with this number of
/// services.
fn cost_of_an_edit(services: usize) -> u64 {
    let mut yaml = virtual_service("web-1", "1s");
    for number in 0..services {
        yaml += &service("shop", &format!("web-{number}"), 80);
    }
    let mut mesh = TestMesh::new(&yaml);
    let proxy = mesh.sidecar("shop", "a");
    mesh.routes(proxy, "80");
    mesh.apply(&virtual_service("web-1", "2s")).computed
}

#[test]
fn the_cost_of_an_edited_virtual_service_is_independent_of_mesh_size() {
    assert_eq!(cost_of_an_edit(10), cost_of_an_edit(200));
}

#[test]
fn proxies_of_other_namespaces_share_the_virtual_hosts() {
    let mut mesh = TestMesh::new(&(service("shop", "web", 80) + &service("bank", "pay", 80)));
    let shop = mesh.sidecar("shop", "a");
    let other = mesh.sidecar("other", "a");
    let of_shop = mesh.routes(shop, "80");
    let of_other = mesh.routes(other, "80");
    assert!(domains(&of_shop)["web.shop.svc.cluster.local:80"].contains(&"web"));
    assert!(!domains(&of_other)["web.shop.svc.cluster.local:80"].contains(&"web"));
    assert_eq!(of_shop.virtual_hosts[0], of_other.virtual_hosts[0]);
}

#[test]
fn a_bare_name_yields_to_a_host_of_that_name() {
    let spec = "{hosts: [web], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}";
    let mut mesh = TestMesh::new(
        &(service("shop", "web", 80) + &networking("ServiceEntry", "bank", "web", spec)),
    );
    let shop = mesh.sidecar("shop", "a");
    let bank = mesh.sidecar("bank", "a");
    for proxy in [shop, bank] {
        let routes = mesh.routes(proxy, "80");
        let domains = domains(&routes);
        assert_eq!(domains["web:80"], ["web", "web."]);
        assert!(!domains["web.shop.svc.cluster.local:80"].contains(&"web"));
    }
}

#[test]
fn of_two_services_with_one_address_only_one_has_it() {
    let yaml = service("shop", "a", 80) + &service("shop", "b", 80);
    let mut mesh = TestMesh::new(&yaml);
    let proxy = mesh.sidecar("shop", "a");
    let routes = mesh.routes(proxy, "80");
    let with_address = routes
        .virtual_hosts
        .iter()
        .filter(|host| host.domains.iter().any(|one| one == "10.96.0.1"));
    assert_eq!(
        with_address
            .map(|host| host.name.as_str())
            .collect::<Vec<_>>(),
        ["a.shop.svc.cluster.local:80"]
    );
}

#[test]
fn the_route_table_of_a_sniffed_port_has_one_catch_all_host() {
    let mut mesh = TestMesh::new(&service("shop", "web", 80));
    let proxy = mesh.sidecar("shop", "a");
    let routes = mesh.routes(proxy, "web.shop.svc.cluster.local:80");
    assert_eq!(
        domains(&routes),
        [("web.shop.svc.cluster.local:80", vec!["*"])].into()
    );
    assert!(domains(&mesh.routes(proxy, "nobody.example:80")).is_empty());
}

#[test]
fn http_proxy_hosts_of_other_ports_need_the_port() {
    let mut mesh = TestMesh::new(&(service("shop", "web", 80) + &service("shop", "api", 8080)));
    let proxy = mesh.sidecar("shop", "a");
    let routes = mesh.routes(proxy, "http_proxy");
    let domains = domains(&routes);
    assert!(domains["web.shop.svc.cluster.local:80"].contains(&"web"));
    assert!(
        domains["api.shop.svc.cluster.local:8080"]
            .iter()
            .all(|domain| domain.ends_with(":8080"))
    );
    assert!(domains["api.shop.svc.cluster.local:8080"].contains(&"api:8080"));
}

#[test]
fn matches_after_a_catch_all_match_are_dropped() {
    let spec = "{hosts: [web], http: [{match: [{uri: {prefix: /a}}, {uri: {prefix: /}}, {uri: {prefix: /b}}], \
                route: [{destination: {host: web}}]}, {route: [{destination: {host: web}}]}]}";
    let mut mesh = TestMesh::new(
        &(service("shop", "web", 80) + &networking("VirtualService", "shop", "web", spec)),
    );
    let proxy = mesh.sidecar("shop", "a");
    let routes = mesh.routes(proxy, "80");
    let web = routes
        .virtual_hosts
        .iter()
        .find(|host| host.name.starts_with("web."))
        .unwrap();
    assert_eq!(web.routes.len(), 2);
}

#[test]
fn a_virtual_service_without_a_service_counts_on_port_80_alone() {
    let spec = "{hosts: [nobody.example], http: [{route: [{destination: {host: web}}]}]}";
    let yaml = service("shop", "web", 80)
        + &service("shop", "api", 8080)
        + &networking("VirtualService", "shop", "nobody", spec);
    let mut mesh = TestMesh::new(&yaml);
    let proxy = mesh.sidecar("shop", "a");
    assert!(domains(&mesh.routes(proxy, "80")).contains_key("nobody.example:80"));
    assert!(!domains(&mesh.routes(proxy, "8080")).contains_key("nobody.example:8080"));
}

#[test]
fn a_match_for_other_clients_leaves_the_plain_route() {
    let spec = "{hosts: [web], http: [{match: [{sourceLabels: {app: b}}], route: [{destination: {host: other}}]}]}";
    let mut mesh = TestMesh::new(
        &(service("shop", "web", 80) + &networking("VirtualService", "shop", "web", spec)),
    );
    let a = mesh.sidecar("shop", "a");
    let b = mesh.sidecar("shop", "b");
    let first_route = |routes: RouteConfiguration| {
        let web = routes
            .virtual_hosts
            .into_iter()
            .find(|host| host.name.starts_with("web."))
            .unwrap();
        web.routes[0].decorator.clone().unwrap().operation
    };

    assert_eq!(
        first_route(mesh.routes(a, "80")),
        "web.shop.svc.cluster.local:80/*"
    );
    assert_eq!(
        first_route(mesh.routes(b, "80")),
        "other.shop.svc.cluster.local:80/*"
    );
}

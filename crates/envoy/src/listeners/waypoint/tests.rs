//! Services and workloads behind a waypoint, from YAML.

use crate::test_mesh::{TestMesh, service};
use navarch_api::settings::Settings;
use navarch_push::engine::ProxyId;

use crate::waypoint::ServedServices;

mod networks;

/// A waypoint `wp` in the namespace `shop`, whose proxies have the label `app: wp`.
fn waypoint(labels: &str, from: &str) -> String {
    gateway("wp", labels, from) + &own_service("wp")
}

fn gateway(name: &str, labels: &str, from: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
         metadata: {{name: {name}, namespace: shop, labels: {labels}}}\n\
         spec: {{gatewayClassName: istio-waypoint, listeners: [{{name: mesh, port: 15008, protocol: HBONE, \
         allowedRoutes: {{namespaces: {{from: {from}}}}}}}]}}\n\
         status: {{addresses: [{{type: Hostname, value: {name}.shop.svc.cluster.local}}]}}\n---\n"
    )
}

/// The Service of a waypoint.
fn own_service(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{clusterIP: 10.96.9.9, selector: {{app: {name}, gateway.istio.io/managed: istio.io-mesh-controller}}, \
         ports: [{{name: mesh, port: 15008, targetPort: 15008}}]}}\n---\n"
    )
}

fn namespace(name: &str, labels: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {labels}}}\n---\n")
}

/// A Service with an HTTP port and these labels.
fn labelled(namespace: &str, name: &str, labels: &str) -> String {
    let metadata = format!("name: {name}, namespace: {namespace}");
    service(namespace, name, 80).replace(&metadata, &format!("{metadata}, labels: {labels}"))
}

fn ambient() -> Settings {
    let mut settings = Settings {
        ambient: true,
        ..Settings::default()
    };
    settings.hbone.sends = true;
    settings
}

/// The services of a proxy of the waypoint, as `namespace/name`.
fn served(mesh: &TestMesh, proxy: ProxyId) -> Vec<String> {
    let services = mesh.query(proxy, &ServedServices);
    let mut names: Vec<String> = services
        .iter()
        .map(|service| format!("{}/{}", service.key.namespace, service.name))
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn a_waypoint_serves_objects_labelled_for_it() {
    let yaml = waypoint("{}", "Same")
        + &labelled("shop", "asks", "{istio.io/use-waypoint: wp}")
        + &service("shop", "silent", 80)
        + &labelled(
            "bank",
            "far",
            "{istio.io/use-waypoint: wp, istio.io/use-waypoint-namespace: shop}",
        );
    let mut mesh = TestMesh::with_settings(&yaml, ambient());
    let proxy = mesh.waypoint("shop", "wp");
    assert_eq!(served(&mesh, proxy), ["shop/asks"]);
    mesh.apply(&waypoint("{}", "All"));
    assert_eq!(served(&mesh, proxy), ["bank/far", "shop/asks"]);
    mesh.apply(&labelled("shop", "asks", "{istio.io/use-waypoint: none}"));
    assert_eq!(served(&mesh, proxy), ["bank/far"]);
    mesh.apply(&waypoint("{istio.io/waypoint-for: workload}", "All"));
    assert_eq!(served(&mesh, proxy), Vec::<String>::new());
}

#[test]
fn a_namespace_label_covers_all_services_except_the_waypoint() {
    let yaml = namespace("shop", "{istio.io/use-waypoint: wp}")
        + &waypoint("{}", "Same")
        + &service("shop", "web", 80)
        + &labelled("shop", "own", "{istio.io/use-waypoint: none}");
    let mut mesh = TestMesh::with_settings(&yaml, ambient());
    let proxy = mesh.waypoint("shop", "wp");
    assert_eq!(served(&mesh, proxy), ["shop/web"]);
    mesh.apply(&namespace("shop", "{}"));
    assert_eq!(served(&mesh, proxy), Vec::<String>::new());
}

#[test]
fn a_prepared_waypoint_serves_services_of_its_namespace_that_no_client_sends_to_it() {
    let prepare = "{navarch.io/prepare-waypoint: wp}";
    let yaml = waypoint("{}", "All")
        + &labelled("shop", "web", prepare)
        + &service("shop", "silent", 80)
        + &labelled("bank", "far", prepare);
    let mut mesh = TestMesh::with_settings(&yaml, ambient());
    let proxy = mesh.waypoint("shop", "wp");
    assert_eq!(served(&mesh, proxy), ["shop/web"]);

    mesh.apply(&namespace("shop", prepare));
    assert_eq!(served(&mesh, proxy), ["shop/silent", "shop/web"]);
    mesh.apply(&labelled("shop", "silent", "{istio.io/use-waypoint: none}"));
    assert_eq!(served(&mesh, proxy), ["shop/web"]);

    mesh.apply(&service("shop", "silent", 80));
    mesh.apply(&labelled(
        "shop",
        "web",
        "{navarch.io/prepare-waypoint: wp, istio.io/use-waypoint: wp}",
    ));
    assert_eq!(served(&mesh, proxy), ["shop/silent", "shop/web"]);
    mesh.apply(&waypoint("{istio.io/waypoint-for: workload}", "All"));
    assert_eq!(served(&mesh, proxy), Vec::<String>::new());
}

#[test]
fn a_canary_waypoint_serves_the_same_services() {
    let with_canary = labelled(
        "shop",
        "web",
        "{istio.io/use-waypoint: wp, istio.io/use-waypoint-canary: next}, \
         annotations: {istio.io/use-waypoint-canary-weight: '10'}",
    );
    let yaml = waypoint("{}", "Same")
        + &gateway("next", "{}", "Same")
        + &own_service("next")
        + &with_canary;
    let mut mesh = TestMesh::with_settings(&yaml, ambient());
    let first = mesh.waypoint("shop", "wp");
    let second = mesh.waypoint("shop", "next");
    assert_eq!(served(&mesh, first), ["shop/web"]);
    assert_eq!(served(&mesh, second), ["shop/web"]);
}

#[test]
fn nothing_is_behind_a_waypoint_without_ambient_mode() {
    let yaml = waypoint("{}", "Same") + &labelled("shop", "asks", "{istio.io/use-waypoint: wp}");
    let mut mesh = TestMesh::new(&yaml);
    let proxy = mesh.waypoint("shop", "wp");
    assert_eq!(served(&mesh, proxy), Vec::<String>::new());
}

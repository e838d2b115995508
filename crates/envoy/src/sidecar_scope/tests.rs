//! Visibility of configuration for proxies, from YAML.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::applied::ScopeOfProxy;
use super::listener::ListenerVirtualServices;
use super::visible::{HostService, VisibleServices};
use crate::test_mesh::{TestMesh, networking, service};
use navarch_api::names::Hostname;
use navarch_api::object::Kind;
use navarch_push::engine::ProxyId;

/// The visible services as `namespace/first label of the host`.
fn seen(mesh: &TestMesh, proxy: ProxyId) -> Vec<String> {
    let scope = (*mesh.query(proxy, &ScopeOfProxy)).clone();
    let visible = mesh.query(proxy, &VisibleServices { scope });
    let short = |host: &str| host.split('.').next().unwrap_or_default().to_owned();
    visible
        .iter()
        .map(|key| format!("{}/{}", key.namespace, short(key.hostname.as_str())))
        .collect()
}

/// The ports and the namespace of the service that a host refers to.
fn meant(mesh: &TestMesh, proxy: ProxyId, host: &str) -> Option<(String, Vec<u16>)> {
    let scope = (*mesh.query(proxy, &ScopeOfProxy)).clone();
    let service = mesh.query(
        proxy,
        &HostService {
            scope,
            host: Hostname::new(host),
        },
    );
    let service = service.as_ref().as_ref()?;
    Some((
        service.key.namespace.to_string(),
        service.ports.iter().map(|port| port.port).collect(),
    ))
}

/// A ServiceEntry for `shared.example` with a port.
fn entry(namespace: &str, port: u16, created: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\n\
         metadata: {{name: shared, namespace: {namespace}, creationTimestamp: '{created}'}}\n\
         spec: {{hosts: [shared.example], resolution: DNS, ports: [{{number: {port}, name: http, protocol: HTTP}}]}}\n---\n"
    )
}

#[test]
fn the_own_namespace_wins_a_host_then_the_oldest() {
    let yaml =
        entry("bank", 81, "2026-01-02T00:00:00Z") + &entry("shop", 82, "2026-01-01T00:00:00Z");
    let mut mesh = TestMesh::new(&yaml);
    let bank = mesh.sidecar("bank", "a");
    let other = mesh.sidecar("other", "a");
    let gateway = mesh.gateway("bank");
    assert_eq!(
        meant(&mesh, bank, "shared.example"),
        Some(("bank".into(), vec![81]))
    );

    assert_eq!(
        meant(&mesh, other, "shared.example"),
        Some(("shop".into(), vec![82]))
    );
    assert_eq!(
        meant(&mesh, gateway, "shared.example"),
        Some(("shop".into(), vec![82]))
    );
}

#[test]
fn entries_of_one_namespace_with_one_host_are_merged() {
    let twice = entry("shop", 81, "2026-01-01T00:00:00Z")
        + &entry("shop", 82, "2026-01-02T00:00:00Z").replace("name: shared,", "name: second,");
    let mut mesh = TestMesh::new(&twice);
    let proxy = mesh.sidecar("shop", "a");
    assert_eq!(
        meant(&mesh, proxy, "shared.example"),
        Some(("shop".into(), vec![81, 82]))
    );
    assert_eq!(seen(&mesh, proxy), ["shop/shared"]);
}

#[test]
fn equivalent_namespaces_share_a_sidecar_scope() {
    let mut mesh = TestMesh::new(&(service("shop", "web", 80) + &service("bank", "pay", 80)));
    let shop = mesh.sidecar("shop", "a");
    let other = mesh.sidecar("other", "a");
    let query = VisibleServices {
        scope: super::Scope::Default,
    };
    assert!(Arc::ptr_eq(
        &mesh.query(shop, &query),
        &mesh.query(other, &query)
    ));

    let hidden = networking(
        "ServiceEntry",
        "shop",
        "hidden",
        "{hosts: [hidden.example], exportTo: ['.'], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}",
    );

    mesh.apply(&hidden);
    assert_eq!(seen(&mesh, shop), ["shop/hidden", "bank/pay", "shop/web"]);
    assert_eq!(seen(&mesh, other), ["bank/pay", "shop/web"]);
}

#[test]
fn a_selecting_sidecar_beats_its_namespaces_which_beats_the_roots() {
    let yaml = service("shop", "web", 80)
        + &service("bank", "pay", 80)
        + &service("root", "log", 80)
        + &networking(
            "Sidecar",
            "root",
            "default",
            "{egress: [{hosts: ['root/*']}]}",
        )
        + &networking("Sidecar", "shop", "default", "{egress: [{hosts: ['./*']}]}")
        + &networking(
            "Sidecar",
            "shop",
            "chosen",
            "{workloadSelector: {labels: {app: chosen}}, egress: [{hosts: ['bank/*']}]}",
        );

    let mut mesh = TestMesh::new(&yaml);
    mesh.mesh_config("rootNamespace: root");
    let chosen = mesh.sidecar("shop", "chosen");
    let plain = mesh.sidecar("shop", "a");
    let other = mesh.sidecar("bank", "a");
    assert_eq!(seen(&mesh, chosen), ["bank/pay"]);
    assert_eq!(seen(&mesh, plain), ["shop/web"]);
    assert_eq!(seen(&mesh, other), ["root/log"]);

    let gateway = mesh.gateway("shop");
    assert_eq!(seen(&mesh, gateway), ["root/log", "bank/pay", "shop/web"]);
}

#[test]
fn a_dot_in_the_roots_sidecar_is_each_namespace_itself() {
    let yaml = service("shop", "web", 80)
        + &service("bank", "pay", 80)
        + &networking("Sidecar", "root", "default", "{egress: [{hosts: ['./*']}]}");
    let mut mesh = TestMesh::new(&yaml);
    mesh.mesh_config("rootNamespace: root");
    let shop = mesh.sidecar("shop", "a");
    let bank = mesh.sidecar("bank", "a");
    assert_eq!(seen(&mesh, shop), ["shop/web"]);
    assert_eq!(seen(&mesh, bank), ["bank/pay"]);
}

#[test]
fn a_virtual_services_destination_is_imported_with_its_port_alone() {
    let two_ports = "apiVersion: v1\nkind: Service\nmetadata: {name: pay, namespace: bank}\n\
                     spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}, {name: http-b, port: 81}]}\n---\n";
    let yaml = service("shop", "web", 80)
        + two_ports
        + &networking(
            "Sidecar",
            "shop",
            "default",
            "{egress: [{hosts: ['shop/*']}]}",
        )
        + &networking(
            "VirtualService",
            "shop",
            "web",
            "{hosts: [web], http: [{route: [{destination: {host: pay.bank.svc.cluster.local, port: {number: 81}}}]}]}",
        );

    let mut mesh = TestMesh::new(&yaml);
    let proxy = mesh.sidecar("shop", "a");
    assert_eq!(seen(&mesh, proxy), ["shop/web", "bank/pay"]);
    assert_eq!(
        meant(&mesh, proxy, "pay.bank.svc.cluster.local"),
        Some(("bank".into(), vec![81]))
    );
}

#[test]
fn listeners_with_ports_import_parts_that_are_laid_together() {
    let two_ports = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
                     spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}, {name: http-b, port: 81}, \
                     {name: http-c, port: 82}]}\n---\n";
    let sidecar = "{egress: [{port: {number: 81, protocol: HTTP, name: b}, hosts: ['./*']}, \
                   {port: {number: 80, protocol: HTTP, name: a}, hosts: ['./*']}]}";
    let mut mesh =
        TestMesh::new(&(two_ports.to_owned() + &networking("Sidecar", "shop", "default", sidecar)));
    let proxy = mesh.sidecar("shop", "a");
    assert_eq!(
        meant(&mesh, proxy, "web.shop.svc.cluster.local"),
        Some(("shop".into(), vec![81, 80]))
    );
}

#[test]
fn virtual_services_come_private_first_then_exported_then_public() {
    let of = |namespace: &str, export_to: &str| {
        networking(
            "VirtualService",
            namespace,
            "web",
            &format!("{{hosts: [web.example], exportTo: ['{export_to}']}}"),
        )
    };

    let yaml =
        of("a-public", "*") + &of("b-exported", "shop") + &of("shop", ".") + &of("hidden", "~");
    let mut mesh = TestMesh::new(&yaml);
    let names = |mesh: &TestMesh, proxy| {
        let scope = (*mesh.query(proxy, &ScopeOfProxy)).clone();
        let names = mesh.query(proxy, &ListenerVirtualServices { scope, listener: 0 });
        names
            .iter()
            .map(|name| name.namespace.to_string())
            .collect::<Vec<_>>()
    };

    let shop = mesh.sidecar("shop", "a");
    let other = mesh.sidecar("other", "a");
    assert_eq!(names(&mesh, shop), ["shop", "b-exported", "a-public"]);
    assert_eq!(names(&mesh, other), ["a-public"]);
}

/// A change of an object, whose spec is `None` if it is removed.
struct Step {
    kind: Kind,
    namespace: &'static str,
    spec: Option<String>,
}

/// A namespace's Sidecar gets these hosts.
fn sidecar(namespace: &'static str, hosts: &str) -> Step {
    Step {
        kind: Kind::Sidecar,
        namespace,
        spec: Some(format!("{{egress: [{{hosts: [{hosts}]}}]}}")),
    }
}

/// A host that the namespace `bank` declares is exported to these namespaces.
fn partner(export_to: &str) -> Step {
    let port = "{number: 80, name: http, protocol: HTTP}";
    Step {
        kind: Kind::ServiceEntry,
        namespace: "bank",
        spec: Some(format!(
            "{{hosts: [partner.example], resolution: DNS, exportTo: [{export_to}], ports: [{port}]}}"
        )),
    }
}

fn removed(kind: Kind, namespace: &'static str) -> Step {
    Step {
        kind,
        namespace,
        spec: None,
    }
}

/// Each changes what a sidecar of some namespace sees.
fn steps() -> Vec<Step> {
    vec![
        sidecar("shop", "'./*'"),
        sidecar("bank", "'*/web.shop.svc.cluster.local'"),
        sidecar(
            "shop",
            "'./*', 'bank/*', 'root/*', '~root/log.root.svc.cluster.local'",
        ),
        sidecar("root", "'root/*'"),
        partner("shop"),
        partner("other"),
        sidecar("root", "'bank/*', './*'"),
        partner("'*'"),
        sidecar("bank", "'~/*'"),
        sidecar("shop", "'other/*'"),
        removed(Kind::Sidecar, "shop"),
        removed(Kind::Sidecar, "root"),
        removed(Kind::Sidecar, "bank"),
        partner("shop, bank"),
        removed(Kind::ServiceEntry, "bank"),
    ]
}

#[test]
fn after_changes_a_proxy_sees_what_it_sees_of_the_same_objects_at_once() {
    const NAMESPACES: [&str; 4] = ["shop", "bank", "root", "other"];

    let services = service("shop", "web", 80)
        + &service("bank", "pay", 80)
        + &service("root", "log", 80)
        + &service("other", "any", 80);
    let all_seen = |mesh: &TestMesh, proxies: &[ProxyId]| -> Vec<Vec<String>> {
        proxies.iter().map(|proxy| seen(mesh, *proxy)).collect()
    };
    let begin = |objects: &str| {
        let mut mesh = TestMesh::new(&format!("{services}{objects}"));
        mesh.mesh_config("rootNamespace: root");
        let proxies = NAMESPACES.map(|namespace| mesh.sidecar(namespace, "a"));
        (mesh, proxies)
    };

    let (mut mesh, proxies) = begin("");
    let mut objects: BTreeMap<(Kind, &str), String> = BTreeMap::new();
    let mut before = all_seen(&mesh, &proxies);
    for (number, step) in steps().into_iter().enumerate() {
        let key = (step.kind, step.namespace);
        match step.spec {
            Some(spec) => {
                let kind = step.kind.as_str();
                let yaml = networking(kind, step.namespace, "default", &spec);
                mesh.apply(&yaml);
                objects.insert(key, yaml);
            }
            None => {
                mesh.remove(step.kind, step.namespace, "default");
                objects.remove(&key);
            }
        }

        let after = all_seen(&mesh, &proxies);
        let (fresh, same_proxies) = begin(&objects.values().cloned().collect::<String>());
        assert_eq!(after, all_seen(&fresh, &same_proxies), "step {number}");
        assert_ne!(after, before, "step {number}");
        before = after;
    }
}

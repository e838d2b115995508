//! Statuses of objects about their waypoints, and of policies about their enforcement.

use navarch_api::mesh::{MeshConfig, ServiceEntryVisibility, Visibility};
use serde_json::Value;

use super::*;

/// Waypoints: one with an address, one without, one for workloads only; and namespaces with and
/// without a waypoint.
const WAYPOINTS: &str = "
{ apiVersion: v1, kind: Namespace, metadata: { name: shop, labels: { istio.io/use-waypoint: way } } }
---
{ apiVersion: v1, kind: Namespace, metadata: { name: free } }
---
{ apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: { name: way, namespace: shop },
  spec: { gatewayClassName: istio-waypoint, listeners: [{ name: mesh, port: 15008, protocol: HBONE }] },
  status: { addresses: [{ type: Hostname, value: way.shop.svc.cluster.local }] } }
---
{ apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: { name: young, namespace: shop },
  spec: { gatewayClassName: istio-waypoint, listeners: [{ name: mesh, port: 15008, protocol: HBONE }] } }
---
{ apiVersion: gateway.networking.k8s.io/v1, kind: Gateway,
  metadata: { name: pods, namespace: shop, labels: { istio.io/waypoint-for: workload } },
  spec: { gatewayClassName: istio-waypoint, listeners: [{ name: mesh, port: 15008, protocol: HBONE }] },
  status: { addresses: [{ type: IPAddress, value: 10.0.0.9 }] } }
---
{ apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: { name: istio-waypoint },
  spec: { controllerName: istio.io/mesh-controller } }
---
{ apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: { name: istio },
  spec: { controllerName: istio.io/gateway-controller } }
---
";

/// The statuses by name of the object, without those of waypoints.
fn statuses(mesh: &mut Mesh) -> BTreeMap<String, Value> {
    let asking = mesh.ztunnel("n1");
    let all = mesh.ask(asking, ResourceType::ObjectStatus, &[]);
    all.into_iter()
        .map(|(name, body)| (name, serde_json::from_slice(&body).unwrap()))
        .collect()
}

/// The conditions of one object, in a new mesh: `type status reason`, and `-type` for conditions
/// that must be removed.
fn conditions(objects: &str, name: &str) -> Vec<String> {
    let mut mesh = Mesh::new();
    mesh.put(&format!("{WAYPOINTS}{objects}"));
    short(&statuses(&mut mesh)[name])
}

fn short(status: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = |name: &str| status[name].as_array().unwrap().clone();
    let has = list("conditions").into_iter().map(|condition| {
        format!(
            "{} {} {}",
            text(&condition["type"]),
            text(&condition["status"]),
            text(&condition["reason"])
        )
    });
    let without = list("withoutConditions")
        .into_iter()
        .map(|kind| format!("-{}", text(&kind)));
    has.chain(without).collect()
}

fn service(metadata: &str) -> String {
    format!(
        "{{ apiVersion: v1, kind: Service, metadata: {{ name: web, {metadata} }},
  spec: {{ clusterIP: 10.96.0.1, ports: [{{ name: http, port: 80 }}] }} }}\n---\n"
    )
}

#[test]
fn service_status_names_the_waypoint_or_why_there_is_none() {
    for (metadata, expected) in [
        (
            "namespace: shop",
            "istio.io/WaypointBound True WaypointAccepted",
        ),
        ("namespace: free", "-istio.io/WaypointBound"),
        (
            "namespace: shop, labels: { istio.io/use-waypoint: none }",
            "-istio.io/WaypointBound",
        ),
        (
            "namespace: shop, labels: { gateway.istio.io/managed: istio.io-mesh-controller }",
            "-istio.io/WaypointBound",
        ),
        (
            "namespace: shop, labels: { istio.io/use-waypoint: young }",
            "istio.io/WaypointBound False WaypointIsNotReady",
        ),
        (
            "namespace: shop, labels: { istio.io/use-waypoint: nobody }",
            "istio.io/WaypointBound False WaypointIsNotReady",
        ),
        (
            "namespace: shop, labels: { istio.io/use-waypoint: pods }",
            "istio.io/WaypointBound False UnsupportedTrafficType",
        ),
        (
            "namespace: shop, labels: { istio.io/use-waypoint: none, navarch.io/prepare-waypoint: way }",
            "-istio.io/WaypointBound",
        ),
        (
            "namespace: free, labels: { navarch.io/prepare-waypoint: way }",
            "istio.io/WaypointBound False WaypointIsNotReady",
        ),
        (
            "namespace: free, labels: { istio.io/use-waypoint: way, istio.io/use-waypoint-namespace: shop }",
            "istio.io/WaypointBound False AttachmentDenied",
        ),
    ] {
        let namespace = if metadata.contains("namespace: free") {
            "free"
        } else {
            "shop"
        };

        assert_eq!(
            conditions(&service(metadata), &format!("Service/{namespace}/web")),
            [expected],
            "{metadata}"
        );
    }
}

#[test]
fn the_condition_message_covers_ingress_and_canary_waypoints() {
    let message = |metadata: &str| {
        let mut mesh = Mesh::new();
        mesh.put(&format!("{WAYPOINTS}{}", service(metadata)));
        statuses(&mut mesh)["Service/shop/web"]["conditions"][0]["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };

    let attached = "Successfully attached to waypoint shop/way";
    assert_eq!(message("namespace: shop"), attached);
    let ingress = message("namespace: shop, labels: { istio.io/ingress-use-waypoint: 'true' }");
    assert_eq!(
        ingress,
        format!("{attached}. Ingress traffic will traverse the waypoint")
    );
    let ingress = message("namespace: shop, labels: { istio.io/ingress-use-waypoint: 'false' }");

    assert!(
        ingress.contains("Ingress traffic is not using the waypoint"),
        "{ingress}"
    );
    let second = message("namespace: shop, labels: { istio.io/use-waypoint-canary: young }");
    assert!(
        second.starts_with(&format!("{attached}. Canary waypoint not attached: ")),
        "{second}"
    );

    let same = message("namespace: shop, labels: { istio.io/use-waypoint-canary: way }");
    assert!(same.contains("is the waypoint itself"), "{same}");
}

#[test]
fn service_entries_get_waypoint_conditions() {
    let entry = |name: &str, host: &str, labels: &str| {
        format!(
            "{{ apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{ name: {name}, namespace: free, labels: {{ {labels} }} }},
  spec: {{ hosts: ['{host}'], resolution: NONE, ports: [{{ number: 443, name: tls, protocol: TLS }}] }} }}\n---\n"
        )
    };

    let rest = ["-istio.io/WaypointMissing", "-istio.io/VisibilityApplied"];
    let plain = conditions(&entry("out", "out.example", ""), "ServiceEntry/free/out");
    assert_eq!(plain, ["-istio.io/WaypointBound", rest[0], rest[1]]);
    let wild = conditions(&entry("out", "*.example", ""), "ServiceEntry/free/out");
    let missing = "istio.io/WaypointMissing True NoWaypointForWildcardService";
    assert_eq!(wild, [missing, "-istio.io/WaypointBound", rest[1]]);
    let named = conditions(
        &entry("out", "*.example", "istio.io/use-waypoint: gone"),
        "ServiceEntry/free/out",
    );

    assert_eq!(
        named,
        [
            "istio.io/WaypointBound False WaypointIsNotReady",
            missing,
            rest[1]
        ]
    );

    let hidden = entry("a", "out.example", "istio.io/use-waypoint: gone")
        + &entry("b", "out.example", "istio.io/use-waypoint: gone");
    let mut mesh = Mesh::new();
    mesh.put(&hidden);
    let statuses = statuses(&mut mesh);
    assert_eq!(
        short(&statuses["ServiceEntry/free/a"])[0],
        "istio.io/WaypointBound False WaypointIsNotReady"
    );

    assert_eq!(
        short(&statuses["ServiceEntry/free/b"])[0],
        "-istio.io/WaypointBound",
        "another object has its host"
    );

    let workload = |labels: &str| {
        let object = format!(
            "{{ apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {{ name: vm, namespace: shop, labels: {{ {labels} }} }},
  spec: {{ address: 10.2.0.1 }} }}\n---\n"
        );
        conditions(&object, "WorkloadEntry/shop/vm")
    };

    assert_eq!(
        workload(""),
        ["-istio.io/WaypointBound"],
        "the namespace's waypoint is for services"
    );
    assert_eq!(
        workload("istio.io/use-waypoint: way"),
        ["istio.io/WaypointBound False UnsupportedTrafficType"]
    );

    assert_eq!(
        workload("istio.io/use-waypoint: pods"),
        ["istio.io/WaypointBound True WaypointAccepted"]
    );
    assert_eq!(
        workload("gateway.networking.k8s.io/gateway-name: pods"),
        ["-istio.io/WaypointBound"]
    );
}

#[test]
fn service_entry_status_has_its_visibility() {
    let mut mesh = Mesh::new();
    let visibility = ServiceEntryVisibility {
        default_visibility: Visibility::Namespace,
        ..ServiceEntryVisibility::default()
    };
    let config = MeshConfig {
        service_entry_visibility: Some(visibility),
        ..MeshConfig::default()
    };
    mesh.change(vec![Change::Mesh(Arc::new(config))]);
    mesh.put(&format!(
        "{WAYPOINTS}{{ apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{ name: out, namespace: free }},
  spec: {{ hosts: [out.example], resolution: NONE, ports: [{{ number: 443, name: tls, protocol: TLS }}] }} }}"
    ));
    let status = short(&statuses(&mut mesh)["ServiceEntry/free/out"]);
    assert_eq!(status[0], "istio.io/VisibilityApplied True Namespace");
}

/// An AuthorizationPolicy.
fn policy(namespace: &str, spec: &str) -> String {
    format!(
        "{{ apiVersion: security.istio.io/v1, kind: AuthorizationPolicy,
  metadata: {{ name: p, namespace: {namespace}, generation: 3 }}, spec: {{ {spec} }} }}\n---\n"
    )
}

#[test]
fn policy_status_has_the_verdict_for_ztunnel() {
    for (spec, expected, found) in [
        (
            "rules: [{ from: [{ source: { namespaces: [a] } }] }]",
            "True Accepted",
            "attached to ztunnel",
        ),
        (
            "action: AUDIT",
            "False UnsupportedValue",
            "does not support the AUDIT action",
        ),
        (
            "rules: [{ to: [{ operation: { paths: [/a], methods: [GET] } }] }]",
            "True UnsupportedValue",
            "(found: methods, paths). In ambient mode you must use a waypoint proxy to enforce HTTP rules. Within an ALLOW",
        ),
        (
            "action: DENY, rules: [{ to: [{ operation: { paths: [/a] } }] }]",
            "True UnsupportedValue",
            "no enforceable rules at ztunnel",
        ),
        (
            "action: DENY, rules: [{ to: [{ operation: { paths: [/a] } }] }, { from: [{ source: { namespaces: [a] } }] }]",
            "True UnsupportedValue",
            "is enforced without the HTTP rules",
        ),
        (
            "action: DENY, rules: [{ when: [{ key: 'request.headers[a]', values: [b] }] }]",
            "True UnsupportedValue",
            "(found: request.headers[a])",
        ),
    ] {
        let mut mesh = Mesh::new();
        mesh.put(&policy("shop", spec));
        let status = &statuses(&mut mesh)["AuthorizationPolicy/shop/p"];
        assert_eq!(
            short(status),
            [&format!("ZtunnelAccepted {expected}"), "-WaypointAccepted"],
            "{spec}"
        );
        let condition = &status["conditions"][0];
        assert!(
            condition["message"].as_str().unwrap().contains(found),
            "{condition}"
        );
        assert_eq!(condition["observedGeneration"], "3");
    }

    let mut mesh = Mesh::new();
    let dry_run = policy("shop", "rules: [{}]")
        .replace("generation: 3", "annotations: { istio.io/dry-run: 'true' }");
    mesh.put(&dry_run);
    assert_eq!(
        short(&statuses(&mut mesh)["AuthorizationPolicy/shop/p"]),
        [
            "ZtunnelAccepted False UnsupportedValue",
            "-WaypointAccepted"
        ]
    );
}

#[test]
fn policy_status_lists_targets_with_and_without_waypoints() {
    let bound = service("namespace: shop") + &service("namespace: free");

    for (namespace, targets, expected) in [
        (
            "shop",
            "{ kind: Gateway, group: gateway.networking.k8s.io, name: way }",
            "True Accepted",
        ),
        (
            "shop",
            "{ kind: Gateway, group: gateway.networking.k8s.io, name: young }",
            "False TargetNotFound",
        ),
        ("shop", "{ kind: Service, name: web }", "True Accepted"),
        (
            "free",
            "{ kind: Service, name: web }",
            "False AncestorNotBound",
        ),
        (
            "free",
            "{ kind: Service, name: nobody }",
            "False TargetNotFound",
        ),
        (
            "free",
            "{ kind: ServiceEntry, group: networking.istio.io, name: nobody }",
            "False TargetNotFound",
        ),
        (
            "istio-system",
            "{ kind: GatewayClass, group: gateway.networking.k8s.io, name: istio-waypoint }",
            "True Accepted",
        ),
        (
            "istio-system",
            "{ kind: GatewayClass, group: gateway.networking.k8s.io, name: istio }",
            "False Invalid",
        ),
        (
            "istio-system",
            "{ kind: GatewayClass, group: gateway.networking.k8s.io, name: none }",
            "False TargetNotFound",
        ),
        (
            "shop",
            "{ kind: GatewayClass, group: gateway.networking.k8s.io, name: istio-waypoint }",
            "False Invalid",
        ),
        (
            "shop",
            "{ kind: Service, name: web }, { kind: Service, name: nobody }",
            "True PartiallyInvalid",
        ),
        (
            "shop",
            "{ kind: Service, name: nobody }, { kind: Service, name: none }",
            "False Invalid",
        ),
    ] {
        let objects = bound.clone()
            + &policy(
                namespace,
                &format!("targetRefs: [{targets}], rules: [{{}}]"),
            );
        let reported = conditions(&objects, &format!("AuthorizationPolicy/{namespace}/p"));
        assert_eq!(
            reported,
            [&format!("WaypointAccepted {expected}"), "-ZtunnelAccepted"],
            "{namespace} {targets}"
        );
    }

    let mut mesh = Mesh::new();
    let targets =
        "targetRefs: [{ kind: Service, name: web }, { kind: Service, name: nobody }], rules: [{}]";
    mesh.put(&(format!("{WAYPOINTS}{bound}") + &policy("shop", targets)));
    let condition = statuses(&mut mesh)["AuthorizationPolicy/shop/p"]["conditions"][0].clone();
    assert_eq!(
        condition["message"],
        "Invalid targetRefs: Service.core:shop/nobody"
    );
}

#[test]
fn a_waypoint_becomes_bound_when_it_gets_an_address() {
    let mut mesh = Mesh::new();
    mesh.put(&format!(
        "{WAYPOINTS}{}",
        service("namespace: shop, labels: { istio.io/use-waypoint: young }")
    ));
    assert_eq!(
        short(&statuses(&mut mesh)["Service/shop/web"]),
        ["istio.io/WaypointBound False WaypointIsNotReady"]
    );

    let gateway = changes(WAYPOINTS).into_iter().nth(3).unwrap();
    assert!(format!("{gateway:?}").contains("young"));
    mesh.put(
        "{ apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: { name: young, namespace: shop },
  spec: { gatewayClassName: istio-waypoint, listeners: [{ name: mesh, port: 15008, protocol: HBONE }] },
  status: { addresses: [{ type: IPAddress, value: 10.0.0.7 }] } }",
    );
    assert_eq!(
        short(&statuses(&mut mesh)["Service/shop/web"]),
        ["istio.io/WaypointBound True WaypointAccepted"]
    );
}

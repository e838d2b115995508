//! Requests through a waypoint: their path, and plans about them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use navarch::api::decode::{Format, Outcome, decode_documents};
use navarch::api::mesh::MeshConfig;
use navarch::api::object::NamespacedName;
use navarch::api::settings::Settings;
use navarch::push::context::PushContext;
use navarch::push::mesh_state::{Change, MeshState};
use navarch::push::proxy::ProxyKind;
use navarch_answers::mirror::Mirror;
use navarch_answers::plan::{Plan, plan_of};
use navarch_answers::why::WhyNot;
use navarch_answers::why_not::{Origin, Others, ProxySnapshot, Request, why_not};
use navarch_answers::{ambient, implied};

/// The waypoint, and its route for `web`.
const WAYPOINT: &str = "apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio.io/dataplane-mode: ambient}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: istio-waypoint}
spec: {controllerName: istio.io/mesh-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: way, namespace: shop}
spec: {gatewayClassName: istio-waypoint, listeners: [{name: mesh, port: 15008, protocol: HBONE}]}
status: {addresses: [{type: Hostname, value: way.shop.svc.cluster.local}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec: {host: web, subsets: [{name: one, labels: {version: one}}, {name: two, labels: {version: two}}]}
---
";

/// The pod of the waypoint, two versions of `web` behind it, a client, and `plain`, which has no
/// waypoint.
fn shop(more: &str) -> String {
    let managed = "gateway.networking.k8s.io/gateway-name: way, gateway.istio.io/managed: istio.io-mesh-controller";
    let redirected = "ambient.istio.io/redirection: enabled";
    let mut yaml = String::new();

    for (name, ip, labels, annotations) in [
        ("way", "10.1.0.9", managed, ""),
        ("web-one", "10.1.0.1", "app: web, version: one", redirected),
        ("web-two", "10.1.0.2", "app: web, version: two", redirected),
        ("plain", "10.1.0.3", "app: plain", redirected),
        ("client", "10.1.0.4", "app: client", redirected),
        ("beside", "10.1.0.5", "app: beside", ""),
    ] {
        writeln!(
            yaml,
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {{{labels}}}, annotations: {{{annotations}}}}}\n\
             spec: {{serviceAccountName: {name}, containers: [{{name: app, image: app}}]}}\n\
             status: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: 'True'}}]}}\n---"
        )
        .unwrap();
    }

    for (name, vip, port, labels, pods) in [
        (
            "way",
            "10.96.0.9",
            15008,
            managed,
            vec![("way", "10.1.0.9")],
        ),
        (
            "web",
            "10.96.0.1",
            80,
            "istio.io/use-waypoint: way",
            vec![("web-one", "10.1.0.1"), ("web-two", "10.1.0.2")],
        ),
        ("plain", "10.96.0.2", 80, "", vec![("plain", "10.1.0.3")]),
    ] {
        let endpoint = |(pod, ip): &(&str, &str)| {
            format!(
                "{{addresses: [{ip}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: {pod}, namespace: shop}}}}"
            )
        };
        let endpoints = pods.iter().map(endpoint).collect::<Vec<_>>().join(", ");
        let target = if port == 80 { 8080 } else { port };
        writeln!(
            yaml,
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop, labels: {{{labels}}}}}\n\
             spec: {{clusterIP: {vip}, clusterIPs: [{vip}], selector: {{app: {name}}}, ports: [{{name: http, port: {port}, targetPort: {target}}}]}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\n\
             endpoints: [{endpoints}]\nports: [{{name: http, port: {target}, protocol: TCP}}]\n---"
        )
        .unwrap();
    }

    yaml + WAYPOINT + &split("web", 90) + "---\n" + more
}

/// A VirtualService that splits requests between the two versions.
fn split(name: &str, one: u32) -> String {
    let two = 100 - one;
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{hosts: [web], http: [{{match: [{{uri: {{prefix: /}}}}], route: [\
         {{destination: {{host: web, subset: one}}, weight: {one}}}, {{destination: {{host: web, subset: two}}, weight: {two}}}]}}]}}\n"
    )
}

/// The objects of a YAML text, as changes.
pub(crate) fn changes(yaml: &str) -> Vec<Change> {
    let read = |outcome| match outcome {
        Outcome::Read { object, .. } => Some(Change::Put(object)),
        Outcome::Ignored => None,
        Outcome::Rejected(error) => panic!("{error}"),
    };
    decode_documents(yaml, Format::Yaml)
        .into_iter()
        .filter_map(|document| read(document.outcome))
        .collect()
}

/// The snapshot of the shop, in ambient mode.
pub(crate) fn snapshot(more: &str) -> Arc<PushContext> {
    let on = |name: &str| (name == "PILOT_ENABLE_AMBIENT").then(|| "true".to_owned());
    context_of(
        navarch::cli::environment::settings(on).unwrap(),
        &shop(more),
    )
}

/// The snapshot of these objects with Istio's default mesh config.
pub(crate) fn context_of(settings: Settings, yaml: &str) -> Arc<PushContext> {
    let mut state = MeshState::new(settings);
    let mesh = Change::Mesh(Arc::new(MeshConfig::istio_defaults()));
    state.apply(
        std::iter::once(mesh)
            .chain(changes(yaml))
            .collect::<Vec<_>>(),
    );
    state.context()
}

/// Each proxy of a mirror, with its resources.
pub(crate) fn snapshots(mirror: &Mirror) -> Vec<ProxySnapshot> {
    let proxies = mirror.clients().enumerate();
    proxies
        .map(|(at, client)| ProxySnapshot {
            proxy: client.proxy.clone(),
            had: mirror.had(at),
        })
        .collect()
}

/// Why a request of a pod to a host fails, with the proxies that the shop's objects imply.
pub(crate) fn why_fails(more: &str, pod: &str, host: &str) -> WhyNot {
    follow(more, pod, host, |origin, request| (origin, request))
}

/// The same for a changed origin or request.
pub(crate) fn follow(
    more: &str,
    pod: &str,
    host: &str,
    change: impl FnOnce(Origin, Request) -> (Origin, Request),
) -> WhyNot {
    let context = snapshot(more);
    let mirror = Mirror::of(&context, implied(&context));
    let places = snapshots(&mirror);
    let at = |ip: IpAddr| {
        places
            .iter()
            .find(|place| place.proxy.ips.contains(&ip))
            .cloned()
    };

    let name = NamespacedName::new("shop", pod);
    let origin = match ambient(&context, &name) {
        Some(pod) => Origin::Ambient(Arc::new(pod)),
        None => Origin::Proxy(
            places
                .iter()
                .find(|place| place.proxy.name.starts_with(pod))
                .unwrap()
                .clone(),
        ),
    };

    let method = "GET".to_owned();
    let path = "/".to_owned();
    let request = Request {
        host: host.to_owned(),
        port: None,
        method,
        path,
        headers: BTreeMap::new(),
        claims: None,
        to_all: false,
    };
    let (origin, request) = change(origin, request);

    let of_kind = |kind: ProxyKind| {
        places
            .iter()
            .filter(|place| place.proxy.kind == kind)
            .cloned()
            .collect()
    };

    let waypoints = || of_kind(ProxyKind::Waypoint);
    let ztunnels = || of_kind(ProxyKind::Ztunnel);
    why_not(
        &context,
        &origin,
        &request,
        Others {
            at: &at,
            waypoints: &waypoints,
            ztunnels: &ztunnels,
            read: &RefCell::default(),
        },
    )
}

#[test]
fn a_request_of_an_ambient_pod_passes_the_waypoint_of_the_service() {
    let answer = why_fails("", "client", "web");
    assert_eq!(answer.reason, None, "{answer}");
    let text = answer.to_string();

    for step in [
        "ztunnel on its node accepts the connection",
        "waypoint way.shop accepts the connection for web.shop.svc.cluster.local:80",
        "it is forwarded to one 90 %, two 10 %",
        "ztunnel accepts the connection for the pod at 10.1.0.1:8080",
        "the ztunnel of its node received: none is connected to this replica",
    ] {
        assert!(text.contains(step), "{step} in\n{text}");
    }

    // A service without a waypoint is reached directly.
    let text = why_fails("", "client", "plain").to_string();
    assert!(
        text.contains("it is forwarded to 1 endpoints of Service shop/plain")
            && !text.contains("waypoint"),
        "{text}"
    );
}

#[test]
fn the_last_destinations_are_known_with_their_shares() {
    let destinations = |host| why_fails("", "client", host).destinations;
    let shares = |pairs: &[(&str, u64)]| -> BTreeMap<String, u64> {
        pairs
            .iter()
            .map(|(address, share)| ((*address).to_owned(), *share))
            .collect()
    };
    let split = shares(&[("10.1.0.1:8080", 900), ("10.1.0.2:8080", 100)]);
    assert_eq!(destinations("web"), split, "the routes of the waypoint");
    assert_eq!(destinations("plain"), shares(&[("10.1.0.3:8080", 1000)]));
    assert_eq!(
        why_fails("", "beside", "plain").destinations,
        shares(&[("10.1.0.3:8080", 1000)]),
        "from a sidecar"
    );
}

#[test]
fn headers_of_the_request_are_matched_by_policies() {
    let policy = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: web, namespace: shop}\n\
         spec: {targetRefs: [{kind: Service, name: web}], action: DENY, \
         rules: [{when: [{key: 'request.headers[x-tier]', values: [gold]}]}]}\n";
    let with_tier = |tier: &str| {
        follow(policy, "client", "web", |origin, request| {
            let headers = [("x-tier".to_owned(), tier.to_owned())].into();
            (origin, Request { headers, ..request })
        })
    };
    assert_eq!(with_tier("silver").reason, None);
    let reason = with_tier("gold").reason.unwrap_or_default();
    assert!(reason.contains("403"), "{reason}");
}

#[test]
fn policies_of_the_waypoint_are_the_reason_where_they_deny() {
    let policy = |account: &str| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: web, namespace: shop}}\n\
             spec: {{targetRefs: [{{kind: Service, name: web}}], action: DENY, rules: [{{from: [{{source: \
             {{principals: [cluster.local/ns/shop/sa/{account}]}}}}]}}]}}\n"
        )
    };

    let answer = why_fails(&policy("client"), "client", "web");
    let reason = answer.reason.clone().unwrap_or_default();
    assert!(
        reason.starts_with("way.shop denies it to spiffe://cluster.local/ns/shop/sa/client: 403"),
        "{answer}"
    );
    assert_eq!(
        answer.advice.as_deref(),
        Some("it is AuthorizationPolicy shop/web"),
        "{answer}"
    );

    assert_eq!(why_fails(&policy("somebody"), "client", "web").reason, None);
}

#[test]
fn requests_without_endpoints_fail_at_the_waypoint() {
    let none = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop}\n\
                spec: {hosts: [web], http: [{route: [{destination: {host: web, subset: three}}]}]}\n";
    let answer = why_fails(none, "client", "web");
    assert!(
        answer
            .reason
            .as_deref()
            .is_some_and(|reason| reason.contains("503")),
        "{answer}"
    );
}

#[test]
fn why_not_reports_that_a_sidecar_bypasses_the_waypoint() {
    let answer = why_fails("", "beside", "web");
    assert_eq!(answer.reason, None, "{answer}");
    assert!(
        answer.to_string().contains("it bypasses waypoint way.shop"),
        "{answer}"
    );
}

#[test]
fn a_plan_reports_traffic_changes_behind_a_waypoint() {
    let context = snapshot("");
    let planned = |yaml: &str| -> Plan {
        plan_of(
            &mut Mirror::of(&context, implied(&context)),
            changes(yaml).pop().unwrap(),
        )
    };

    let plan = planned(&split("web", 50));
    let lines: Vec<String> = plan
        .traffic
        .iter()
        .map(|one| format!("{}: {} → {}", one.request, one.before, one.after))
        .collect();
    let expected =
        "GET web:80/ at waypoint way: one 90 %, two 10 % → one 50 %, two 50 %".to_owned();
    assert!(lines.contains(&expected), "{lines:?}");

    assert!(
        plan.to_string().contains(&format!("  {expected}\n")),
        "{plan}"
    );

    // An object equal to the existing one changes nothing.
    assert!(planned(&split("web", 90)).traffic.is_empty());
}

//! Random pods.

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

/// Annotations with valid, invalid and malicious values.
const ANNOTATIONS: [(&str, &[&str]); 41] = [
    ("sidecar.istio.io/inject", &["true", "false", "yes"]),
    (
        "inject.istio.io/templates",
        &[
            "sidecar",
            "gateway",
            "grpc-agent",
            "grpc-simple",
            "grpc-agent,sidecar",
            "waypoint",
            "x",
        ],
    ),
    ("sidecar.istio.io/nativeSidecar", &["true", "false", "x"]),
    (
        "sidecar.istio.io/interceptionMode",
        &["REDIRECT", "TPROXY", "NONE", "x"],
    ),
    (
        "sidecar.istio.io/proxyImage",
        &["a/b:c", "x\n    privileged: true", "a/b\"\n- x: y", ""],
    ),
    (
        "sidecar.istio.io/proxyImageType",
        &["debug", "distroless", "default", "\""],
    ),
    ("sidecar.istio.io/proxyCPU", &["100m", "0.5", "x"]),
    ("sidecar.istio.io/proxyMemoryLimit", &["1024Mi", "1Gi\n"]),
    (
        "sidecar.istio.io/logLevel",
        &["debug", "{{ .Values }}", "a,b:\"c"],
    ),
    ("sidecar.istio.io/capNetBindService", &["true", "x"]),
    (
        "sidecar.istio.io/rewriteAppHTTPProbers",
        &["true", "false", "x"],
    ),
    (
        "sidecar.istio.io/bootstrapOverride",
        &["my-bootstrap", "x\ny"],
    ),
    (
        "sidecar.istio.io/userVolume",
        &[
            r#"{"u":{"emptyDir":{}}}"#,
            "x",
            r#"{"u":{"privileged":true}}"#,
        ],
    ),
    (
        "sidecar.istio.io/userVolumeMount",
        &[r#"{"u":{"mountPath":"/u"}}"#, "[]", "{"],
    ),
    (
        "status.sidecar.istio.io/port",
        &["0", "15021", "15099", "x"],
    ),
    (
        "readiness.status.sidecar.istio.io/periodSeconds",
        &["7", "0", "-1"],
    ),
    ("prometheus.io/scrape", &["true", "false", "x"]),
    ("prometheus.io/port", &["9090", "15020", "15090", "x"]),
    (
        "prometheus.istio.io/scrape-targets",
        &["9090:/a,9091", "x", "15000"],
    ),
    ("prometheus.istio.io/merge-metrics", &["true", "false", "x"]),
    (
        "traffic.sidecar.istio.io/includeOutboundIPRanges",
        &["*", "10.0.0.0/8", "x"],
    ),
    (
        "traffic.sidecar.istio.io/excludeInboundPorts",
        &["80,81", "", "x"],
    ),
    (
        "traffic.sidecar.istio.io/excludeOutboundPorts",
        &["3306", ""],
    ),
    (
        "traffic.sidecar.istio.io/kubevirtInterfaces",
        &["net0", "\n"],
    ),
    (
        "proxy.istio.io/config",
        &[
            "concurrency: 2",
            "holdApplicationUntilProxyStarts: true",
            "proxyMetadata: {A: b, ISTIO_META_ENABLE_HBONE: 'true', ENVOY_SECURE_MERGED_METRICS_PORT: '15443'}",
            "interceptionMode: TPROXY",
            "x: y",
            "[",
        ],
    ),
    ("kubectl.kubernetes.io/default-container", &["c1", ""]),
    ("kubectl.kubernetes.io/default-logs-container", &["c0", ""]),
    ("sidecar.istio.io/agentLogLevel", &["default:debug", ""]),
    ("sidecar.istio.io/componentLogLevel", &["misc:error", ""]),
    ("sidecar.istio.io/proxyCPULimit", &["2", "1.5", ""]),
    ("sidecar.istio.io/proxyMemory", &["64Mi", "1e3k"]),
    (
        "readiness.status.sidecar.istio.io/initialDelaySeconds",
        &["3", ""],
    ),
    (
        "readiness.status.sidecar.istio.io/failureThreshold",
        &["9", "x"],
    ),
    (
        "traffic.sidecar.istio.io/excludeOutboundIPRanges",
        &["192.168.0.0/16,10.0.0.0/8", ""],
    ),
    (
        "traffic.sidecar.istio.io/includeInboundPorts",
        &["*", "80, 81", ""],
    ),
    (
        "traffic.sidecar.istio.io/includeOutboundPorts",
        &["443", ""],
    ),
    ("traffic.sidecar.istio.io/excludeInterfaces", &["eth1", ""]),
    ("istio.io/reroute-virtual-interfaces", &["net1", ""]),
    (
        "k8s.v1.cni.cncf.io/networks",
        &["a/b", r#"[{"name":"x"}]"#, "[{", "a, b", ""],
    ),
    ("istio.io/rev", &["canary", ""]),
    ("example.com/other", &["x"]),
];

/// Labels with values.
const LABELS: [(&str, &[&str]); 6] = [
    (
        "app",
        &[
            "web",
            "-a very long name that no label may have, and that is cut to sixty-three letters-",
        ],
    ),
    ("version", &["v1", ""]),
    ("service.istio.io/workload-name", &["w"]),
    ("topology.istio.io/network", &["n1", ""]),
    ("security.istio.io/tlsMode", &["disabled", ""]),
    ("networking.istio.io/tunnel", &["none"]),
];

fn some(
    table: &'static [(&'static str, &'static [&'static str])],
    most: usize,
) -> impl Strategy<Value = Value> {
    let entry = select(table).prop_flat_map(|(name, values)| (Just(name), select(values)));
    vec(entry, 0..most).prop_map(|entries| {
        Value::Object(
            entries
                .into_iter()
                .map(|(name, value)| (name.to_owned(), json!(value)))
                .collect(),
        )
    })
}

/// The action of a probe or hook.
fn action() -> impl Strategy<Value = (String, Value)> {
    let port = prop_oneof![
        Just(json!("http")),
        Just(json!("none")),
        Just(json!(8080)),
        Just(json!(15020))
    ];

    (
        select(vec!["httpGet", "tcpSocket", "grpc", "exec"]),
        port,
        any::<bool>(),
    )
        .prop_map(|(kind, port, tls)| {
            let action = match kind {
                "httpGet" if tls => json!({ "path": "/x", "port": port, "scheme": "HTTPS" }),
                "httpGet" => json!({ "path": "/x", "port": port }),
                "tcpSocket" => json!({ "port": port }),
                "grpc" => json!({ "port": 9000 }),
                _ => json!({ "command": ["true"] }),
            };
            (kind.to_owned(), action)
        })
}

fn probe() -> impl Strategy<Value = Value> {
    (action(), of(1..9), of(1..9)).prop_map(|((kind, action), period, timeout)| {
        let mut probe = json!({ kind: action });
        if let Some(period) = period {
            probe["periodSeconds"] = json!(period);
        }
        if let Some(timeout) = timeout {
            probe["timeoutSeconds"] = json!(timeout);
        }
        probe
    })
}

/// A container without its name.
fn container() -> impl Strategy<Value = Value> {
    let env = btree_map("[A-C]", "[a-z\"\n]{1,4}", 0..4);
    let hook = action().prop_filter("hooks speak no gRPC", |(kind, _)| kind != "grpc");
    (env, of(8080..8083), of(probe()), of(probe()), of(hook)).prop_map(|(env, port, ready, live, hook)| {
        let mut container = json!({ "image": "web:1", "resources": {} });

        if !env.is_empty() {
            let env: Vec<_> = env.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
            container["env"] = json!(env);
        }

        if let Some(port) = port {
            container["ports"] =
                json!([{ "name": "http", "containerPort": port }, { "containerPort": 53, "protocol": "UDP" }]);
        }

        let probes = [("readinessProbe", ready), ("livenessProbe", live)];
        for (name, probe) in probes.into_iter().filter_map(|(name, probe)| Some((name, probe?))) {
            container[name] = probe;
        }

        if let Some((kind, action)) = hook {
            container["lifecycle"] = json!({ "preStop": { kind: action } });
        }

        container
    })
}

/// A proxy container in the pod's own spec.
fn own_proxy() -> impl Strategy<Value = Value> {
    (of(0..3_i64), any::<bool>()).prop_map(|(user, env)| {
        let mut proxy = json!({ "name": "istio-proxy", "image": "auto", "resources": { "limits": { "cpu": "3" } } });
        if let Some(user) = user {
            proxy["securityContext"] = json!({ "runAsUser": user * 1000 });
        }
        if env {
            proxy["env"] = json!([{ "name": "EXTRA", "value": "1" }, { "name": "TRUST_DOMAIN", "value": "own" }]);
        }
        proxy
    })
}

pub fn pod() -> impl Strategy<Value = Value> {
    let named = |kind: &'static str, containers: Vec<Value>| -> Vec<Value> {
        let name = |(at, mut container): (usize, Value)| {
            container["name"] = json!(format!("{kind}{at}"));
            container
        };
        containers.into_iter().enumerate().map(name).collect()
    };

    let own = prop_oneof![4 => Just(None), 1 => own_proxy().prop_map(Some)];
    let volumes = btree_map(
        "[uv]|workload-certs",
        Just(json!({ "csi": { "driver": "d" } })),
        0..3,
    );

    (vec(container(), 1..4), vec(container(), 0..3), own, volumes, some(&ANNOTATIONS, 6), some(&LABELS, 4)).prop_map(
        move |(containers, init, own, volumes, annotations, labels)| {
            let mut containers = named("c", containers);
            containers.extend(own);
            let mut spec = json!({ "containers": containers, "serviceAccountName": "web" });
            let init: Vec<_> = named("i", init)
                .into_iter()
                .map(|mut container| {
                    container
                        .as_object_mut()
                        .unwrap()
                        .retain(|name, _| !name.ends_with("Probe") && name != "lifecycle");
                    container
                })
                .collect();

            if !init.is_empty() {
                spec["initContainers"] = json!(init);
            }

            let volumes = volumes.into_iter().map(|(name, mut volume)| {
                volume["name"] = json!(name);
                volume
            });
            let volumes: Vec<_> = volumes.collect();
            if !volumes.is_empty() {
                spec["volumes"] = json!(volumes);
            }

            json!({ "metadata": { "name": "web", "annotations": annotations, "labels": labels }, "spec": spec })
        },
    )
}

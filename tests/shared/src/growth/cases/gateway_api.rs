//! Lists of the Gateway API.

#![allow(
    clippy::indexing_slicing,
    reason = "test code: it indexes only what it has built"
)]

use serde_json::{Value, json};

use super::{Case, LONG, Reader, list, number, object};

/// The API group of all kinds here except Services and pods.
const GROUP: &str = "gateway.networking.k8s.io";

/// One case for each list of the Gateway API.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "Gateway API: routes",
        reader: Reader::Gateway,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            world((0..n).map(|i| {
                route(
                    i,
                    &[(
                        "hostnames",
                        json!([format!("h{}.example.com", number(i, n, turn))]),
                    )],
                )
            }))
        },
    },
    Case {
        name: "Gateway API: routes of one host",
        reader: Reader::Gateway,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            world((0..n).map(|i| route(i, &[("rules", json!([rule(number(i, n, turn))]))])))
        },
    },
    Case {
        name: "Gateway API: routes at listeners of their own",
        reader: Reader::Gateway,
        size: 100,
        longest: LONG,
        objects: |n, turn| {
            let listener = |i| json!({ "name": format!("l{i}"), "port": 80, "protocol": "HTTP", "hostname": format!("h{i}.example.com") });
            let at = |i: usize| {
                route(
                    i,
                    &[(
                        "parentRefs",
                        json!([{ "name": "gate", "sectionName": format!("l{}", number(i, n, turn)) }]),
                    )],
                )
            };
            let mut all = world((0..n).map(at));
            all[0]["spec"]["listeners"] = list(n, listener);
            all
        },
    },
    Case {
        name: "Gateway API: rules of a route",
        reader: Reader::Gateway,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            world([route(
                0,
                &[("rules", list(n, |i| rule(number(i, n, turn))))],
            )])
        },
    },
    Case {
        name: "Gateway API: matches of a rule",
        reader: Reader::Gateway,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let matches = list(
                n,
                |i| json!({ "path": { "type": "Exact", "value": format!("/{}", number(i, n, turn)) } }),
            );
            world([route(
                0,
                &[(
                    "rules",
                    json!([{ "matches": matches, "backendRefs": backends(1) }]),
                )],
            )])
        },
    },
    Case {
        name: "Gateway API: hosts of a route",
        reader: Reader::Gateway,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            world([route(
                0,
                &[(
                    "hostnames",
                    list(n, |i| format!("h{}.example.com", number(i, n, turn))),
                )],
            )])
        },
    },
    Case {
        name: "Gateway API: backends of a rule",
        reader: Reader::Gateway,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let mut backends = backends(n);
            backends[n / 2]["weight"] = json!(2 + turn);
            world([route(0, &[("rules", json!([{ "backendRefs": backends }]))])])
        },
    },
    Case {
        name: "Gateway API: parents of a route",
        reader: Reader::Gateway,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let parents = list(
                n,
                |i| json!({ "name": "gate", "sectionName": format!("l{}", number(i, n, turn)) }),
            );
            world([route(0, &[("parentRefs", parents)])])
        },
    },
    Case {
        name: "Gateway API: listeners",
        reader: Reader::Gateway,
        size: 100,
        longest: LONG,
        objects: |n, turn| {
            let mut all = world([route(0, &[])]);
            all[0]["spec"]["listeners"] = list(n, |i| {
                let host = format!("*.h{}.example.com", number(i, n, turn));
                json!({ "name": format!("l{i}"), "port": 80, "protocol": "HTTP", "hostname": host })
            });
            all[3]["spec"]["hostnames"] = json!(["*.example.com"]);
            all
        },
    },
    Case {
        name: "Gateway API: ListenerSets",
        reader: Reader::Gateway,
        size: 100,
        longest: LONG,
        objects: |n, turn| {
            let mut all = world((0..n).map(|i| {
                route(
                    i,
                    &[
                        ("parentRefs", json!([{ "group": GROUP, "kind": "ListenerSet", "name": format!("s{i}") }])),
                        ("hostnames", json!([format!("a.h{}.example.com", number(i, n, turn))])),
                    ],
                )
            }));
            all.extend((0..n).map(|i| {
                let host = format!("*.h{}.example.com", number(i, n, turn));
                object(
                    GROUP,
                    "ListenerSet",
                    &format!("s{i}"),
                    json!({
                        "parentRef": { "group": GROUP, "kind": "Gateway", "name": "gate" },
                        "listeners": [{ "name": "l", "port": 80, "protocol": "HTTP", "hostname": host }],
                    }),
                )
            }));
            all
        },
    },
    Case {
        name: "Gateway API: BackendTLSPolicies, and as many routes",
        reader: Reader::Gateway,
        size: 100,
        longest: LONG,
        objects: |n, turn| {
            let mut all = world((0..n).map(|i| {
                let to = json!([{ "name": format!("b{i}"), "port": 80 }]);
                route(
                    i,
                    &[
                        (
                            "hostnames",
                            json!([format!("h{}.example.com", number(i, n, turn))]),
                        ),
                        ("rules", json!([{ "backendRefs": to }])),
                    ],
                )
            }));
            all.extend((0..n).map(|i| service(&format!("b{i}"), 2 + i)));
            all.extend((0..n).map(|i| {
                object(
                    GROUP,
                    "BackendTLSPolicy",
                    &format!("p{i}"),
                    json!({
                        "targetRefs": [{ "group": "", "kind": "Service", "name": format!("b{i}") }],
                        "validation": { "hostname": "a.example.com", "wellKnownCACertificates": "System" },
                    }),
                )
            }));
            all
        },
    },
];

/// A Gateway, its Service, a backend, and these routes.
fn world(routes: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let gateway = json!({
        "gatewayClassName": "istio", "addresses": [{ "type": "Hostname", "value": "gate.shop.svc.cluster.local" }],
        "allowedListeners": { "namespaces": { "from": "All" } },
        "listeners": [{ "name": "l0", "port": 80, "protocol": "HTTP" }],
    });
    let mut front = service("gate", 0);
    front["spec"]["selector"] = json!({ "app": "gate" });
    let mut all = vec![
        object(GROUP, "Gateway", "gate", gateway),
        front,
        service("backend", 1),
    ];
    all.extend(routes);

    let mut pod = object(
        "",
        "Pod",
        "reader",
        json!({ "containers": [{ "name": "istio-proxy" }] }),
    );

    pod["metadata"]["labels"] = json!({ "app": "gate" });
    pod["status"] = json!({ "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }],
        "conditions": [{ "type": "Ready", "status": "True" }] });
    all.push(pod);

    all
}

fn service(name: &str, n: usize) -> Value {
    let ports = json!([{ "name": "http", "port": 80, "targetPort": 80, "protocol": "TCP" }]);
    object(
        "",
        "Service",
        name,
        json!({ "clusterIP": format!("172.16.{}.{}", n >> 8, n & 255), "ports": ports }),
    )
}

/// An HTTPRoute for all hosts of the Gateway, with these fields replaced.
fn route(n: usize, fields: &[(&str, Value)]) -> Value {
    let mut spec =
        json!({ "parentRefs": [{ "name": "gate" }], "rules": [{ "backendRefs": backends(1) }] });
    for (name, value) in fields {
        spec[*name] = value.clone();
    }
    object(GROUP, "HTTPRoute", &format!("r{n}"), spec)
}

/// A rule that matches a path.
fn rule(n: usize) -> Value {
    json!({ "matches": [{ "path": { "type": "PathPrefix", "value": format!("/p{n}") } }], "backendRefs": backends(1) })
}

/// The backend, repeated `n` times.
fn backends(n: usize) -> Value {
    list(n, |_| json!({ "name": "backend", "port": 80 }))
}

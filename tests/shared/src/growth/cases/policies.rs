//! Lists of policies, scopes and patches.

#![allow(
    clippy::indexing_slicing,
    reason = "test code: it indexes only what it has built"
)]

use serde_json::{Value, json};

use super::{
    Case, LONG, Reader, beside_web, entry, list, networking, number, object, patch, security, web,
};

/// One case for each list of these kinds.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "Sidecar: egress hosts",
        reader: Reader::Sidecar,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let mut hosts: Vec<String> = (0..n)
                .map(|i| format!("*/h{}.example.com", number(i, n, turn)))
                .collect();
            hosts.push("./*".to_owned());
            vec![
                entry(&[("hosts", list(n, |i| format!("h{i}.example.com")))]),
                networking(
                    "Sidecar",
                    "default",
                    json!({ "egress": [{ "hosts": hosts }] }),
                ),
            ]
        },
    },
    Case {
        name: "Sidecar: egress listeners",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let listener = |i: usize| json!({ "port": { "number": 1000 + number(i, n, turn), "protocol": "HTTP", "name": format!("http-{i}") }, "hosts": ["./*"] });
            vec![
                entry(&[]),
                networking("Sidecar", "default", json!({ "egress": list(n, listener) })),
            ]
        },
    },
    Case {
        name: "Sidecar: ingress listeners",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let listener = |i: usize| json!({ "port": { "number": 1000 + number(i, n, turn), "protocol": "HTTP", "name": format!("http-{i}") }, "defaultEndpoint": format!("127.0.0.1:{}", 1000 + i) });
            beside_web(networking(
                "Sidecar",
                "default",
                json!({ "ingress": list(n, listener), "egress": [{ "hosts": ["./*"] }] }),
            ))
        },
    },
    Case {
        name: "AuthorizationPolicy: rules",
        reader: Reader::Sidecar,
        size: 500,
        longest: LONG,
        objects: |n, turn| {
            let rule = |i: usize| json!({ "to": [{ "operation": { "paths": [format!("/p{}", number(i, n, turn))] } }] });
            beside_web(security(
                "AuthorizationPolicy",
                "list",
                json!({ "rules": list(n, rule) }),
            ))
        },
    },
    Case {
        name: "AuthorizationPolicy: principals",
        reader: Reader::Sidecar,
        size: 500,
        longest: LONG,
        objects: |n, turn| {
            let principals = list(n, |i| {
                format!("cluster.local/ns/shop/sa/a{}", number(i, n, turn))
            });
            beside_web(security(
                "AuthorizationPolicy",
                "list",
                json!({ "rules": [{ "from": [{ "source": { "principals": principals } }] }] }),
            ))
        },
    },
    Case {
        name: "AuthorizationPolicy: conditions",
        reader: Reader::Sidecar,
        size: 500,
        longest: LONG,
        objects: |n, turn| {
            let when = list(
                n,
                |i| json!({ "key": format!("request.headers[h{i}]"), "values": [format!("v{}", number(i, n, turn))] }),
            );
            beside_web(security(
                "AuthorizationPolicy",
                "list",
                json!({ "rules": [{ "when": when }] }),
            ))
        },
    },
    Case {
        name: "AuthorizationPolicies",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let mut all = web();
            all.extend((0..n).map(|i| {
                let rule = json!({ "to": [{ "operation": { "paths": [format!("/p{}", number(i, n, turn))] } }] });
                security("AuthorizationPolicy", &format!("p{i}"), json!({ "rules": [rule] }))
            }));
            all
        },
    },
    Case {
        name: "RequestAuthentication: jwtRules",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let rule = |i: usize| json!({ "issuer": format!("i{}", number(i, n, turn)), "jwksUri": format!("https://keys.example.com/{i}") });
            beside_web(security(
                "RequestAuthentication",
                "list",
                json!({ "jwtRules": list(n, rule) }),
            ))
        },
    },
    Case {
        name: "RequestAuthentications",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let mut all = web();
            all.extend((0..n).map(|i| {
            let rule = json!({ "issuer": format!("i{}", number(i, n, turn)), "jwksUri": format!("https://keys.example.com/{i}") });
            security("RequestAuthentication", &format!("p{i}"), json!({ "jwtRules": [rule] }))
        }));
            all
        },
    },
    Case {
        name: "RequestAuthentication: places of a token",
        reader: Reader::Sidecar,
        size: 500,
        longest: LONG,
        objects: |n, turn| {
            let headers = list(n, |i| json!({ "name": format!("h{}", number(i, n, turn)) }));
            let rule = json!({ "issuer": "i", "jwksUri": "https://keys.example.com/", "fromHeaders": headers });
            beside_web(security(
                "RequestAuthentication",
                "list",
                json!({ "jwtRules": [rule] }),
            ))
        },
    },
    Case {
        name: "PeerAuthentication: ports",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let ports: serde_json::Map<String, Value> = (0..n)
                .map(|i| {
                    (
                        (1000 + number(i, n, turn)).to_string(),
                        json!({ "mode": "STRICT" }),
                    )
                })
                .collect();
            beside_web(security(
                "PeerAuthentication",
                "list",
                json!({ "selector": { "matchLabels": { "app": "web" } }, "portLevelMtls": ports }),
            ))
        },
    },
    Case {
        name: "EnvoyFilter: patches",
        reader: Reader::Sidecar,
        size: 100,
        longest: 1024,
        objects: |n, turn| {
            let patches = list(n, |i| patch(number(i, n, turn)));
            vec![
                entry(&[]),
                networking("EnvoyFilter", "list", json!({ "configPatches": patches })),
            ]
        },
    },
    Case {
        name: "EnvoyFilter: clusters that are added",
        reader: Reader::Sidecar,
        size: 100,
        longest: 1024,
        objects: |n, turn| {
            let patches = list(n, |i| {
                json!({ "applyTo": "CLUSTER", "patch": { "operation": "ADD", "value": {
            "name": format!("c{}", number(i, n, turn)), "type": "STATIC", "connect_timeout": "1s" } } })
            });
            vec![
                entry(&[]),
                networking("EnvoyFilter", "list", json!({ "configPatches": patches })),
            ]
        },
    },
    Case {
        name: "EnvoyFilter: listeners that are added",
        reader: Reader::Sidecar,
        size: 100,
        longest: 1024,
        objects: |n, turn| {
            let patches = list(n, |i| {
                json!({ "applyTo": "LISTENER", "patch": { "operation": "ADD", "value": {
            "name": format!("l{}", number(i, n, turn)),
            "address": { "socket_address": { "address": "127.0.0.1", "port_value": 1000 + i } },
            "filter_chains": [{ "filters": [] }] } } })
            });
            vec![
                entry(&[]),
                networking("EnvoyFilter", "list", json!({ "configPatches": patches })),
            ]
        },
    },
    Case {
        name: "EnvoyFilters",
        reader: Reader::Sidecar,
        size: 100,
        longest: LONG,
        objects: |n, turn| {
            let mut all = vec![entry(&[])];
            all.extend((0..n).map(|i| {
                networking(
                    "EnvoyFilter",
                    &format!("f{i}"),
                    json!({ "configPatches": [patch(number(i, n, turn))] }),
                )
            }));
            all
        },
    },
    Case {
        name: "Telemetry: tags of a metric",
        reader: Reader::Sidecar,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let tags: serde_json::Map<String, Value> = (0..n)
                .map(|i| {
                    (
                        format!("t{}", number(i, n, turn)),
                        json!({ "value": "'x'" }),
                    )
                })
                .collect();
            let metrics = json!([{ "providers": [{ "name": "prometheus" }], "overrides": [{ "tagOverrides": tags }] }]);
            beside_web(object(
                "telemetry.istio.io",
                "Telemetry",
                "list",
                json!({ "metrics": metrics }),
            ))
        },
    },
    Case {
        name: "Telemetry: overrides of metrics",
        reader: Reader::Sidecar,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let overrides = list(
                n,
                |i| json!({ "match": { "customMetric": format!("m{}", number(i, n, turn)) }, "disabled": true }),
            );
            let metrics =
                json!([{ "providers": [{ "name": "prometheus" }], "overrides": overrides }]);
            beside_web(object(
                "telemetry.istio.io",
                "Telemetry",
                "list",
                json!({ "metrics": metrics }),
            ))
        },
    },
    Case {
        name: "Telemetry: access logs",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let logs = list(
                n,
                |i| json!({ "providers": [{ "name": "envoy" }], "filter": { "expression": format!("response.code == {}", 1 + number(i, n, turn)) } }),
            );
            beside_web(object(
                "telemetry.istio.io",
                "Telemetry",
                "list",
                json!({ "accessLogging": logs }),
            ))
        },
    },
];

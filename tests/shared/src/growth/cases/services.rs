//! Lists of services and their endpoints.

#![allow(
    clippy::indexing_slicing,
    reason = "test code: it indexes only what it has built"
)]

use serde_json::json;

use super::{
    Case, LONG, Reader, address, entry, list, networking, number, object, own_service, pod, web,
};

/// One case for each list of these kinds.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "ServiceEntry: hosts",
        reader: Reader::Sidecar,
        size: 400,
        longest: LONG,
        objects: |n, turn| {
            vec![entry(&[(
                "hosts",
                list(n, |i| format!("h{}.example.com", number(i, n, turn))),
            )])]
        },
    },
    Case {
        name: "ServiceEntry: hosts that DNS resolves",
        reader: Reader::Sidecar,
        size: 400,
        longest: LONG,
        objects: |n, turn| {
            let hosts = list(n, |i| format!("h{}.example.com", number(i, n, turn)));
            vec![entry(&[
                ("hosts", hosts),
                ("resolution", json!("DNS")),
                ("endpoints", json!([])),
            ])]
        },
    },
    Case {
        name: "ServiceEntry: hosts with addresses that were allocated",
        reader: Reader::Sidecar,
        size: 400,
        longest: LONG,
        objects: |n, turn| {
            let mut entry = entry(&[(
                "hosts",
                list(n, |i| format!("h{}.example.com", number(i, n, turn))),
            )]);
            let addresses = |i| json!({ "host": format!("h{}.example.com", number(i, n, turn)), "value": address(i) });
            entry["status"] = json!({ "addresses": list(n, addresses) });
            vec![entry]
        },
    },
    Case {
        name: "ServiceEntry: HTTP ports",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            vec![entry(&[(
                "ports",
                list(n, |i| {
                    let i = number(i, n, turn);
                    json!({ "number": 1000 + i, "name": format!("http-{i}"), "protocol": "HTTP" })
                }),
            )])]
        },
    },
    Case {
        name: "ServiceEntry: TCP ports",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            vec![entry(&[
                (
                    "ports",
                    list(n, |i| {
                        let i = number(i, n, turn);
                        json!({ "number": 1000 + i, "name": format!("tcp-{i}"), "protocol": "TCP" })
                    }),
                ),
                ("addresses", json!(["172.20.0.1"])),
            ])]
        },
    },
    Case {
        name: "ServiceEntry: addresses",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let ports = json!([{ "number": 80, "name": "tcp", "protocol": "TCP" }]);
            vec![entry(&[
                ("addresses", list(n, |i| address(number(i, n, turn)))),
                ("ports", ports),
            ])]
        },
    },
    Case {
        name: "ServiceEntry: addresses, HTTP",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            vec![entry(&[(
                "addresses",
                list(n, |i| address(number(i, n, turn))),
            )])]
        },
    },
    Case {
        name: "ServiceEntry: endpoints",
        reader: Reader::Sidecar,
        size: 800,
        longest: LONG,
        objects: |n, turn| {
            vec![entry(&[(
                "endpoints",
                list(n, |i| json!({ "address": address(number(i, n, turn)) })),
            )])]
        },
    },
    Case {
        name: "ServiceEntry: endpoints that DNS resolves",
        reader: Reader::Sidecar,
        size: 800,
        longest: LONG,
        objects: |n, turn| {
            let endpoints = list(
                n,
                |i| json!({ "address": format!("e{}.example.com", number(i, n, turn)) }),
            );
            vec![entry(&[
                ("endpoints", endpoints),
                ("resolution", json!("DNS")),
            ])]
        },
    },
    Case {
        name: "ServiceEntry: endpoints in other places",
        reader: Reader::Sidecar,
        size: 800,
        longest: LONG,
        objects: |n, turn| {
            let endpoint = |i| json!({ "address": address(i), "locality": format!("r/z{}", number(i, n, turn)), "network": format!("n{i}") });
            vec![entry(&[("endpoints", list(n, endpoint))])]
        },
    },
    Case {
        name: "ServiceEntry: ports of the reader's endpoint",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let ports = list(n, |i| {
                let i = number(i, n, turn);
                json!({ "number": 1000 + i, "name": format!("tcp-{i}"), "protocol": "TCP" })
            });
            vec![entry(&[
                ("ports", ports),
                ("endpoints", json!([{ "address": "10.0.0.1" }])),
            ])]
        },
    },
    Case {
        name: "ServiceEntry: hosts of the reader's endpoint",
        reader: Reader::Sidecar,
        size: 400,
        longest: LONG,
        objects: |n, turn| {
            let hosts = list(n, |i| format!("h{}.example.com", number(i, n, turn)));
            vec![entry(&[
                ("hosts", hosts),
                ("endpoints", json!([{ "address": "10.0.0.1" }])),
            ])]
        },
    },
    Case {
        name: "ServiceEntry: exportTo",
        reader: Reader::Sidecar,
        size: 2000,
        longest: LONG,
        objects: |n, turn| {
            let mut spaces: Vec<String> = (0..n)
                .map(|i| format!("ns{}", number(i, n, turn)))
                .collect();
            spaces.push(".".to_owned());
            vec![entry(&[("exportTo", json!(spaces))])]
        },
    },
    Case {
        name: "ServiceEntry: subjectAltNames",
        reader: Reader::Sidecar,
        size: 1000,
        longest: LONG,
        objects: |n, turn| {
            vec![entry(&[(
                "subjectAltNames",
                list(n, |i| format!("spiffe://td/{}", number(i, n, turn))),
            )])]
        },
    },
    Case {
        name: "WorkloadEntries of a ServiceEntry",
        reader: Reader::Sidecar,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let selector = json!({ "labels": { "app": "many" } });
            let mut all = vec![entry(&[
                ("workloadSelector", selector),
                ("endpoints", json!([])),
            ])];
            all.extend((0..n).map(|i| {
                let spec =
                    json!({ "address": address(number(i, n, turn)), "labels": { "app": "many" } });
                networking("WorkloadEntry", &format!("w{i}"), spec)
            }));
            all
        },
    },
    Case {
        name: "pods of a ServiceEntry",
        reader: Reader::Sidecar,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let selector = json!({ "labels": { "app": "many" } });
            let mut all = vec![entry(&[
                ("workloadSelector", selector),
                ("endpoints", json!([])),
            ])];
            all.extend((0..n).map(|i| pod(i, i != n / 2 || turn % 2 == 0)));
            all
        },
    },
    Case {
        name: "ServiceEntries",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            (0..n)
                .map(|i| {
                    let mut one = entry(&[(
                        "hosts",
                        json!([format!("h{}.example.com", number(i, n, turn))]),
                    )]);
                    one["metadata"]["name"] = json!(format!("e{i}"));
                    one
                })
                .collect()
        },
    },
    Case {
        name: "ServiceEntries of one host",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            (0..n)
                .map(|i| {
                    let mut one = entry(&[(
                        "endpoints",
                        json!([{ "address": address(number(i, n, turn)) }]),
                    )]);
                    one["metadata"]["name"] = json!(format!("e{i}"));
                    one
                })
                .collect()
        },
    },
    Case {
        name: "ServiceEntries of one address",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            (0..n)
                .map(|i| {
                    let ports = json!([{ "number": 90, "name": "tcp", "protocol": "TCP" }]);
                    let host = json!([format!("h{}.example.com", number(i, n, turn))]);
                    let mut one = entry(&[
                        ("hosts", host),
                        ("ports", ports),
                        ("endpoints", json!([{ "address": "10.0.0.1" }])),
                    ]);
                    one["metadata"]["name"] = json!(format!("e{i}"));
                    one
                })
                .collect()
        },
    },
    Case {
        name: "Service: ports",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            own_service(list(n, |i| {
                let i = number(i, n, turn);
                json!({ "name": format!("http-{i}"), "port": 1000 + i, "targetPort": 1000 + i, "protocol": "TCP" })
            }))
        },
    },
    Case {
        name: "ExternalName Services, one behind the other",
        reader: Reader::Sidecar,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            (0..n).map(|i| {
            let next = if i == n - 1 { format!("end{}.example.com", turn % 2) } else { format!("s{}.shop.svc.cluster.local", i + 1) };
            object("", "Service", &format!("s{i}"), json!({ "type": "ExternalName", "externalName": next, "ports": [{ "name": "http", "port": 80 }] }))
        }).collect()
        },
    },
    Case {
        name: "Services",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            (0..n).map(|i| {
            let spec = json!({ "clusterIP": address(number(i, n, turn)), "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }] });
            object("", "Service", &format!("s{i}"), spec)
        }).collect()
        },
    },
    Case {
        name: "Services that select the reader",
        reader: Reader::Sidecar,
        size: 100,
        longest: LONG,
        objects: |n, turn| {
            let mut all = web();
            all.extend((0..n).map(|i| {
            let port = json!({ "name": "http", "port": 2000 + number(i, n, turn), "targetPort": 2000 + i, "protocol": "TCP" });
            object("", "Service", &format!("s{i}"), json!({ "clusterIP": address(i), "selector": { "app": "web" }, "ports": [port] }))
        }));
            all
        },
    },
    Case {
        name: "EndpointSlice: endpoints",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let endpoint = |i: usize| {
                json!({ "addresses": [address(i)], "conditions": { "ready": i != n / 2 || turn % 2 == 0 },
            "targetRef": { "kind": "Pod", "namespace": "shop", "name": format!("pod-{i}") } })
            };
            let mut all = vec![object(
                "",
                "Service",
                "many",
                json!({ "clusterIP": "172.16.0.2", "selector": { "app": "many" }, "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }] }),
            )];
            all.extend((0..n).map(|i| pod(i, true)));
            all.push(json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": "many-1", "namespace": "shop", "labels": { "kubernetes.io/service-name": "many" } },
            "endpoints": list(n, endpoint), "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }] }));
            all
        },
    },
];

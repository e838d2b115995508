//! Lists of routes, rules and gateways.

#![allow(
    clippy::indexing_slicing,
    reason = "test code: it indexes only what it has built"
)]

use serde_json::{Value, json};

use super::{
    Case, LONG, Reader, address, entry, gateway, list, networking, number, route, rule,
    virtual_service,
};

/// One case for each list of these kinds.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "VirtualService: hosts",
        reader: Reader::Sidecar,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let hosts = list(n, |i| format!("h{}.example.com", number(i, n, turn)));
            virtual_service(&[("hosts", hosts)])
        },
    },
    Case {
        name: "VirtualService: hosts of services",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let hosts = list(n, |i| format!("h{}.example.com", number(i, n, turn)));
            let mut all = virtual_service(&[("hosts", hosts.clone())]);
            all[0] = entry(&[("hosts", hosts)]);
            all
        },
    },
    Case {
        name: "VirtualService: http",
        reader: Reader::Sidecar,
        size: 500,
        longest: LONG,
        objects: |n, turn| {
            virtual_service(&[(
                "http",
                list(n, |i| route(&format!("/p{}/", number(i, n, turn)))),
            )])
        },
    },
    Case {
        name: "VirtualService: http routes that hide each other",
        reader: Reader::Sidecar,
        size: 500,
        longest: LONG,
        objects: |n, turn| {
            virtual_service(&[(
                "http",
                list(n, |i| route(&format!("/p{}", number(i, n, turn)))),
            )])
        },
    },
    Case {
        name: "VirtualService: equal http routes",
        reader: Reader::Sidecar,
        size: 500,
        longest: LONG,
        objects: |n, turn| {
            virtual_service(&[(
                "http",
                list(n, |i| {
                    route(if i == n / 2 && turn % 2 == 1 {
                        "/a"
                    } else {
                        "/b"
                    })
                }),
            )])
        },
    },
    Case {
        name: "VirtualService: matches of a route",
        reader: Reader::Sidecar,
        size: 500,
        longest: LONG,
        objects: |n, turn| {
            let found = list(
                n,
                |i| json!({ "uri": { "exact": format!("/p{}", number(i, n, turn)) } }),
            );
            let route = json!({ "match": found, "route": [{ "destination": { "host": "a.example.com" } }] });
            virtual_service(&[("http", json!([route]))])
        },
    },
    Case {
        name: "VirtualService: headers of a match",
        reader: Reader::Sidecar,
        size: 500,
        longest: LONG,
        objects: |n, turn| {
            let headers: serde_json::Map<String, Value> = (0..n)
                .map(|i| (format!("h{}", number(i, n, turn)), json!({ "exact": "x" })))
                .collect();
            let route = json!({ "match": [{ "headers": headers }], "route": [{ "destination": { "host": "a.example.com" } }] });
            virtual_service(&[("http", json!([route]))])
        },
    },
    Case {
        name: "VirtualService: destinations",
        reader: Reader::Sidecar,
        size: 400,
        longest: LONG,
        objects: |n, turn| {
            let to = list(
                n,
                |i| json!({ "destination": { "host": format!("h{}.example.com", number(i, n, turn)) }, "weight": 1 }),
            );
            virtual_service(&[("http", json!([{ "route": to }]))])
        },
    },
    Case {
        name: "VirtualService: headers that a route sets",
        reader: Reader::Sidecar,
        size: 500,
        longest: LONG,
        objects: |n, turn| {
            let set: serde_json::Map<String, Value> = (0..n)
                .map(|i| (format!("h{}", number(i, n, turn)), json!("x")))
                .collect();
            let route = json!({ "headers": { "request": { "set": set } }, "route": [{ "destination": { "host": "a.example.com" } }] });
            virtual_service(&[("http", json!([route]))])
        },
    },
    Case {
        name: "VirtualService: tcp",
        reader: Reader::Sidecar,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let tcp = list(n, |i| {
                json!({
                    "match": [{ "destinationSubnets": [address(number(i, n, turn))] }],
                    "route": [{ "destination": { "host": "a.example.com" } }],
                })
            });
            let mut all = virtual_service(&[("http", json!([])), ("tcp", tcp)]);
            all[0] = entry(&[
                (
                    "ports",
                    json!([{ "number": 80, "name": "tcp", "protocol": "TCP" }]),
                ),
                ("addresses", json!(["172.20.0.1"])),
            ]);
            all
        },
    },
    Case {
        name: "VirtualService: tls",
        reader: Reader::Sidecar,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let hosts = list(n, |i| format!("h{}.example.com", number(i, n, turn)));
            let tls = list(n, |i| {
                json!({
                    "match": [{ "sniHosts": [hosts[i]], "port": 443 }],
                    "route": [{ "destination": { "host": "h0.example.com" } }],
                })
            });
            let mut all = virtual_service(&[("hosts", hosts), ("http", json!([])), ("tls", tls)]);
            all[0] = entry(&[
                ("hosts", json!(["h0.example.com"])),
                (
                    "ports",
                    json!([{ "number": 443, "name": "tls", "protocol": "TLS" }]),
                ),
            ]);
            all
        },
    },
    Case {
        name: "VirtualService: sniHosts",
        reader: Reader::Sidecar,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let hosts = list(n, |i| format!("h{}.example.com", number(i, n, turn)));
            let tls = json!([{ "match": [{ "sniHosts": hosts, "port": 443 }], "route": [{ "destination": { "host": "h0.example.com" } }] }]);
            let mut all = virtual_service(&[("hosts", hosts), ("http", json!([])), ("tls", tls)]);
            all[0] = entry(&[
                ("hosts", json!(["h0.example.com"])),
                (
                    "ports",
                    json!([{ "number": 443, "name": "tls", "protocol": "TLS" }]),
                ),
            ]);
            all
        },
    },
    Case {
        name: "VirtualService: gateways",
        reader: Reader::Sidecar,
        size: 1000,
        longest: LONG,
        objects: |n, turn| {
            let mut gateways: Vec<String> = (0..n)
                .map(|i| format!("shop/g{}", number(i, n, turn)))
                .collect();
            gateways.push("mesh".to_owned());
            virtual_service(&[("gateways", json!(gateways))])
        },
    },
    Case {
        name: "VirtualService: exportTo",
        reader: Reader::Sidecar,
        size: 1000,
        longest: LONG,
        objects: |n, turn| {
            let mut spaces: Vec<String> = (0..n)
                .map(|i| format!("ns{}", number(i, n, turn)))
                .collect();
            spaces.push(".".to_owned());
            virtual_service(&[("exportTo", json!(spaces))])
        },
    },
    Case {
        name: "VirtualService: delegates",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let http = list(
                n,
                |i| json!({ "match": [{ "uri": { "prefix": format!("/p{i}/") } }], "delegate": { "name": format!("d{i}") } }),
            );
            let mut all = virtual_service(&[("http", http)]);
            all.extend((0..n).map(|i| {
                let inner = route(&format!("/p{i}/{}", number(i, n, turn)));
                networking(
                    "VirtualService",
                    &format!("d{i}"),
                    json!({ "http": [inner] }),
                )
            }));
            all
        },
    },
    Case {
        name: "VirtualServices",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let mut all = vec![entry(&[(
                "hosts",
                list(n, |i| format!("h{i}.example.com")),
            )])];
            all.extend((0..n).map(|i| {
            let http = json!([{ "timeout": format!("{}s", 1 + number(i, n, turn)), "route": [{ "destination": { "host": "h0.example.com" } }] }]);
            networking("VirtualService", &format!("v{i}"), json!({ "hosts": [format!("h{i}.example.com")], "http": http }))
        }));
            all
        },
    },
    Case {
        name: "VirtualServices of one host",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let mut all = vec![entry(&[])];
            all.extend((0..n).map(|i| {
                let spec = json!({ "hosts": ["a.example.com"], "http": [route(&format!("/p{}", number(i, n, turn)))] });
                networking("VirtualService", &format!("v{i}"), spec)
            }));
            all
        },
    },
    Case {
        name: "DestinationRule: subsets",
        reader: Reader::Sidecar,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            rule(&[(
                "subsets",
                list(
                    n,
                    |i| json!({ "name": format!("s{}", number(i, n, turn)), "labels": { "v": format!("{i}") } }),
                ),
            )])
        },
    },
    Case {
        name: "DestinationRule: exportTo",
        reader: Reader::Sidecar,
        size: 1000,
        longest: LONG,
        objects: |n, turn| {
            let mut spaces: Vec<String> = (0..n)
                .map(|i| format!("ns{}", number(i, n, turn)))
                .collect();
            spaces.push(".".to_owned());
            rule(&[("exportTo", json!(spaces))])
        },
    },
    Case {
        name: "DestinationRule: port levels",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let levels = list(
                n,
                |i| json!({ "port": { "number": 1000 + i }, "connectionPool": { "tcp": { "maxConnections": 1 + number(i, n, turn) } } }),
            );
            let mut all = rule(&[("trafficPolicy", json!({ "portLevelSettings": levels }))]);
            all[0] = entry(&[(
                "ports",
                list(
                    n,
                    |i| json!({ "number": 1000 + i, "name": format!("http-{i}"), "protocol": "HTTP" }),
                ),
            )]);
            all
        },
    },
    Case {
        name: "DestinationRule: localities",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let to = |i: usize| json!({ "from": format!("r{i}"), "to": format!("q{}", number(i, n, turn)) });
            let policy = json!({ "loadBalancer": { "localityLbSetting": { "failover": list(n, to) } },
            "outlierDetection": { "consecutive5xxErrors": 1 } });
            rule(&[("trafficPolicy", policy)])
        },
    },
    Case {
        name: "DestinationRules of one host",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let mut all = vec![entry(&[])];
            all.extend((0..n).map(|i| {
                let subset =
                    json!({ "name": format!("s{}", number(i, n, turn)), "labels": { "v": "1" } });
                networking(
                    "DestinationRule",
                    &format!("d{i}"),
                    json!({ "host": "a.example.com", "subsets": [subset] }),
                )
            }));
            all
        },
    },
    Case {
        name: "Gateway: servers",
        reader: Reader::Gateway,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            gateway(list(n, |i| {
                let i = number(i, n, turn);
                json!({ "port": { "number": 1000 + i, "name": format!("http-{i}"), "protocol": "HTTP" }, "hosts": ["*"] })
            }))
        },
    },
    Case {
        name: "Gateway: servers of one port",
        reader: Reader::Gateway,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            gateway(list(n, |i| {
                json!({
                    "port": { "number": 80, "name": format!("http-{i}"), "protocol": "HTTP" },
                    "hosts": [format!("h{}.example.com", number(i, n, turn))],
                })
            }))
        },
    },
    Case {
        name: "Gateway: TLS servers of one port",
        reader: Reader::Gateway,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            gateway(list(n, |i| {
                json!({
                    "port": { "number": 443, "name": format!("https-{i}"), "protocol": "HTTPS" },
                    "hosts": [format!("h{}.example.com", number(i, n, turn))],
                    "tls": { "mode": "SIMPLE", "credentialName": format!("c{i}") },
                })
            }))
        },
    },
    Case {
        name: "Gateway: hosts",
        reader: Reader::Gateway,
        size: 400,
        longest: LONG,
        objects: |n, turn| {
            let hosts = list(n, |i| format!("h{}.example.com", number(i, n, turn)));
            gateway(
                json!([{ "port": { "number": 80, "name": "http", "protocol": "HTTP" }, "hosts": hosts }]),
            )
        },
    },
    Case {
        name: "Gateway: hosts, and as many of the VirtualService",
        reader: Reader::Gateway,
        size: 300,
        longest: LONG,
        objects: |n, turn| {
            let hosts = list(n, |i| format!("h{}.example.com", number(i, n, turn)));
            let mut all = gateway(
                json!([{ "port": { "number": 80, "name": "http", "protocol": "HTTP" }, "hosts": hosts.clone() }]),
            );
            all[1]["spec"]["hosts"] = hosts;
            all
        },
    },
    Case {
        name: "Gateways of one port",
        reader: Reader::Gateway,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let mut all = virtual_service(&[
                ("gateways", list(n, |i| format!("g{i}"))),
                ("hosts", json!(["*"])),
            ]);
            all.extend((0..n).map(|i| {
            let server = json!({ "port": { "number": 80, "name": "http", "protocol": "HTTP" }, "hosts": [format!("h{}.example.com", number(i, n, turn))] });
            networking("Gateway", &format!("g{i}"), json!({ "selector": { "app": "gate" }, "servers": [server] }))
        }));
            all
        },
    },
    Case {
        name: "VirtualServices of a gateway",
        reader: Reader::Gateway,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let mut all = gateway(
                json!([{ "port": { "number": 80, "name": "http", "protocol": "HTTP" }, "hosts": ["*"] }]),
            );
            all.extend((0..n).map(|i| {
            let spec = json!({ "hosts": [format!("h{}.example.com", number(i, n, turn))], "gateways": ["list"], "http": [route("/a")] });
            networking("VirtualService", &format!("v{i}"), spec)
        }));
            all
        },
    },
    Case {
        name: "VirtualService of a gateway: tls",
        reader: Reader::Gateway,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let hosts = list(n, |i| format!("h{}.example.com", number(i, n, turn)));
            let tls = list(
                n,
                |i| json!({ "match": [{ "sniHosts": [hosts[i]] }], "route": [{ "destination": { "host": "a.example.com" } }] }),
            );
            let mut all = gateway(
                json!([{ "port": { "number": 443, "name": "tls", "protocol": "TLS" }, "hosts": ["*.example.com"], "tls": { "mode": "PASSTHROUGH" } }]),
            );
            all[1]["spec"]["hosts"] = hosts;
            all[1]["spec"]["http"] = json!([]);
            all[1]["spec"]["tls"] = tls;
            all
        },
    },
    Case {
        name: "VirtualService: wildcard hosts, and as many services",
        reader: Reader::Sidecar,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let wildcards = list(n, |i| format!("*.h{}.example.com", number(i, n, turn)));
            let mut all = virtual_service(&[("hosts", wildcards)]);
            all[0] = entry(&[("hosts", list(n, |i| format!("s.h{i}.example.com")))]);
            all
        },
    },
    Case {
        name: "Gateway: servers, and as many VirtualServices",
        reader: Reader::Gateway,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let host = |i: usize| format!("h{}.example.com", number(i, n, turn));
            let mut all = gateway(list(
                n,
                |i| json!({ "port": { "number": 80, "name": format!("http-{i}"), "protocol": "HTTP" }, "hosts": [host(i)] }),
            ));
            all.extend((0..n).map(|i| {
                let spec =
                    json!({ "hosts": [host(i)], "gateways": ["list"], "http": [route("/a")] });
                networking("VirtualService", &format!("v{i}"), spec)
            }));
            all
        },
    },
    Case {
        name: "Gateway: hosts of a TLS server, and as many VirtualServices with tls",
        reader: Reader::Gateway,
        size: 200,
        longest: LONG,
        objects: |n, turn| {
            let host = |i: usize| format!("h{}.example.com", number(i, n, turn));
            let mut all = gateway(
                json!([{ "port": { "number": 443, "name": "tls", "protocol": "TLS" }, "hosts": list(n, host), "tls": { "mode": "PASSTHROUGH" } }]),
            );
            all.extend((0..n).map(|i| {
                let tls = json!([{ "match": [{ "sniHosts": [host(i)] }], "route": [{ "destination": { "host": "a.example.com" } }] }]);
                let spec = json!({ "hosts": [host(i)], "gateways": ["list"], "tls": tls });
                networking("VirtualService", &format!("v{i}"), spec)
            }));
            all
        },
    },
];

//! Servers that can share a port.

use super::*;
use navarch_api::istio::{Port, ServerTlsMode, ServerTlsSettings};

fn server(number: u32, protocol: &str, host: &str) -> Server {
    Server {
        port: Some(Port {
            number,
            protocol: protocol.to_owned(),
            name: "port".to_owned(),
            target_port: 0,
        }),
        hosts: vec![host.to_owned()],
        ..Server::default()
    }
}

fn tls(number: u32, protocol: &str, host: &str, mode: ServerTlsMode) -> Server {
    let tls = Some(ServerTlsSettings {
        mode,
        ..ServerTlsSettings::default()
    });
    Server {
        tls,
        ..server(number, protocol, host)
    }
}

/// The server bound to one address.
fn bound(bind: &str, server: Server) -> Server {
    Server {
        bind: bind.to_owned(),
        ..server
    }
}

/// The plan of Gateways `edge/<name>`, the oldest first.
fn plan(gateways: &[(&str, &[Server])]) -> Plan {
    let mut merger = Merger::default();
    for (name, servers) in gateways {
        let ports = PortTranslation::FirstOrSame(Arc::default());
        merger.add_gateway(&NamespacedName::new("edge", name), servers, &ports);
    }
    merger.plan
}

/// Port, bind and protocol of each group, and the Gateways of its servers.
fn shape(plan: &Plan) -> Vec<String> {
    let describe = |group: &ServerGroup| {
        let GroupKey {
            port,
            protocol,
            bind,
        } = &group.key;
        let servers: Vec<&str> = group
            .servers
            .iter()
            .map(|server| &*server.gateway.name)
            .collect();
        format!("{bind}:{port} {} {}", protocol.as_str(), servers.join(","))
    };
    plan.groups.iter().map(describe).collect()
}

#[test]
fn http_servers_share_a_port_and_its_routes() {
    let plan = plan(&[
        ("a", &[server(80, "HTTP", "a")]),
        ("b", &[server(80, "GRPC", "b"), server(80, "HTTP", "c")]),
    ]);
    assert_eq!(shape(&plan), [":80 HTTP a,b,b"]);
    assert_eq!(plan.routes.get("http.80").map(Vec::len), Some(3));
}

#[test]
fn a_conflicting_server_loses_to_the_older_one() {
    let http_first = plan(&[
        ("a", &[server(80, "HTTP", "a")]),
        ("b", &[server(80, "TCP", "b")]),
    ]);
    assert_eq!(shape(&http_first), [":80 HTTP a"]);
    let tcp_first = plan(&[
        ("a", &[server(80, "TCP", "a")]),
        ("b", &[server(80, "HTTP", "b")]),
        (
            "c",
            &[
                server(80, "TCP", "c"),
                tls(80, "HTTPS", "c", ServerTlsMode::Simple),
            ],
        ),
    ]);

    assert_eq!(shape(&tcp_first), [":80 TCP a"]);
    assert!(tcp_first.routes.is_empty());
}

#[test]
fn another_address_is_another_port() {
    let plan = plan(&[
        ("a", &[bound("10.0.0.1", server(80, "TCP", "a"))]),
        (
            "b",
            &[
                bound("10.0.0.2", server(80, "TCP", "b")),
                bound("10.0.0.3", server(80, "HTTP", "b")),
            ],
        ),
    ]);

    assert_eq!(
        shape(&plan),
        [
            "10.0.0.1:80 TCP a",
            "10.0.0.2:80 TCP b",
            "10.0.0.3:80 HTTP b"
        ]
    );
}

#[test]
fn servers_with_tls_share_a_port_unless_a_host_is_repeated() {
    let plan = plan(&[
        (
            "a",
            &[
                tls(443, "HTTPS", "a", ServerTlsMode::Simple),
                tls(443, "HTTPS", "b", ServerTlsMode::Passthrough),
            ],
        ),
        (
            "b",
            &[
                tls(443, "HTTPS", "a", ServerTlsMode::Simple),
                tls(443, "TLS", "c", ServerTlsMode::Simple),
            ],
        ),
    ]);

    assert_eq!(shape(&plan), [":443 HTTPS a,a", ":443 TLS b"]);
    assert_eq!(
        plan.routes.keys().collect::<Vec<_>>(),
        ["https.443.port.a.edge"]
    );
}

#[test]
fn the_same_host_may_be_repeated_on_another_address() {
    let server = || tls(443, "HTTPS", "a", ServerTlsMode::Simple);
    let plan = plan(&[(
        "a",
        &[bound("10.0.0.1", server()), bound("10.0.0.2", server())],
    )]);
    assert_eq!(
        shape(&plan),
        ["10.0.0.1:443 HTTPS a", "10.0.0.2:443 HTTPS a"]
    );
    assert_eq!(plan.routes.len(), 2);
}

#[test]
fn only_the_last_address_of_a_host_counts() {
    let server = || tls(443, "HTTPS", "a", ServerTlsMode::Simple);
    let plan = plan(&[
        ("a", &[server(), bound("10.0.0.1", server())]),
        ("b", &[server()]),
        ("c", &[server()]),
    ]);
    assert_eq!(shape(&plan), [":443 HTTPS a,b", "10.0.0.1:443 HTTPS a"]);
}

#[test]
fn a_redirect_to_https_claims_its_host_as_tls_does() {
    let redirect = || tls(80, "HTTP", "a", ServerTlsMode::Passthrough);
    let plan = plan(&[
        ("a", &[redirect()]),
        ("b", &[redirect(), server(80, "HTTP", "a")]),
    ]);
    assert_eq!(shape(&plan), [":80 HTTP a,b"]);
}

#[test]
fn https_servers_are_served_over_quic_if_udp_is_accepted() {
    let target = |port| super::super::selection::TargetPort::for_udp(port);
    let ports = PortTranslation::Services(vec![target(443), target(80)]);
    let servers = [
        tls(443, "HTTPS", "a", ServerTlsMode::Simple),
        tls(443, "HTTPS", "a", ServerTlsMode::Simple),
        tls(443, "HTTPS", "b", ServerTlsMode::Passthrough),
        tls(443, "TLS", "c", ServerTlsMode::Simple),
        server(80, "HTTP", "d"),
    ];

    let quic = |on| {
        let mut merger = Merger {
            quic: on,
            ..Merger::default()
        };
        merger.add_gateway(&NamespacedName::new("edge", "a"), &servers, &ports);
        merger
            .plan
            .quic
            .iter()
            .map(|group| group.servers.len())
            .collect::<Vec<_>>()
    };

    assert_eq!(
        quic(true),
        [1],
        "neither the replaced server, nor one that does not terminate TLS for HTTP"
    );
    assert!(quic(false).is_empty());
}

//! Settings of the proxy config that the recorded bootstraps of `tests/agent_parity` do not have.

use std::net::{IpAddr, Ipv4Addr};

use super::*;

/// What `read` makes of the bootstrap's input with this proxy config.
fn with_config<T>(config: &ProxyConfig, read: impl FnOnce(&BootstrapInput<'_>) -> T) -> T {
    let node = Node {
        id: "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local".to_owned(),
        locality: node::Locality::parse("r/z"),
        ..Node::default()
    };
    let addresses = Addresses(vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))]);
    let settings = Settings::default();
    read(&BootstrapInput {
        node: &node,
        addresses: &addresses,
        config,
        settings: &settings,
    })
}

#[test]
fn metrics_are_sent_to_statsd_and_to_the_metrics_service() {
    let config = ProxyConfig {
        statsd_udp_address: "10.0.0.9:8125".to_owned(),
        envoy_metrics_service_address: "metrics.example:9000".to_owned(),
        ..ProxyConfig::istio_defaults()
    };
    let made = with_config(&config, |input| bootstrap(input).unwrap());

    let sinks = made["stats_sinks"].as_array().unwrap();
    let names: Vec<_> = sinks.iter().map(|sink| &sink["name"]).collect();
    let wanted = [
        "envoy.stat_sinks.metrics_service",
        "envoy.stat_sinks.statsd",
    ];
    assert_eq!(names, wanted);
    let statsd = &sinks[1]["typed_config"]["address"]["socket_address"];
    assert_eq!(
        *statsd,
        json!({ "address": "10.0.0.9", "port_value": 8125 })
    );

    let clusters = made["static_resources"]["clusters"].as_array().unwrap();
    let has_service = clusters
        .iter()
        .any(|cluster| cluster["name"] == "envoy_metrics_service");
    assert!(has_service, "{clusters:?}");
}

#[test]
fn without_them_there_are_no_sinks() {
    let config = ProxyConfig::istio_defaults();
    let made = with_config(&config, |input| bootstrap(input).unwrap());
    assert_eq!(made.get("stats_sinks"), None);
}

#[test]
fn a_users_template_has_the_parameters_of_pilot_agent() {
    let template =
        r#"{"id": "{{ .nodeID }}", "zone": "{{ .zone }}", "path": "{{ .config.ConfigPath }}"}"#;
    let config = ProxyConfig::istio_defaults();
    let text = with_config(&config, |input| render(template, input).unwrap());

    let made: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        made["id"],
        "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local"
    );
    assert_eq!(made["zone"], "z");
    assert_eq!(made["path"], "./etc/istio/proxy");

    let broken = with_config(&config, |input| render("{{ .nodeID", input).unwrap_err());
    assert!(matches!(broken, TemplateError::Template(_)), "{broken}");
}

use std::collections::BTreeMap;

use super::*;
use crate::duration::Duration;
use crate::mesh::{ForwardClientCertDetails, OutboundTrafficPolicyMode, TracingServiceName};

fn apply(text: &str) -> MeshConfig {
    let typed = MeshConfig::istio_defaults().apply(text).unwrap();
    assert_eq!(typed.unknown_fields, [""; 0]);
    typed.value
}

#[test]
fn an_empty_text_changes_no_setting() {
    for text in [
        "",
        "\n# nothing\n",
        "---\n",
        "{}",
        "defaultConfig: {}\n",
        "trustDomain: null\ndefaultConfig:\n",
    ] {
        assert_eq!(apply(text), MeshConfig::istio_defaults(), "{text:?}");
    }
}

#[test]
fn defaults_survive_being_written_out_and_read() {
    let defaults = MeshConfig::istio_defaults();
    let text = serde_json::to_string(&defaults).unwrap();
    assert_eq!(MeshConfig::default().apply(&text).unwrap().value, defaults);
}

#[test]
fn a_field_that_is_written_replaces_the_one_below_wholly() {
    let config = apply(
        "outboundTrafficPolicy: {}\ndefault_service_export_to: ['.']\nenableTracing: false\n",
    );
    assert_eq!(
        config.outbound_traffic_policy.unwrap().mode,
        OutboundTrafficPolicyMode::RegistryOnly
    );
    assert_eq!(config.default_service_export_to, ["."]);
    assert!(!config.enable_tracing);
    assert_eq!(config.root_namespace, "istio-system");
}

#[test]
fn proxy_config_is_laid_over_field_by_field() {
    let config = apply("defaultConfig:\n  drain_duration: 10s\n  proxyMetadata: {A: a, B: b}\n");
    let again = config
        .apply("defaultConfig: {proxyMetadata: {B: c}, statusPort: 1}")
        .unwrap()
        .value;
    let expected = ProxyConfig {
        drain_duration: Some(Duration::from_secs(10)),
        proxy_metadata: BTreeMap::from([("A".into(), "a".into()), ("B".into(), "c".into())]),
        status_port: 1,
        ..ProxyConfig::istio_defaults()
    };
    assert_eq!(again.default_config, expected);
}

#[test]
fn naming_the_service_one_way_unsets_the_other() {
    let config = apply("defaultConfig: {tracingServiceName: CANONICAL_NAME_ONLY}").default_config;
    assert_eq!(config.service_cluster, None);
    assert_eq!(
        config.tracing_service_name,
        Some(TracingServiceName::CanonicalNameOnly)
    );
    let config = config.apply("serviceCluster: x").unwrap().value;
    assert_eq!(
        (
            config.service_cluster.as_deref(),
            config.tracing_service_name
        ),
        (Some("x"), None)
    );
}

#[test]
fn unset_proxy_headers_inherit_the_defaults() {
    let config = apply(
        "defaultConfig: {proxyHeaders: {forwardedClientCert: SANITIZE, requestId: {disabled: true}, \
         preserveHttp1HeaderCase: true}}",
    );
    let config = config
        .apply("defaultConfig: {proxyHeaders: {server: {value: x}}}")
        .unwrap()
        .value;
    let headers = config.default_config.proxy_headers.unwrap();
    assert_eq!(
        headers.forwarded_client_cert,
        ForwardClientCertDetails::Sanitize
    );
    assert_eq!(headers.request_id.unwrap().disabled, Some(true));
    assert_eq!(headers.server.unwrap().value, "x");
    assert_eq!(headers.preserve_http1_header_case, None);
}

#[test]
fn providers_are_laid_over_by_name() {
    let config = apply(
        "extensionProviders: [{name: z, zipkin: {service: z, port: 1}}, {name: envoy, prometheus: {}}]",
    );
    let names: Vec<_> = config
        .extension_providers
        .iter()
        .map(|provider| provider.name.as_str())
        .collect();
    assert_eq!(names, ["prometheus", "stackdriver", "envoy", "z"]);

    let envoy = &config.extension_providers[2];
    assert!(envoy.prometheus.is_some() && envoy.envoy_file_access_log.is_none());
    let config = config
        .apply("defaultProviders: {tracing: [z]}")
        .unwrap()
        .value;
    let config = config
        .apply("defaultProviders: {metrics: [prometheus]}")
        .unwrap()
        .value;

    assert_eq!(
        (
            config.default_providers.tracing.len(),
            config.default_providers.metrics.len()
        ),
        (1, 1)
    );
}

#[test]
fn trust_domain_aliases_add_up() {
    let config = apply("trustDomainAliases: [b, c]")
        .apply("trustDomainAliases: [c, a]")
        .unwrap()
        .value;
    assert_eq!(config.trust_domain_aliases, ["a", "b", "c"]);
}

#[test]
fn faults_have_line_and_path_of_the_text() {
    let error = |text| MeshConfig::istio_defaults().apply(text).unwrap_err();
    let wrong =
        error("rootNamespace: a\nextensionProviders:\n- name: z\n  zipkin:\n    port: many\n");
    assert_eq!(
        (wrong.line, wrong.field.path.as_str()),
        (5, "extensionProviders[0].zipkin.port")
    );
    assert_eq!(error("a: b: c").line, 1);
    assert_eq!(error("- a").field.reason, "is not a map of fields");
    assert_eq!(
        error("accessLogEncoding: XML")
            .to_string()
            .matches("TEXT, JSON")
            .count(),
        1
    );
}

#[test]
fn unknown_fields_are_reported_with_their_original_spelling() {
    let typed = MeshConfig::istio_defaults()
        .apply("defaultConfig: {no_such: 1}\nno_such_too: 2\n")
        .unwrap();
    assert_eq!(
        typed.unknown_fields,
        ["defaultConfig.no_such", "no_such_too"]
    );
}

#[test]
fn networks_are_read() {
    let text = "networks: {main: {endpoints: [{fromCidr: 10.0.0.0/8}], gateways: [{address: 1.1.1.1, port: 15443}]}}";
    let networks = MeshNetworks::parse(text).unwrap().value.networks;
    assert_eq!(networks["main"].gateways[0].port, 15443);
    assert_eq!(
        MeshNetworks::parse("").unwrap().value,
        MeshNetworks::default()
    );
}

use super::*;
use crate::mesh::MeshNetworks;
use crate::validation::{Problem, validate_mesh_networks};

/// The fields of errors and warnings when a text overrides the defaults.
fn fields(text: &str) -> (Vec<String>, Vec<String>) {
    let verdict = validate_mesh_config(&MeshConfig::istio_defaults().apply(text).unwrap().value);
    let fields =
        |problems: Vec<Problem>| problems.into_iter().map(|problem| problem.field).collect();
    (fields(verdict.errors), fields(verdict.warnings))
}

/// The field of the only error.
fn error(text: &str) -> String {
    let (mut errors, _) = fields(text);
    assert_eq!(errors.len(), 1, "{text}: {errors:?}");
    errors.remove(0)
}

/// The field of the only warning.
fn warning(text: &str) -> String {
    let (errors, mut warnings) = fields(text);
    assert_eq!(
        (errors.len(), warnings.len()),
        (0, 1),
        "{text}: {errors:?} {warnings:?}"
    );
    warnings.remove(0)
}

#[test]
fn the_defaults_are_valid() {
    assert_eq!(
        validate_mesh_config(&MeshConfig::istio_defaults()),
        Verdict::default()
    );
}

#[test]
fn fields_without_effect_are_named() {
    for (text, field) in [
        (
            "verifyCertificateAtClient: true",
            "verifyCertificateAtClient",
        ),
        ("ca: { address: 'ca.example.com:443' }", "ca"),
        (
            "certificates: [{ secretName: dns.example }]",
            "certificates",
        ),
        (
            "defaultConfig: {discoveryRefreshDelay: 1s}",
            "defaultConfig.discoveryRefreshDelay",
        ),
        (
            "defaultConfig: {zipkinAddress: 'zipkin:9411'}",
            "defaultConfig.zipkinAddress",
        ),
    ] {
        assert_eq!(warning(text), field);
    }
}

#[test]
fn a_configured_zone_causes_no_warning() {
    let (errors, warnings) = fields("defaultConfig: {availabilityZone: a}");
    assert_eq!((errors, warnings), (Vec::new(), Vec::new()));
}

#[test]
fn faults_are_named_by_their_field() {
    let of_mesh = [
        ("proxyListenPort: 0", "proxyListenPort"),
        ("proxyListenPort: -1", "proxyListenPort"),
        ("connectTimeout: 0s", "connectTimeout"),
        ("connectTimeout: 61m", "connectTimeout"),
        ("connectTimeout: 1.0005s", "connectTimeout"),
        ("protocolDetectionTimeout: 1ns", "protocolDetectionTimeout"),
        ("trustDomain: ''", "trustDomain"),
        ("trustDomain: a_b", "trustDomain"),
        ("trustDomainAliases: [a, 'b c']", "trustDomainAliases[1]"),
        (
            "serviceSettings: [{hosts: [a.b, 'a b']}]",
            "serviceSettings[0].hosts[1]",
        ),
        ("meshMTLS: {ecdhCurves: [P-256]}", "meshMTLS.ecdhCurves"),
    ];

    let of_proxies = [
        (
            "defaultConfig: {discoveryAddress: istiod}",
            "defaultConfig.discoveryAddress",
        ),
        (
            "defaultConfig: {discoveryAddress: 'istiod:0'}",
            "defaultConfig.discoveryAddress",
        ),
        (
            "defaultConfig: {discoveryAddress: ''}",
            "defaultConfig.discoveryAddress",
        ),
        (
            "defaultConfig: {discoveryAddress: '::1:15012'}",
            "defaultConfig.discoveryAddress",
        ),
        (
            "defaultConfig: {drainDuration: 1500ms}",
            "defaultConfig.drainDuration",
        ),
        (
            "defaultConfig: {serviceCluster: ''}",
            "defaultConfig.serviceCluster",
        ),
        (
            "defaultConfig: {controlPlaneAuthPolicy: INHERIT}",
            "defaultConfig.controlPlaneAuthPolicy",
        ),
        ("defaultConfig: {statusPort: 0}", "defaultConfig.statusPort"),
        (
            "defaultConfig: {configPath: ''}",
            "defaultConfig.configPath",
        ),
        (
            "defaultConfig: {tracing: {zipkin: {address: x}}}",
            "defaultConfig.tracing.zipkin.address",
        ),
        (
            "defaultConfig: {envoyMetricsService: {address: x}}",
            "defaultConfig.envoyMetricsService.address",
        ),
        (
            "defaultConfig: {privateKeyProvider: {}}",
            "defaultConfig.privateKeyProvider",
        ),
        (
            "defaultConfig: {privateKeyProvider: {qat: {}}}",
            "defaultConfig.privateKeyProvider.qat.pollDelay",
        ),
        (
            "defaultConfig: {connectionSettings: {httpMaxConcurrentStreams: 0}}",
            "defaultConfig.connectionSettings.httpMaxConcurrentStreams",
        ),
        (
            "defaultConfig: {connectionSettings: {httpIdleTimeout: -1s}}",
            "defaultConfig.connectionSettings.httpIdleTimeout",
        ),
    ];

    let of_policies = [
        (
            "defaultTrafficPolicy: {outlierDetection: {maxEjectionPercent: 101}}",
            "defaultTrafficPolicy.outlierDetection.maxEjectionPercent",
        ),
        (
            "defaultInboundHttpRetryPolicy: {backoff: 1s}",
            "defaultInboundHttpRetryPolicy.backoff",
        ),
        (
            "localityLbSetting: {distribute: [{from: a, to: {b: 50}}]}",
            "localityLbSetting.distribute[0].to",
        ),
    ];

    let all = of_mesh.into_iter().chain(of_proxies).chain(of_policies);
    for (text, field) in all {
        assert_eq!(error(text), field, "{text}");
    }
}

#[test]
fn valid_addresses_are_accepted() {
    for address in [
        "istiod.istio-system.svc:15012",
        "10.0.0.1:1",
        "'[::1]:15012'",
        "localhost:80",
    ] {
        assert_eq!(
            fields(&format!("defaultConfig: {{discoveryAddress: {address}}}")).0,
            [""; 0],
            "{address}"
        );
    }
    assert_eq!(
        fields("defaultConfig: {tracing: {zipkin: {address: '$(HOST_IP):9411'}}}").0,
        [""; 0]
    );
}

#[test]
fn harmless_mesh_config_problems_are_warnings() {
    let harmless = [
        ("extensionProviders: [{name: a}]", "extensionProviders[3]"),
        (
            "extensionProviders: [{name: a, zipkin: {service: z, port: 0}}]",
            "extensionProviders[3].zipkin.port",
        ),
        (
            "extensionProviders: [{name: a, zipkin: {port: 1}}]",
            "extensionProviders[3].zipkin.service",
        ),
        (
            "extensionProviders: [{name: a, envoyExtAuthzHttp: {service: a.b, port: 1, statusOnError: '999'}}]",
            "extensionProviders[3].envoyExtAuthzHttp.statusOnError",
        ),
        (
            "tlsDefaults: {ecdhCurves: [P-256, P-257]}",
            "tlsDefaults.ecdhCurves[1]",
        ),
        (
            "tlsDefaults: {ecdhCurves: [P-256, P-256]}",
            "tlsDefaults.ecdhCurves[1]",
        ),
        (
            "defaultInboundHttpRetryPolicy: {attempts: 1, perTryTimeout: 1s}",
            "defaultInboundHttpRetryPolicy.perTryTimeout",
        ),
    ];

    for (text, field) in harmless {
        assert_eq!(warning(text), field, "{text}");
    }
}

#[test]
fn curves_that_proxies_get_are_no_problem() {
    let text = "tlsDefaults: {ecdhCurves: [X25519MLKEM768, MLKEM1024, P-256]}";
    assert_eq!(fields(text), (Vec::new(), Vec::new()));
}

#[test]
fn networks_are_judged() {
    let judge = |network: &str| {
        let networks = MeshNetworks::parse(&format!("networks: {{a: {network}}}"))
            .unwrap()
            .value;
        validate_mesh_networks(&networks)
            .errors
            .into_iter()
            .map(|problem| problem.field)
            .collect::<Vec<_>>()
    };

    let good = "{endpoints: [{fromCidr: 10.0.0.0/8}, {fromRegistry: c1}], gateways: [{address: 1.1.1.1, port: 1}]}";
    assert_eq!(judge(good), [""; 0]);
    assert_eq!(
        judge("{endpoints: [{fromCidr: 10.0.0.0/33}]}"),
        ["networks.a.endpoints[0].fromCidr"]
    );
    assert_eq!(
        judge("{endpoints: [{fromRegistry: 'a b'}]}"),
        ["networks.a.endpoints[0].fromRegistry"]
    );

    assert_eq!(
        judge("{gateways: [{address: 'a b', port: 0}]}"),
        [
            "networks.a.gateways[0].address",
            "networks.a.gateways[0].port"
        ]
    );

    assert_eq!(
        judge("{gateways: [{registryServiceName: '', port: 1}]}"),
        ["networks.a.gateways[0].registryServiceName"]
    );
}

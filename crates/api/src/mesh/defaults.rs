//! Defaults of unset settings, as in istiod's `pkg/config/mesh/mesh.go`.

use super::{
    AuthenticationPolicy, EnvoyFileAccessLogProvider, ExtensionProvider, InboundTrafficPolicy,
    InboundTrafficPolicyMode, IngressControllerMode, MeshConfig, OutboundTrafficPolicy,
    OutboundTrafficPolicyMode, PrometheusMetricsProvider, ProxyConfig, StackdriverProvider,
};
use crate::duration::Duration;
use crate::istio::LocalityLoadBalancerSetting;

impl ProxyConfig {
    /// The default settings of a proxy.
    #[must_use]
    pub fn istio_defaults() -> Self {
        Self {
            config_path: "./etc/istio/proxy".to_owned(),
            binary_path: "/usr/local/bin/envoy".to_owned(),
            service_cluster: Some("istio-proxy".to_owned()),
            drain_duration: Some(Duration::from_secs(45)),
            termination_drain_duration: Some(Duration::from_secs(5)),
            proxy_admin_port: 15000,
            control_plane_auth_policy: AuthenticationPolicy::MutualTls,
            discovery_address: "istiod.istio-system.svc:15012".to_owned(),
            stat_name_length: 189,
            status_port: 15020,
            ..Self::default()
        }
    }
}

impl MeshConfig {
    /// The default settings of the mesh.
    #[must_use]
    pub fn istio_defaults() -> Self {
        let everywhere = || vec!["*".to_owned()];

        Self {
            enable_tracing: true,
            protocol_detection_timeout: Some(Duration::ZERO),
            ingress_service: "istio-ingressgateway".to_owned(),
            ingress_controller_mode: IngressControllerMode::Strict,
            ingress_class: "istio".to_owned(),
            trust_domain: "cluster.local".to_owned(),

            enable_auto_mtls: Some(true),
            outbound_traffic_policy: Some(OutboundTrafficPolicy {
                mode: OutboundTrafficPolicyMode::AllowAny,
                tls: None,
            }),
            inbound_traffic_policy: Some(InboundTrafficPolicy {
                mode: InboundTrafficPolicyMode::Passthrough,
            }),
            locality_lb_setting: Some(LocalityLoadBalancerSetting {
                enabled: Some(true),
                ..Default::default()
            }),

            default_config: ProxyConfig::istio_defaults(),
            root_namespace: "istio-system".to_owned(),

            proxy_listen_port: 15001,
            proxy_inbound_listen_port: 15006,
            connect_timeout: Some(Duration::from_secs(10)),

            default_service_export_to: everywhere(),
            default_virtual_service_export_to: everywhere(),
            default_destination_rule_export_to: everywhere(),

            // Applies after failed lookups only; after a successful lookup, the TTL of the response
            // applies.
            dns_refresh_rate: Some(Duration::from_secs(60)),

            enable_prometheus_merge: Some(true),
            extension_providers: default_providers(),
            ..Self::default()
        }
    }
}

/// The built-in providers.
fn default_providers() -> Vec<ExtensionProvider> {
    let named = |name: &str| ExtensionProvider {
        name: name.to_owned(),
        ..Default::default()
    };

    vec![
        ExtensionProvider {
            prometheus: Some(PrometheusMetricsProvider {}),
            ..named("prometheus")
        },
        ExtensionProvider {
            stackdriver: Some(StackdriverProvider::default()),
            ..named("stackdriver")
        },
        ExtensionProvider {
            envoy_file_access_log: Some(EnvoyFileAccessLogProvider {
                path: "/dev/stdout".to_owned(),
                ..Default::default()
            }),
            ..named("envoy")
        },
    ]
}

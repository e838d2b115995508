//! The values under `global`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Lifecycle, SeccompProfile};
use serde::{Deserialize, Serialize};

use super::{Text, flag};

/// Declares a struct of values with default values for its fields.
macro_rules! values {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
        #[serde(rename_all = "camelCase", default)]
        #[allow(clippy::struct_excessive_bools, reason = "the chart has a separate switch for each")]
        pub(in crate::inject) struct $name {
            $($(#[$field_doc])* pub(in crate::inject) $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

values! {
    /// Settings of the whole installation.
    Global {
        /// The image registry and path.
        hub: Text = "registry.istio.io/release".into();
        /// The image tag.
        tag: Text = "latest".into();
        /// The image variant, such as `distroless`.
        variant: Text = Text::default();
        /// The image pull policy; empty is Kubernetes' default.
        image_pull_policy: Text = Text::default();
        /// Secrets for pulling images.
        image_pull_secrets: Vec<Text> = Vec::new();
        /// Whether logs are JSON.
        #[serde(deserialize_with = "flag")]
        log_as_json: bool = false;
        /// Whether traffic capture uses nftables.
        #[serde(deserialize_with = "flag")]
        native_nftables: bool = false;
        /// Log levels of the agent.
        logging: Logging = Logging::default();
        /// The address of the CA; empty is the control plane.
        ca_address: Text = Text::default();
        /// The type of the CA; `GkeWorkloadCertificate` mounts its certificates.
        ca_name: Text = Text::default();
        /// The namespace of the control plane.
        istio_namespace: Text = "istio-system".into();
        /// The provider of the control plane's certificate.
        pilot_cert_provider: Text = "istiod".into();
        /// The service account tokens of pods.
        sds: Sds = Sds::default();
        /// The security token service of the agent.
        sts: Sts = Sts::default();
        /// Whether certificates from a secret are mounted.
        #[serde(deserialize_with = "flag")]
        mount_mtls_certs: bool = false;
        /// The name of the ConfigMap or ClusterTrustBundle with the root certificates; empty is
        /// Istio's.
        trust_bundle_name: Text = Text::default();
        /// The trust domain if mesh config has none.
        trust_domain: Text = Text::default();
        /// The mesh ID; empty is the trust domain.
        #[serde(rename = "meshID")]
        mesh_id: Text = Text::default();
        /// The network of pods.
        network: Text = Text::default();
        /// Settings for multiple clusters.
        multi_cluster: MultiCluster = MultiCluster::default();
        proxy: Proxy = Proxy::default();
        /// Settings of waypoints.
        waypoint: Waypoint = Waypoint::default();
        /// The platform; `openshift` assigns users and groups to pods.
        platform: Text = Text::default();
        /// The init container that sets up traffic capture.
        #[serde(rename = "proxy_init")]
        proxy_init: ProxyInit = ProxyInit::default();
    }
}

values! {
    /// The values under `global.proxy`.
    Proxy {
        /// The image, or its name in the registry.
        image: Text = "proxyv2".into();
        /// The injection policy.
        auto_inject: Text = "enabled".into();
        /// The DNS domain of the cluster's services.
        cluster_domain: Text = "cluster.local".into();
        /// Log levels of Envoy's components.
        component_log_level: Text = "misc:error".into();
        /// Envoy's log level.
        log_level: Text = "warning".into();
        /// Inbound ports to exclude from capture.
        exclude_inbound_ports: Text = Text::default();
        /// Inbound ports to capture.
        include_inbound_ports: Text = "*".into();
        /// Destination ranges to capture.
        #[serde(rename = "includeIPRanges")]
        include_ip_ranges: Text = "*".into();
        /// Destination ranges to exclude from capture.
        #[serde(rename = "excludeIPRanges")]
        exclude_ip_ranges: Text = Text::default();
        /// Outbound ports to capture for any destination.
        include_outbound_ports: Text = Text::default();
        /// Outbound ports to exclude from capture.
        exclude_outbound_ports: Text = Text::default();
        /// The path of Envoy's outlier log.
        outlier_log_path: Text = Text::default();
        /// Whether the containers are privileged.
        #[serde(deserialize_with = "flag")]
        privileged: bool = false;
        /// Whether the proxy may bind low ports (`NET_BIND_SERVICE`).
        cap_net_bind_service: Text = Text::default();
        /// The seccomp profile of the containers.
        seccomp_profile: Option<SeccompProfile> = None;
        /// The failure threshold of the readiness probe.
        readiness_failure_threshold: Text = "4".into();
        /// The initial delay of the readiness probe, in seconds.
        readiness_initial_delay_seconds: Text = "0".into();
        /// The period of the readiness probe, in seconds.
        readiness_period_seconds: Text = "15".into();
        /// Settings of the startup probe.
        startup_probe: StartupProbe = StartupProbe::default();
        /// Resource requests and limits.
        resources: Resources = Resources::of_chart();
        /// The agent's port.
        status_port: Text = "15020".into();
        /// The type of the tracer.
        tracer: Text = "none".into();
        /// Lifecycle hooks of the proxy container.
        lifecycle: Option<Lifecycle> = None;
        /// Whether the application starts only after the proxy is ready.
        #[serde(deserialize_with = "flag")]
        hold_application_until_proxy_starts: bool = false;
    }
}

values! {
    /// The values under `global.waypoint`; templates read more of them as plain data.
    Waypoint {
        /// Resource requests and limits of the proxy.
        resources: Resources = Resources::of_chart();
    }
}

values! {
    /// The values under `global.proxy_init`.
    ProxyInit {
        /// The image, or its name in the registry.
        image: Text = "proxyv2".into();
        /// Whether rules are applied even if rules exist.
        #[serde(deserialize_with = "flag")]
        force_apply_iptables: bool = false;
    }
}

values! {
    /// The values under `global.proxy.startupProbe`.
    StartupProbe {
        /// Whether the probe is enabled.
        #[serde(deserialize_with = "flag")]
        enabled: bool = true;
        /// The failure threshold of the probe.
        failure_threshold: Text = "600".into();
    }
}

values! {
    /// The values under `global.logging`.
    Logging {
        /// Log levels by scope.
        level: Text = "default:info".into();
    }
}

values! {
    /// The values under `global.sds`.
    Sds {
        /// The service account token of a pod.
        token: Token = Token::default();
    }
}

values! {
    /// The values under `global.sds.token`.
    Token {
        /// The audience of the token.
        aud: Text = "istio-ca".into();
    }
}

values! {
    /// The values under `global.sts`.
    Sts {
        /// The port of the token service; 0 disables it.
        service_port: Text = Text::default();
    }
}

values! {
    /// The values under `global.multiCluster`.
    MultiCluster {
        /// The name of this cluster.
        cluster_name: Text = Text::default();
    }
}

/// Resource requests and limits of a container, as quantities.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::inject) struct Resources {
    pub(in crate::inject) requests: BTreeMap<String, Text>,
    pub(in crate::inject) limits: BTreeMap<String, Text>,
}

impl Resources {
    /// The chart's defaults.
    fn of_chart() -> Self {
        let map = |cpu: &str, memory: &str| {
            BTreeMap::from([
                ("cpu".to_owned(), cpu.into()),
                ("memory".to_owned(), memory.into()),
            ])
        };
        Self {
            requests: map("100m", "128Mi"),
            limits: map("2000m", "1024Mi"),
        }
    }
}

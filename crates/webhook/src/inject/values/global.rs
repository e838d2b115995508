//! `global` of the chart's values.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Lifecycle, SeccompProfile};
use serde::{Deserialize, Serialize};

use super::{Text, flag};

/// Declares a struct of values whose fields have defaults.
macro_rules! values {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
        #[serde(rename_all = "camelCase", default)]
        #[allow(clippy::struct_excessive_bools, reason = "the chart has them as single switches")]
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
    /// What holds for the whole installation.
    Global {
        /// The registry and path of images.
        hub: Text = "registry.istio.io/release".into();
        /// The tag of images.
        tag: Text = "latest".into();
        /// The flavour of images, such as `distroless`.
        variant: Text = Text::default();
        /// When images are pulled; empty is Kubernetes' choice.
        image_pull_policy: Text = Text::default();
        /// Secrets for pulling images.
        image_pull_secrets: Vec<Text> = Vec::new();
        /// Whether logs are JSON.
        #[serde(deserialize_with = "flag")]
        log_as_json: bool = false;
        /// Whether capture uses nftables.
        #[serde(deserialize_with = "flag")]
        native_nftables: bool = false;
        /// Levels of the agent's logs.
        logging: Logging = Logging::default();
        /// Who signs certificates; empty is the control plane.
        ca_address: Text = Text::default();
        /// The kind of CA; `GkeWorkloadCertificate` mounts its certificates.
        ca_name: Text = Text::default();
        /// The namespace of the control plane.
        istio_namespace: Text = "istio-system".into();
        /// Who vouches for the control plane's certificate.
        pilot_cert_provider: Text = "istiod".into();
        /// Tokens of pods.
        sds: Sds = Sds::default();
        /// The security token service of the agent.
        sts: Sts = Sts::default();
        /// Whether certificates of a secret are mounted.
        #[serde(deserialize_with = "flag")]
        mount_mtls_certs: bool = false;
        /// The ConfigMap or bundle of roots; empty is Istio's.
        trust_bundle_name: Text = Text::default();
        /// The trust domain where mesh config has none.
        trust_domain: Text = Text::default();
        /// The id of the mesh; empty is the trust domain.
        #[serde(rename = "meshID")]
        mesh_id: Text = Text::default();
        /// The network of pods.
        network: Text = Text::default();
        /// Several clusters.
        multi_cluster: MultiCluster = MultiCluster::default();
        proxy: Proxy = Proxy::default();
        /// Waypoints.
        waypoint: Waypoint = Waypoint::default();
        /// The platform; `openshift` gives users and groups to pods.
        platform: Text = Text::default();
        /// The container that sets up capture.
        #[serde(rename = "proxy_init")]
        proxy_init: ProxyInit = ProxyInit::default();
    }
}

values! {
    /// `global.proxy`.
    Proxy {
        /// The image, or its name below the hub.
        image: Text = "proxyv2".into();
        /// The injection policy.
        auto_inject: Text = "enabled".into();
        /// The domain of the cluster's services.
        cluster_domain: Text = "cluster.local".into();
        /// Levels of Envoy's components.
        component_log_level: Text = "misc:error".into();
        /// The level of Envoy's logs.
        log_level: Text = "warning".into();
        /// Inbound ports that are left alone.
        exclude_inbound_ports: Text = Text::default();
        /// Inbound ports that are captured.
        include_inbound_ports: Text = "*".into();
        /// Ranges to which connections are captured.
        #[serde(rename = "includeIPRanges")]
        include_ip_ranges: Text = "*".into();
        /// Ranges to which connections are left alone.
        #[serde(rename = "excludeIPRanges")]
        exclude_ip_ranges: Text = Text::default();
        /// Outbound ports that are captured whatever their address.
        include_outbound_ports: Text = Text::default();
        /// Outbound ports that are left alone.
        exclude_outbound_ports: Text = Text::default();
        /// Where Envoy logs outliers.
        outlier_log_path: Text = Text::default();
        /// Whether the containers are privileged.
        #[serde(deserialize_with = "flag")]
        privileged: bool = false;
        /// Whether the proxy may bind low ports.
        cap_net_bind_service: Text = Text::default();
        /// The seccomp profile of the containers.
        seccomp_profile: Option<SeccompProfile> = None;
        /// How often readiness may fail.
        readiness_failure_threshold: Text = "4".into();
        /// When readiness is first asked for.
        readiness_initial_delay_seconds: Text = "0".into();
        /// How often readiness is asked for.
        readiness_period_seconds: Text = "15".into();
        /// Whether and how start-up is awaited.
        startup_probe: StartupProbe = StartupProbe::default();
        /// What the containers ask for and may use.
        resources: Resources = Resources::of_chart();
        /// The agent's port.
        status_port: Text = "15020".into();
        /// The kind of tracer.
        tracer: Text = "none".into();
        /// Hooks of the proxy's container.
        lifecycle: Option<Lifecycle> = None;
        /// Whether the application waits for the proxy.
        #[serde(deserialize_with = "flag")]
        hold_application_until_proxy_starts: bool = false;
    }
}

values! {
    /// `global.waypoint`, of which templates read more.
    Waypoint {
        /// What the proxy asks for and may use.
        resources: Resources = Resources::of_chart();
    }
}

values! {
    /// `global.proxy_init`.
    ProxyInit {
        /// The image, or its name below the hub.
        image: Text = "proxyv2".into();
        /// Whether rules are applied even where some are found.
        #[serde(deserialize_with = "flag")]
        force_apply_iptables: bool = false;
    }
}

values! {
    /// `global.proxy.startupProbe`.
    StartupProbe {
        /// Whether there is one.
        #[serde(deserialize_with = "flag")]
        enabled: bool = true;
        /// How often it may fail.
        failure_threshold: Text = "600".into();
    }
}

values! {
    /// `global.logging`.
    Logging {
        /// Levels by scope.
        level: Text = "default:info".into();
    }
}

values! {
    /// `global.sds`.
    Sds {
        /// The token that proves a pod.
        token: Token = Token::default();
    }
}

values! {
    /// `global.sds.token`.
    Token {
        /// Whom it is for.
        aud: Text = "istio-ca".into();
    }
}

values! {
    /// `global.sts`.
    Sts {
        /// Its port; 0 is none.
        service_port: Text = Text::default();
    }
}

values! {
    /// `global.multiCluster`.
    MultiCluster {
        /// The name of this cluster.
        cluster_name: Text = Text::default();
    }
}

/// What a container asks for and may use, as quantities.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::inject) struct Resources {
    /// What it asks for.
    pub(in crate::inject) requests: BTreeMap<String, Text>,
    /// What it may use.
    pub(in crate::inject) limits: BTreeMap<String, Text>,
}

impl Resources {
    /// The chart's own.
    fn of_chart() -> Self {
        let map = |cpu: &str, memory: &str| {
            BTreeMap::from([("cpu".to_owned(), cpu.into()), ("memory".to_owned(), memory.into())])
        };
        Self { requests: map("100m", "128Mi"), limits: map("2000m", "1024Mi") }
    }
}

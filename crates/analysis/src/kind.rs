//! The kinds of objects that analyzers look at.

use navarch_api::decode::served_versions;
use navarch_api::object;

/// Declares the kinds: the name in Rust, the group, how users write it, and its plural.
macro_rules! kinds {
    ($($kind:ident $group:literal $name:literal $plural:literal),* $(,)?) => {
        /// Kinds that analyzers know.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(
                #[doc = concat!("`", $name, "` of the group `", $group, "`.")]
                $kind,
            )*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The kind as users write it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// The group, empty for Kubernetes' core.
            #[must_use]
            pub fn group(self) -> &'static str {
                match self {
                    $(Self::$kind => $group,)*
                }
            }

            /// The plural, as in URLs.
            #[must_use]
            pub fn plural(self) -> &'static str {
                match self {
                    $(Self::$kind => $plural,)*
                }
            }
        }
    };
}

kinds! {
    Namespace "" "Namespace" "namespaces",
    Node "" "Node" "nodes",
    Pod "" "Pod" "pods",
    Secret "" "Secret" "secrets",
    Service "" "Service" "services",
    ConfigMap "" "ConfigMap" "configmaps",
    Deployment "apps" "Deployment" "deployments",
    MutatingWebhookConfiguration "admissionregistration.k8s.io" "MutatingWebhookConfiguration" "mutatingwebhookconfigurations",
    ValidatingWebhookConfiguration "admissionregistration.k8s.io" "ValidatingWebhookConfiguration" "validatingwebhookconfigurations",
    CustomResourceDefinition "apiextensions.k8s.io" "CustomResourceDefinition" "customresourcedefinitions",
    KubernetesGateway "gateway.networking.k8s.io" "Gateway" "gateways",
    HttpRoute "gateway.networking.k8s.io" "HTTPRoute" "httproutes",
    GrpcRoute "gateway.networking.k8s.io" "GRPCRoute" "grpcroutes",
    AuthorizationPolicy "security.istio.io" "AuthorizationPolicy" "authorizationpolicies",
    DestinationRule "networking.istio.io" "DestinationRule" "destinationrules",
    EnvoyFilter "networking.istio.io" "EnvoyFilter" "envoyfilters",
    Gateway "networking.istio.io" "Gateway" "gateways",
    PeerAuthentication "security.istio.io" "PeerAuthentication" "peerauthentications",
    ProxyConfig "networking.istio.io" "ProxyConfig" "proxyconfigs",
    RequestAuthentication "security.istio.io" "RequestAuthentication" "requestauthentications",
    ServiceEntry "networking.istio.io" "ServiceEntry" "serviceentries",
    Sidecar "networking.istio.io" "Sidecar" "sidecars",
    Telemetry "telemetry.istio.io" "Telemetry" "telemetries",
    TrafficExtension "extensions.istio.io" "TrafficExtension" "trafficextensions",
    VirtualService "networking.istio.io" "VirtualService" "virtualservices",
    WasmPlugin "extensions.istio.io" "WasmPlugin" "wasmplugins",
    WorkloadEntry "networking.istio.io" "WorkloadEntry" "workloadentries",
    WorkloadGroup "networking.istio.io" "WorkloadGroup" "workloadgroups",
    MeshNetworks "" "MeshNetworks" "meshnetworks",
}

impl Kind {
    /// The kind for `api_version` and `kind`; `None` if no analyzer reads it.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = Self::ALL
            .iter()
            .find(|known| known.group() == group && known.as_str() == kind)?;
        found.versions().contains(&version).then_some(*found)
    }

    /// The versions in which it is served, the best first.
    #[must_use]
    pub fn versions(self) -> &'static [&'static str] {
        let known = object::Kind::ALL
            .into_iter()
            .find(|known| known.as_str() == self.as_str() && known.group() == self.group());
        match known {
            Some(known) => served_versions(known),
            // Mesh config and networks are not API objects.
            None if self == Self::MeshNetworks => &[],
            None => &["v1"],
        }
    }

    /// `apiVersion` in the best version.
    #[must_use]
    pub fn api_version(self) -> String {
        let version = self.versions().first().copied().unwrap_or("v1");
        if self.group().is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", self.group())
        }
    }

    /// Whether its objects are in no namespace.
    #[must_use]
    pub fn is_cluster_scoped(self) -> bool {
        matches!(
            self,
            Self::Namespace
                | Self::Node
                | Self::MutatingWebhookConfiguration
                | Self::ValidatingWebhookConfiguration
                | Self::CustomResourceDefinition
        )
    }

    /// Whether its objects are created in a cluster rather than in files of configuration. An
    /// object of such a kind that files lack may still exist.
    #[must_use]
    pub fn is_of_runtime(self) -> bool {
        matches!(
            self,
            Self::Namespace | Self::Node | Self::Pod | Self::Secret | Self::Service
        )
    }

    /// The kinds whose objects are created in a cluster.
    pub fn of_runtime() -> impl Iterator<Item = Self> {
        Self::ALL
            .iter()
            .copied()
            .filter(|kind| kind.is_of_runtime())
    }

    /// Whether its API group ends in `.istio.io`.
    #[must_use]
    pub fn is_istio(self) -> bool {
        self.group().ends_with(".istio.io")
    }
}

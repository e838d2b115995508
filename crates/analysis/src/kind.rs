//! The kinds of objects that analyzers look at.

use navarch_api::decode::served_versions;
use navarch_api::object;

/// Declares the kinds: the name in Rust, the group, and how users write it.
macro_rules! kinds {
    ($($kind:ident $group:literal $name:literal),* $(,)?) => {
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
        }
    };
}

kinds! {
    Namespace "" "Namespace",
    Node "" "Node",
    Pod "" "Pod",
    Secret "" "Secret",
    Service "" "Service",
    ConfigMap "" "ConfigMap",
    Deployment "apps" "Deployment",
    MutatingWebhookConfiguration "admissionregistration.k8s.io" "MutatingWebhookConfiguration",
    ValidatingWebhookConfiguration "admissionregistration.k8s.io" "ValidatingWebhookConfiguration",
    CustomResourceDefinition "apiextensions.k8s.io" "CustomResourceDefinition",
    KubernetesGateway "gateway.networking.k8s.io" "Gateway",
    HttpRoute "gateway.networking.k8s.io" "HTTPRoute",
    GrpcRoute "gateway.networking.k8s.io" "GRPCRoute",
    AuthorizationPolicy "security.istio.io" "AuthorizationPolicy",
    DestinationRule "networking.istio.io" "DestinationRule",
    EnvoyFilter "networking.istio.io" "EnvoyFilter",
    Gateway "networking.istio.io" "Gateway",
    PeerAuthentication "security.istio.io" "PeerAuthentication",
    ProxyConfig "networking.istio.io" "ProxyConfig",
    RequestAuthentication "security.istio.io" "RequestAuthentication",
    ServiceEntry "networking.istio.io" "ServiceEntry",
    Sidecar "networking.istio.io" "Sidecar",
    Telemetry "telemetry.istio.io" "Telemetry",
    TrafficExtension "extensions.istio.io" "TrafficExtension",
    VirtualService "networking.istio.io" "VirtualService",
    WasmPlugin "extensions.istio.io" "WasmPlugin",
    WorkloadEntry "networking.istio.io" "WorkloadEntry",
    WorkloadGroup "networking.istio.io" "WorkloadGroup",
    MeshNetworks "" "MeshNetworks",
}

impl Kind {
    /// The kind of an object that says `api_version` and `kind`; `None` where nothing looks at it.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = Self::ALL.iter().find(|known| known.group() == group && known.as_str() == kind)?;
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
            // Settings of the mesh are no object of a server.
            None if self == Self::MeshNetworks => &[],
            None => &["v1"],
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

    /// Whether its objects come about in a cluster rather than in files of configuration, so that files that lack some say nothing.
    #[must_use]
    pub fn is_of_runtime(self) -> bool {
        matches!(self, Self::Namespace | Self::Node | Self::Pod | Self::Secret | Self::Service)
    }

    /// Whether it is one of Istio's.
    #[must_use]
    pub fn is_istio(self) -> bool {
        self.group().ends_with(".istio.io")
    }
}

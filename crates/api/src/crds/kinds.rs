//! The defined kinds and their names.

/// A kind to define.
pub(super) struct KindNames {
    /// The value of `kind:`.
    pub kind: &'static str,
    /// Its plural, as in URLs.
    pub plural: &'static str,
    /// Its group without `.istio.io`.
    pub group: &'static str,
    /// The versions that are served; the first is stored.
    pub versions: &'static [&'static str],
}

/// The versions of the kinds that Istio has had the longest.
const NETWORKING: &[&str] = &["v1", "v1beta1", "v1alpha3"];

/// The versions of Istio's policies.
const SECURITY: &[&str] = &["v1", "v1beta1"];

/// Every kind, ordered by group and name.
pub(super) const KINDS: &[KindNames] = &[
    KindNames {
        kind: "TrafficExtension",
        plural: "trafficextensions",
        group: "extensions",
        versions: &["v1alpha1"],
    },
    KindNames {
        kind: "WasmPlugin",
        plural: "wasmplugins",
        group: "extensions",
        versions: &["v1alpha1"],
    },
    KindNames {
        kind: "DestinationRule",
        plural: "destinationrules",
        group: "networking",
        versions: NETWORKING,
    },
    KindNames {
        kind: "EnvoyFilter",
        plural: "envoyfilters",
        group: "networking",
        versions: &["v1alpha3"],
    },
    KindNames {
        kind: "Gateway",
        plural: "gateways",
        group: "networking",
        versions: NETWORKING,
    },
    KindNames {
        kind: "ProxyConfig",
        plural: "proxyconfigs",
        group: "networking",
        versions: &["v1beta1"],
    },
    KindNames {
        kind: "ServiceEntry",
        plural: "serviceentries",
        group: "networking",
        versions: NETWORKING,
    },
    KindNames {
        kind: "Sidecar",
        plural: "sidecars",
        group: "networking",
        versions: NETWORKING,
    },
    KindNames {
        kind: "VirtualService",
        plural: "virtualservices",
        group: "networking",
        versions: NETWORKING,
    },
    KindNames {
        kind: "WorkloadEntry",
        plural: "workloadentries",
        group: "networking",
        versions: NETWORKING,
    },
    KindNames {
        kind: "WorkloadGroup",
        plural: "workloadgroups",
        group: "networking",
        versions: NETWORKING,
    },
    KindNames {
        kind: "AuthorizationPolicy",
        plural: "authorizationpolicies",
        group: "security",
        versions: SECURITY,
    },
    KindNames {
        kind: "PeerAuthentication",
        plural: "peerauthentications",
        group: "security",
        versions: SECURITY,
    },
    KindNames {
        kind: "RequestAuthentication",
        plural: "requestauthentications",
        group: "security",
        versions: SECURITY,
    },
    KindNames {
        kind: "Telemetry",
        plural: "telemetries",
        group: "telemetry",
        versions: &["v1alpha1", "v1"],
    },
];

//! The defined kinds and their names.

use schemars::{Schema, SchemaGenerator};

use crate::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig,
    RequestAuthentication, ServiceEntry, Sidecar, Telemetry, TrafficExtension, VirtualService,
    WasmPlugin, WorkloadEntry, WorkloadGroup,
};

/// A kind to define.
pub(super) struct KindNames {
    /// The value of `kind:`.
    pub kind: &'static str,
    /// Its plural, as in URLs.
    pub plural: &'static str,
    /// Short names for the command line.
    pub short: &'static [&'static str],
    /// Its group without `.istio.io`.
    pub group: &'static str,
    /// The versions that are served; the first is stored.
    pub versions: &'static [&'static str],
    /// Further columns that `kubectl get` prints, name and path.
    pub columns: &'static [Column],
    /// Generates the schema of its spec.
    pub spec: fn(&mut SchemaGenerator) -> Schema,
    /// Whether an object must have a spec.
    pub needs: Spec,
}

/// Whether objects of a kind must have a spec.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spec {
    /// An object without one is rejected.
    Required,
    /// An object without one has an empty spec.
    Optional,
}

/// A column that `kubectl get` prints.
pub(super) enum Column {
    /// A field: heading, path and description.
    Field(&'static str, &'static str, &'static str),
    /// The object's age.
    Age,
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
        short: &[],
        group: "extensions",
        versions: &["v1alpha1"],
        columns: &[Column::Age],
        spec: SchemaGenerator::subschema_for::<TrafficExtension>,
        needs: Spec::Required,
    },
    KindNames {
        kind: "WasmPlugin",
        plural: "wasmplugins",
        short: &[],
        group: "extensions",
        versions: &["v1alpha1"],
        columns: &[Column::Age],
        spec: SchemaGenerator::subschema_for::<WasmPlugin>,
        needs: Spec::Required,
    },
    KindNames {
        kind: "DestinationRule",
        plural: "destinationrules",
        short: &["dr"],
        group: "networking",
        versions: NETWORKING,
        columns: &[
            Column::Field("Host", ".spec.host", "The host to which it applies"),
            Column::Age,
        ],
        spec: SchemaGenerator::subschema_for::<DestinationRule>,
        needs: Spec::Optional,
    },
    KindNames {
        kind: "EnvoyFilter",
        plural: "envoyfilters",
        short: &[],
        group: "networking",
        versions: &["v1alpha3"],
        columns: &[],
        spec: SchemaGenerator::subschema_for::<EnvoyFilter>,
        needs: Spec::Optional,
    },
    KindNames {
        kind: "Gateway",
        plural: "gateways",
        short: &["gw"],
        group: "networking",
        versions: NETWORKING,
        columns: &[],
        spec: SchemaGenerator::subschema_for::<Gateway>,
        needs: Spec::Optional,
    },
    KindNames {
        kind: "ProxyConfig",
        plural: "proxyconfigs",
        short: &[],
        group: "networking",
        versions: &["v1beta1"],
        columns: &[],
        spec: SchemaGenerator::subschema_for::<ProxyConfig>,
        needs: Spec::Optional,
    },
    KindNames {
        kind: "ServiceEntry",
        plural: "serviceentries",
        short: &["se"],
        group: "networking",
        versions: NETWORKING,
        columns: &[
            Column::Field("Hosts", ".spec.hosts", "The names of the service"),
            Column::Field(
                "Location",
                ".spec.location",
                "Whether it is part of the mesh",
            ),
            Column::Field(
                "Resolution",
                ".spec.resolution",
                "How its addresses are resolved",
            ),
            Column::Age,
        ],
        spec: SchemaGenerator::subschema_for::<ServiceEntry>,
        needs: Spec::Required,
    },
    KindNames {
        kind: "Sidecar",
        plural: "sidecars",
        short: &[],
        group: "networking",
        versions: NETWORKING,
        columns: &[],
        spec: SchemaGenerator::subschema_for::<Sidecar>,
        needs: Spec::Optional,
    },
    KindNames {
        kind: "VirtualService",
        plural: "virtualservices",
        short: &["vs"],
        group: "networking",
        versions: NETWORKING,
        columns: &[
            Column::Field(
                "Gateways",
                ".spec.gateways",
                "The gateways and sidecars that apply it",
            ),
            Column::Field("Hosts", ".spec.hosts", "The hosts whose traffic it routes"),
            Column::Age,
        ],
        spec: SchemaGenerator::subschema_for::<VirtualService>,
        needs: Spec::Optional,
    },
    KindNames {
        kind: "WorkloadEntry",
        plural: "workloadentries",
        short: &["we"],
        group: "networking",
        versions: NETWORKING,
        columns: &[
            Column::Age,
            Column::Field("Address", ".spec.address", "The address of the workload"),
        ],
        spec: SchemaGenerator::subschema_for::<WorkloadEntry>,
        needs: Spec::Required,
    },
    KindNames {
        kind: "WorkloadGroup",
        plural: "workloadgroups",
        short: &["wg"],
        group: "networking",
        versions: NETWORKING,
        columns: &[Column::Age],
        spec: SchemaGenerator::subschema_for::<WorkloadGroup>,
        needs: Spec::Required,
    },
    KindNames {
        kind: "AuthorizationPolicy",
        plural: "authorizationpolicies",
        short: &["ap"],
        group: "security",
        versions: SECURITY,
        columns: &[
            Column::Field("Action", ".spec.action", "The action for matching requests"),
            Column::Age,
        ],
        spec: SchemaGenerator::subschema_for::<AuthorizationPolicy>,
        needs: Spec::Optional,
    },
    KindNames {
        kind: "PeerAuthentication",
        plural: "peerauthentications",
        short: &["pa"],
        group: "security",
        versions: SECURITY,
        columns: &[
            Column::Field("Mode", ".spec.mtls.mode", "The mode of mutual TLS"),
            Column::Age,
        ],
        spec: SchemaGenerator::subschema_for::<PeerAuthentication>,
        needs: Spec::Optional,
    },
    KindNames {
        kind: "RequestAuthentication",
        plural: "requestauthentications",
        short: &["ra"],
        group: "security",
        versions: SECURITY,
        columns: &[],
        spec: SchemaGenerator::subschema_for::<RequestAuthentication>,
        needs: Spec::Optional,
    },
    KindNames {
        kind: "Telemetry",
        plural: "telemetries",
        short: &["telemetry"],
        group: "telemetry",
        versions: &["v1alpha1", "v1"],
        columns: &[Column::Age],
        spec: SchemaGenerator::subschema_for::<Telemetry>,
        needs: Spec::Optional,
    },
];

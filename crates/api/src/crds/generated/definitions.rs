//! What a definition has beside the names of its kind.

use schemars::{Schema, SchemaGenerator};

use crate::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig,
    RequestAuthentication, ServiceEntry, Sidecar, Telemetry, TrafficExtension, VirtualService,
    WasmPlugin, WorkloadEntry, WorkloadGroup,
};

/// How a kind is defined.
pub(super) struct Definition {
    /// The value of `kind:`.
    pub kind: &'static str,
    /// Short names for the command line.
    pub short: &'static [&'static str],
    /// Further columns that `kubectl get` prints.
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

/// Those of all kinds, in the order of [`KINDS`](super::super::kinds::KINDS).
pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        kind: "TrafficExtension",
        short: &[],
        columns: &[Column::Age],
        spec: SchemaGenerator::subschema_for::<TrafficExtension>,
        needs: Spec::Required,
    },
    Definition {
        kind: "WasmPlugin",
        short: &[],
        columns: &[Column::Age],
        spec: SchemaGenerator::subschema_for::<WasmPlugin>,
        needs: Spec::Required,
    },
    Definition {
        kind: "DestinationRule",
        short: &["dr"],
        columns: &[
            Column::Field("Host", ".spec.host", "The host to which it applies"),
            Column::Age,
        ],
        spec: SchemaGenerator::subschema_for::<DestinationRule>,
        needs: Spec::Optional,
    },
    Definition {
        kind: "EnvoyFilter",
        short: &[],
        columns: &[],
        spec: SchemaGenerator::subschema_for::<EnvoyFilter>,
        needs: Spec::Optional,
    },
    Definition {
        kind: "Gateway",
        short: &["gw"],
        columns: &[],
        spec: SchemaGenerator::subschema_for::<Gateway>,
        needs: Spec::Optional,
    },
    Definition {
        kind: "ProxyConfig",
        short: &[],
        columns: &[],
        spec: SchemaGenerator::subschema_for::<ProxyConfig>,
        needs: Spec::Optional,
    },
    Definition {
        kind: "ServiceEntry",
        short: &["se"],
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
    Definition {
        kind: "Sidecar",
        short: &[],
        columns: &[],
        spec: SchemaGenerator::subschema_for::<Sidecar>,
        needs: Spec::Optional,
    },
    Definition {
        kind: "VirtualService",
        short: &["vs"],
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
    Definition {
        kind: "WorkloadEntry",
        short: &["we"],
        columns: &[
            Column::Age,
            Column::Field("Address", ".spec.address", "The address of the workload"),
        ],
        spec: SchemaGenerator::subschema_for::<WorkloadEntry>,
        needs: Spec::Required,
    },
    Definition {
        kind: "WorkloadGroup",
        short: &["wg"],
        columns: &[Column::Age],
        spec: SchemaGenerator::subschema_for::<WorkloadGroup>,
        needs: Spec::Required,
    },
    Definition {
        kind: "AuthorizationPolicy",
        short: &["ap"],
        columns: &[
            Column::Field("Action", ".spec.action", "The action for matching requests"),
            Column::Age,
        ],
        spec: SchemaGenerator::subschema_for::<AuthorizationPolicy>,
        needs: Spec::Optional,
    },
    Definition {
        kind: "PeerAuthentication",
        short: &["pa"],
        columns: &[
            Column::Field("Mode", ".spec.mtls.mode", "The mode of mutual TLS"),
            Column::Age,
        ],
        spec: SchemaGenerator::subschema_for::<PeerAuthentication>,
        needs: Spec::Optional,
    },
    Definition {
        kind: "RequestAuthentication",
        short: &["ra"],
        columns: &[],
        spec: SchemaGenerator::subschema_for::<RequestAuthentication>,
        needs: Spec::Optional,
    },
    Definition {
        kind: "Telemetry",
        short: &["telemetry"],
        columns: &[Column::Age],
        spec: SchemaGenerator::subschema_for::<Telemetry>,
        needs: Spec::Optional,
    },
];

//! PeerAuthentication: whether a workload demands mutual TLS.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PolicyWorkloadSelector;
use super::wire_enum::wire_enum;

/// `security.istio.io/PeerAuthentication`: what workloads demand of those that connect.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeerAuthentication {
    /// The workloads it is for; `None` is all of the namespace, or of the mesh in the root namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// Mutual TLS on all ports; `None` inherits.
    pub mtls: Option<MutualTls>,
    /// Mutual TLS by port of the workload; needs a selector. Written but empty is refused, so it differs from unwritten.
    pub port_level_mtls: Option<BTreeMap<u32, MutualTls>>,
}

wire_enum! {
    /// Whether mutual TLS is demanded.
    MutualTlsMode {
        /// As the wider policy says.
        Unset = 0, "UNSET";
        /// It is not spoken.
        Disable = 1, "DISABLE";
        /// It is spoken, and plain text too.
        Permissive = 2, "PERMISSIVE";
        /// It alone is spoken.
        Strict = 3, "STRICT";
    }
}

/// Whether mutual TLS is demanded.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MutualTls {
    /// The mode.
    pub mode: MutualTlsMode,
}

impl PeerAuthentication {
    /// The mode on all ports.
    #[must_use]
    pub fn mode(&self) -> MutualTlsMode {
        self.mtls.as_ref().map(|mtls| mtls.mode).unwrap_or_default()
    }

    /// The modes of single ports, in the order of the ports.
    pub fn port_modes(&self) -> impl Iterator<Item = (u32, MutualTlsMode)> {
        self.port_level_mtls.iter().flatten().map(|(port, mtls)| (*port, mtls.mode))
    }
}

//! PeerAuthentication: whether a workload requires mutual TLS.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PolicyWorkloadSelector;
use super::wire_enum::wire_enum;

/// `security.istio.io/PeerAuthentication`: the mutual TLS mode that workloads require of incoming
/// connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PeerAuthentication {
    /// Selects workloads; unset selects all workloads of the namespace, or of the mesh in the root
    /// namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// Mutual TLS on all ports; unset inherits the mode of the wider policy.
    pub mtls: Option<MutualTls>,
    /// Mutual TLS by workload port; requires a selector. Validation rejects an empty map, so empty
    /// differs from unset.
    pub port_level_mtls: Option<BTreeMap<u32, MutualTls>>,
}

wire_enum! {
    /// Whether the workload requires mutual TLS.
    MutualTlsMode {
        /// Inherits the mode of the wider policy.
        Unset = 0, "UNSET";
        /// The workload accepts plain text only.
        Disable = 1, "DISABLE";
        /// The workload accepts mutual TLS and plain text.
        Permissive = 2, "PERMISSIVE";
        /// The workload accepts mutual TLS only.
        Strict = 3, "STRICT";
    }
}

/// Mutual TLS settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MutualTls {
    /// The mutual TLS mode; unset inherits.
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
        self.port_level_mtls
            .iter()
            .flatten()
            .map(|(port, mtls)| (*port, mtls.mode))
    }
}

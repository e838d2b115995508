//! The kind ProxyConfig: startup settings for the proxies of selected workloads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PolicyWorkloadSelector;

/// `networking.istio.io/ProxyConfig`: overrides of the mesh's proxy settings for selected
/// workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyConfig {
    /// Selects workloads; unset selects all workloads of the namespace, or of the mesh in the root
    /// namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// Number of Envoy's worker threads; 0 is one per core.
    pub concurrency: Option<i32>,
    /// Environment variables of the proxy; variables with the prefix `ISTIO_META_` become node
    /// metadata.
    pub environment_variables: BTreeMap<String, String>,
    /// The proxy's image.
    pub image: Option<ProxyImage>,
}

/// The image of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyImage {
    /// The image variant, such as `distroless`.
    pub image_type: String,
}

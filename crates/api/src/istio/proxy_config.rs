//! ProxyConfig, the kind: settings with which the proxies of some workloads are started.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PolicyWorkloadSelector;

/// `networking.istio.io/ProxyConfig`: what of the mesh's proxy settings some workloads have otherwise.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyConfig {
    /// The workloads it is for; `None` is all of the namespace, or of the mesh in the root namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// Worker threads; 0 is one per core.
    pub concurrency: Option<i32>,
    /// Environment variables of the proxy; those that begin with `ISTIO_META_` become node metadata.
    pub environment_variables: BTreeMap<String, String>,
    /// Which image the proxy runs.
    pub image: Option<ProxyImage>,
}

/// Which image a proxy runs.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyImage {
    /// The flavour, such as `distroless`.
    pub image_type: String,
}

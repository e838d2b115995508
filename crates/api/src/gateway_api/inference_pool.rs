//! InferencePool, and the name and labels of the Service that is generated for it (istiod's
//! `inferencepool_collection.go`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::service_kind;

/// The label that names the pool of a Service.
pub const POOL_LABEL: &str = "istio.io/inferencepool-name";
/// The label that names the Service of the endpoint picker.
pub const PICKER_SERVICE_LABEL: &str = "istio.io/inferencepool-extension-service";
/// The label with the port of the endpoint picker.
pub const PICKER_PORT_LABEL: &str = "istio.io/inferencepool-extension-port";
/// The label with the handling of requests while the endpoint picker does not respond: `FailOpen`
/// or `FailClose`.
pub const PICKER_FAILURE_MODE_LABEL: &str = "istio.io/inferencepool-extension-failure-mode";
/// The label that marks a Service as generated for another object.
pub const SEMANTICS_LABEL: &str = "internal.istio.io/service-semantics";
/// The value of [`SEMANTICS_LABEL`] of a Service that is generated for a pool.
pub const POOL_SEMANTICS: &str = "inferencepool";

/// The separator between the name of a pool and the hash in the name of its Service.
const SEPARATOR: &str = "-ip-";
/// The number of hexadecimal digits of the hash.
const HASH: usize = 8;
/// The longest name of a Service.
const MAX_NAME: usize = 63;

/// The name of the Service that is generated for a pool.
#[must_use]
pub fn pool_service_name(pool: &str) -> String {
    let hash: String = format!("{:x}", Sha256::digest(pool))
        .chars()
        .take(HASH)
        .collect();
    let longest = MAX_NAME - SEPARATOR.len() - HASH;
    let stem: String = pool.chars().take(longest).collect();
    format!("{stem}{SEPARATOR}{hash}")
}

/// `inference.networking.k8s.io/InferencePool`: pods that serve a model, and the service that picks
/// a pod for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InferencePool {
    /// Labels of the pods that serve the model.
    pub selector: PoolSelector,
    /// Ports at which the pods serve, one to eight.
    pub target_ports: Vec<PoolPort>,
    /// `http` or `kubernetes.io/h2c`.
    pub app_protocol: String,
    /// The service that picks a pod.
    pub endpoint_picker_ref: Option<EndpointPickerRef>,
}

/// Labels of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolSelector {
    /// Labels that a pod must have, all of them.
    pub match_labels: BTreeMap<String, String>,
}

/// Port of a pool or of its endpoint picker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolPort {
    /// 1 to 65535.
    pub number: i32,
}

/// The service that picks a pod for a request (`EndpointPickerRef`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPickerRef {
    /// Group of the object; empty is the core group.
    #[serde(default)]
    pub group: String,
    /// Kind of the object.
    #[serde(default = "service_kind")]
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Port of the Service; required unless the target is of another kind.
    #[serde(default)]
    pub port: Option<PoolPort>,
    /// `FailOpen` or `FailClose`: the handling of requests while the picker does not respond.
    #[serde(default = "fail_close")]
    pub failure_mode: String,
}

impl Default for InferencePool {
    fn default() -> Self {
        Self {
            selector: PoolSelector::default(),
            target_ports: Vec::new(),
            app_protocol: "http".to_owned(),
            endpoint_picker_ref: None,
        }
    }
}

/// The default failure mode of a picker.
fn fail_close() -> String {
    "FailClose".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_pools_are_called_as_istiod_calls_them() {
        assert_eq!(pool_service_name("llama"), "llama-ip-fc5a1047");
        assert_eq!(pool_service_name("phi"), "phi-ip-7f754d3d");
        assert_eq!(pool_service_name(&"x".repeat(80)).len(), MAX_NAME);
    }
}

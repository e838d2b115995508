//! InferencePool.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::service_kind;

/// `inference.networking.k8s.io/InferencePool`: pods that serve a model, and who picks one for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InferencePool {
    /// Labels of the pods that serve the model.
    pub selector: PoolSelector,
    /// Ports at which the pods serve, one to eight.
    pub target_ports: Vec<PoolPort>,
    /// `http` or `kubernetes.io/h2c`.
    pub app_protocol: String,
    /// Who picks a pod.
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

/// Who picks a pod for a request (`EndpointPickerRef`).
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
    /// `FailOpen` or `FailClose`: what happens to requests while it does not answer.
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

/// What happens while a picker does not answer, where it does not say.
fn fail_close() -> String {
    "FailClose".to_owned()
}

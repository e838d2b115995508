//! The chart's values that affect injection, with the chart's defaults.

mod global;
mod text;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSecurityContext;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::ConfigError;
use navarch_api::mesh::LabelSelector;
use navarch_api::typed::Typed;
use navarch_api::yaml::{self, Schema};

pub(super) use global::Global;
pub(super) use text::{Text, flag};

/// The values that injection reads (`manifests/charts/istio-control/istio-discovery/values.yaml`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Values {
    pub(super) global: Global,
    /// The values under `sidecarInjectorWebhook`.
    pub(super) sidecar_injector_webhook: WebhookValues,
    pub(super) revision: Text,
    pub(super) pilot: PilotValues,
    pub(super) gateways: GatewayValues,
}

impl Values {
    /// Merges values into the chart's defaults, as plain data.
    pub(super) fn over_defaults(values: &Value) -> Value {
        let mut all =
            serde_json::to_value(Self::default()).expect("all map keys of values are strings");
        merge(&mut all, values);
        all
    }

    /// Parses the text of the values; also returns them as plain data for templates.
    ///
    /// # Errors
    /// When the text is not YAML, or a value has the wrong type.
    pub(super) fn parse(text: &str) -> Result<(Self, Value), ConfigError> {
        let broken = |reason: String| ConfigError::Values(reason);
        let raw =
            match yaml::parse(text, Schema::V1_1).map_err(|error| broken(error.to_string()))? {
                Value::Null => Value::Object(Map::new()),
                raw @ Value::Object(_) => raw,
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    return Err(broken("the value is not a map".to_owned()));
                }
            };
        let value = without_nulls(raw.clone());
        let typed = Typed::<Self>::from_json(&value).map_err(|error| broken(error.to_string()))?;
        Ok((typed.value, raw))
    }
}

/// Merges values into other values, recursively.
fn merge(below: &mut Value, over: &Value) {
    match (below, over) {
        (Value::Object(below), Value::Object(over)) => {
            for (name, value) in over {
                merge(below.entry(name).or_insert(Value::Null), value);
            }
        }
        (below, over) => *below = over.clone(),
    }
}

/// Removes members that are null: Helm writes null for an unset default.
pub(super) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                kept.map(|(key, value)| (key, without_nulls(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => value,
    }
}

/// The values under `sidecarInjectorWebhook`, from which the chart writes the config.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WebhookValues {
    /// Selectors for pods that are never injected.
    pub(super) never_inject_selector: Vec<LabelSelector>,
    /// Selectors for pods that are always injected.
    pub(super) always_inject_selector: Vec<LabelSelector>,
    /// Annotations for injected pods.
    pub(super) injected_annotations: BTreeMap<String, Text>,
    /// Whether probes are redirected to the agent unless a pod's annotation overrides it.
    #[serde(rename = "rewriteAppHTTPProbe", deserialize_with = "flag")]
    pub(super) rewrite_app_http_probe: bool,
    /// Templates by name.
    pub(super) templates: BTreeMap<String, String>,
    /// The templates for pods that name no template.
    pub(super) default_templates: Vec<String>,
}

impl Default for WebhookValues {
    fn default() -> Self {
        Self {
            never_inject_selector: Vec::new(),
            always_inject_selector: Vec::new(),
            injected_annotations: BTreeMap::new(),
            rewrite_app_http_probe: true,
            templates: BTreeMap::new(),
            default_templates: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PilotValues {
    /// Settings of the CNI plugin.
    pub(super) cni: CniValues,
    /// Environment variables of the control plane; `ENABLE_CLUSTER_TRUST_BUNDLE_API` changes the
    /// source of roots.
    pub(super) env: BTreeMap<String, Value>,
    /// The ConfigMap with the certificate revocation list; empty is `istio-ca-crl`.
    pub(super) crl_config_map_name: Text,
}

impl PilotValues {
    /// Whether root certificates come from a ClusterTrustBundle. As in the chart, only a boolean is
    /// effective.
    pub(super) fn uses_trust_bundles(&self) -> bool {
        self.env.get("ENABLE_CLUSTER_TRUST_BUNDLE_API") == Some(&Value::Bool(true))
    }
}

/// The values under `pilot.cni`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CniValues {
    /// Whether the CNI plugin sets up traffic capture, so that pods need no privileged init
    /// container.
    #[serde(deserialize_with = "flag")]
    pub(super) enabled: bool,
    /// `default` or `multus`.
    pub(super) provider: Text,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GatewayValues {
    /// The security context of gateway pods, instead of the default that allows low ports.
    pub(super) security_context: Option<PodSecurityContext>,
}

impl GatewayValues {
    /// The security context, if it is set and not empty.
    pub(super) fn own_security_context(&self) -> Option<PodSecurityContext> {
        self.security_context
            .clone()
            .filter(|context| *context != PodSecurityContext::default())
    }
}

#[cfg(test)]
mod tests;

//! The injection config: policy, selectors and templates.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::ConfigError;
use super::values::Values;
use navarch_api::mesh::{LabelSelector, LabelSelectorRequirement};
use navarch_api::typed::Typed;
use navarch_api::yaml::{self, Schema};

/// What `config` of the ConfigMap `istio-sidecar-injector` holds (`Config` of istiod's `pkg/kube/inject`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InjectionConfig {
    /// `enabled` injects unless a pod says no, `disabled` injects where a pod says yes.
    pub policy: String,
    /// The templates of pods that name none.
    pub default_templates: Vec<String>,
    /// Templates in Go's language by name. One with the name of a built-in template stands in its place.
    pub templates: BTreeMap<String, String>,
    /// Names that stand for lists of templates; not expanded again.
    pub aliases: BTreeMap<String, Vec<String>>,
    /// Pods that are never injected unless they ask for it; any match counts.
    pub never_inject_selector: Vec<LabelSelector>,
    /// Pods that are always injected unless they refuse; any match counts.
    pub always_inject_selector: Vec<LabelSelector>,
    /// Annotations that every injected pod gets.
    pub injected_annotations: BTreeMap<String, String>,
}

/// The template of pods that name none, where the config names none either.
const DEFAULT_TEMPLATE: &str = "sidecar";

impl InjectionConfig {
    /// Reads a config; an empty text is what the chart writes from the values.
    ///
    /// # Errors
    /// When the text is not YAML, a field has the wrong type, or there is no such policy.
    pub(super) fn read(text: &str, values: &Values) -> Result<Self, ConfigError> {
        let mut config = if text.trim().is_empty() { Self::of_chart(values) } else { Self::parse(text)? };
        if config.default_templates.is_empty() {
            config.default_templates.push(DEFAULT_TEMPLATE.to_owned());
        }
        if !matches!(config.policy.as_str(), "enabled" | "disabled") {
            let reason = format!("policy is {:?}; write enabled or disabled", config.policy);
            return Err(ConfigError::Config(reason));
        }
        config.never_inject_selector.retain(is_sound);
        config.always_inject_selector.retain(is_sound);
        Ok(config)
    }

    /// What the chart writes from the values.
    fn of_chart(values: &Values) -> Self {
        let webhook = &values.sidecar_injector_webhook;
        Self {
            policy: values.global.proxy.auto_inject.to_string(),
            default_templates: webhook.default_templates.clone(),
            templates: webhook.templates.clone(),
            aliases: BTreeMap::new(),
            never_inject_selector: webhook.never_inject_selector.clone(),
            always_inject_selector: webhook.always_inject_selector.clone(),
            injected_annotations: webhook
                .injected_annotations
                .iter()
                .map(|(key, value)| (key.clone(), value.to_string()))
                .collect(),
        }
    }

    /// Reads the text of a config.
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let broken = |reason: String| ConfigError::Config(reason);
        let value = yaml::parse(text, Schema::V1_1).map_err(|error| broken(error.to_string()))?;
        let value = super::values::without_nulls(value);
        Ok(Typed::from_json(&value).map_err(|error| broken(error.to_string()))?.value)
    }
}

/// Whether a selector is valid: an empty one selects nothing here, and one with an invalid requirement is ignored, both as
/// in istiod.
fn is_sound(selector: &LabelSelector) -> bool {
    let empty = selector.match_labels.is_empty() && selector.match_expressions.is_empty();
    !empty && selector.match_expressions.iter().all(is_sound_condition)
}

/// Whether a condition has an operator, and values exactly where it needs them.
fn is_sound_condition(condition: &LabelSelectorRequirement) -> bool {
    match condition.operator.as_str() {
        "In" | "NotIn" => !condition.values.is_empty(),
        "Exists" | "DoesNotExist" => condition.values.is_empty(),
        _ => false,
    }
}

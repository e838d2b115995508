//! The injection config: policy, selectors and templates.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::ConfigError;
use super::values::Values;
use navarch_api::mesh::{LabelSelector, LabelSelectorRequirement};
use navarch_api::typed::Typed;
use navarch_api::yaml::{self, Schema};

/// The content of `config` in the ConfigMap `istio-sidecar-injector` (`Config` of istiod's
/// `pkg/kube/inject`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InjectionConfig {
    /// `enabled` injects unless the pod opts out, `disabled` injects only if the pod opts in.
    pub policy: String,
    /// The templates for pods that name no template.
    pub default_templates: Vec<String>,
    /// Go templates by name. A template with the name of a built-in template replaces the built-in
    /// template.
    pub templates: BTreeMap<String, String>,
    /// Template names that expand to lists of templates; the expansion is not recursive.
    pub aliases: BTreeMap<String, Vec<String>>,
    /// Pods that are never injected unless the pod opts in; any matching selector applies.
    pub never_inject_selector: Vec<LabelSelector>,
    /// Pods that are always injected unless the pod opts out; any matching selector applies.
    pub always_inject_selector: Vec<LabelSelector>,
    /// Annotations that are added to every injected pod.
    pub injected_annotations: BTreeMap<String, String>,
}

/// The template for pods that name no template, if the config has no default templates.
const DEFAULT_TEMPLATE: &str = "sidecar";

impl InjectionConfig {
    /// Parses a config; an empty text is replaced with the chart's config for the values.
    ///
    /// # Errors
    /// When the text is not YAML, a field has the wrong type, or the policy is unknown.
    pub(super) fn read(text: &str, values: &Values) -> Result<Self, ConfigError> {
        let mut config = if text.trim().is_empty() {
            Self::of_chart(values)
        } else {
            Self::parse(text)?
        };
        if config.default_templates.is_empty() {
            config.default_templates.push(DEFAULT_TEMPLATE.to_owned());
        }
        if !matches!(config.policy.as_str(), "enabled" | "disabled") {
            let reason = format!("policy is {:?}; use enabled or disabled", config.policy);
            return Err(ConfigError::Config(reason));
        }
        config.never_inject_selector.retain(is_valid);
        config.always_inject_selector.retain(is_valid);
        Ok(config)
    }

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

    fn parse(text: &str) -> Result<Self, ConfigError> {
        let broken = |reason: String| ConfigError::Config(reason);
        let value = yaml::parse(text, Schema::V1_1).map_err(|error| broken(error.to_string()))?;
        let value = super::values::without_nulls(value);
        Ok(Typed::from_json(&value)
            .map_err(|error| broken(error.to_string()))?
            .value)
    }
}

/// Whether a selector is valid. As in istiod, an empty selector selects nothing, and a selector
/// with an invalid requirement is ignored.
fn is_valid(selector: &LabelSelector) -> bool {
    let empty = selector.match_labels.is_empty() && selector.match_expressions.is_empty();
    !empty && selector.match_expressions.iter().all(is_valid_requirement)
}

/// Whether a requirement has a known operator, and values exactly if the operator needs values.
fn is_valid_requirement(condition: &LabelSelectorRequirement) -> bool {
    match condition.operator.as_str() {
        "In" | "NotIn" => !condition.values.is_empty(),
        "Exists" | "DoesNotExist" => condition.values.is_empty(),
        _ => false,
    }
}

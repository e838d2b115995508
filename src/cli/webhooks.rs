//! Istio's environment variables for the webhooks.

use std::collections::BTreeMap;

use super::environment::{VariableError, duration, flag};
use crate::server::WebhookConfig;
use navarch_webhook::inject::NativeSidecars;
use navarch_webhook::injector_source::InjectionSettings;

/// Reads the settings. `variable` returns the value of a variable. If the name of a webhook
/// configuration is empty, it is not written.
///
/// # Errors
/// At the first variable with an invalid value.
pub(super) fn config(
    variable: impl Fn(&str) -> Option<String>,
    revision: Option<&str>,
) -> Result<WebhookConfig, VariableError> {
    let mut config = WebhookConfig::default();
    let names = [
        ("INJECTION_WEBHOOK_CONFIG_NAME", &mut config.injection),
        ("VALIDATION_WEBHOOK_CONFIG_NAME", &mut config.validation),
    ];
    for (name, value) in names {
        if let Some(set) = variable(name) {
            *value = set;
        }
    }

    let revision = revision.map(str::to_owned).or_else(|| variable("REVISION"));
    if let Some(revision) = revision.filter(|revision| !revision.is_empty()) {
        config.revision = revision;
    }

    if let Some(grace) = duration(&variable, "NAVARCH_WEBHOOK_ROOT_GRACE")? {
        config.grace = grace;
    }

    config.plan_warnings = flag(&variable, "NAVARCH_PLAN_WARNINGS", config.plan_warnings)?;
    Ok(config)
}

/// Reads the settings of injection; `environment` contains the variables that templates may read.
///
/// # Errors
/// At the first variable with an invalid value.
pub(super) fn injection(
    variable: impl Fn(&str) -> Option<String>,
    environment: BTreeMap<String, String>,
) -> Result<InjectionSettings, VariableError> {
    let text = |name: &str| variable(name).unwrap_or_default();
    Ok(InjectionSettings {
        enabled: flag(&variable, "INJECT_ENABLED", true)?,
        native_sidecars: NativeSidecars::parse(&text("ENABLE_NATIVE_SIDECARS")),
        compliance_policy: text("COMPLIANCE_POLICY"),
        openshift: text("PLATFORM") == "openshift",
        environment,
        ..InjectionSettings::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_set_to_nothing_are_not_the_default() {
        let set = config(
            |name| (name == "INJECTION_WEBHOOK_CONFIG_NAME").then(String::new),
            Some("canary"),
        )
        .unwrap();
        assert_eq!(
            (set.injection.as_str(), set.revision.as_str()),
            ("", "canary")
        );
        assert_eq!(set.validation, WebhookConfig::default().validation);
    }
}

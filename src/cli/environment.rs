//! Istio's environment variables as settings: one table, read once at start.

use crate::api::names::{ClusterId, Namespace};
use crate::api::settings::Settings;

/// A variable with a value that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?} is no {expected}")]
pub struct VariableError {
    /// The variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What it should be.
    pub expected: &'static str,
}

/// Reads all settings through `variable`, which gives the value of a name. Unset and empty mean the default.
///
/// # Errors
/// At the first variable whose value cannot be read.
pub fn settings(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, VariableError> {
    let text = |name: &str| variable(name).filter(|value| !value.is_empty());
    let flag = |name: &'static str, default: bool| match text(name) {
        None => Ok(default),
        Some(value) => go_bool(&value).ok_or(VariableError { name, value, expected: "truth value (true or false)" }),
    };
    let default = Settings::default();
    Ok(Settings {
        cluster_id: text("CLUSTER_ID").map_or(default.cluster_id, ClusterId::new),
        domain_suffix: default.domain_suffix,
        system_namespace: text("POD_NAMESPACE").map_or(default.system_namespace, Namespace::new),
        dual_stack: flag("ISTIO_DUAL_STACK", default.dual_stack)?,
        ip_autoallocate: flag("PILOT_ENABLE_IP_AUTOALLOCATE", default.ip_autoallocate)?,
        send_unhealthy_endpoints: flag("PILOT_SEND_UNHEALTHY_ENDPOINTS", default.send_unhealthy_endpoints)?,
        persistent_session_label: text("PILOT_PERSISTENT_SESSION_LABEL").unwrap_or(default.persistent_session_label),
        persistent_session_header_label: text("PILOT_PERSISTENT_SESSION_HEADER_LABEL")
            .unwrap_or(default.persistent_session_header_label),
        ambient: flag("PILOT_ENABLE_AMBIENT", default.ambient)?,
    })
}

/// The texts that Go's `strconv.ParseBool` takes.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_and_empty_variables_are_the_defaults() {
        assert_eq!(settings(|_| None), Ok(Settings::default()));
        assert_eq!(settings(|_| Some(String::new())), Ok(Settings::default()));
    }

    #[test]
    fn a_value_that_cannot_be_is_named() {
        let error = settings(|name| (name == "ISTIO_DUAL_STACK").then(|| "yes".to_owned())).unwrap_err();
        assert_eq!(error.to_string(), "ISTIO_DUAL_STACK=\"yes\" is no truth value (true or false)");
    }
}

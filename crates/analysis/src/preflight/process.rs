//! The command line and the environment of the control plane.

use std::collections::BTreeMap;

use navarch_api::istiod;
use serde_json::Value;

use super::objects::items;

/// The command of pilot-discovery that runs the control plane.
const COMMAND: &str = "discovery";

/// The command line and the environment of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The flags with their values, without the command.
    pub flags: Vec<String>,
    /// The variables that are written in the Deployment with their values.
    pub variables: BTreeMap<String, String>,
    /// The entries of variables whose values are elsewhere, such as in a Secret.
    pub(super) references: Vec<Value>,
}

impl Process {
    /// A command line and an environment, without variables whose values are elsewhere.
    #[must_use]
    pub fn new(flags: Vec<String>, variables: BTreeMap<String, String>) -> Self {
        Self {
            flags,
            variables,
            references: Vec::new(),
        }
    }

    /// Those of a container.
    pub(super) fn of(container: &Value) -> Self {
        let words = items(container, "/args").filter_map(Value::as_str);
        let flags = words
            .filter(|word| *word != COMMAND)
            .map(str::to_owned)
            .collect();
        let references = items(container, "/env").filter(|entry| entry.get("valueFrom").is_some());

        Self {
            flags,
            variables: istiod::variables(container),
            references: references.cloned().collect(),
        }
    }
}

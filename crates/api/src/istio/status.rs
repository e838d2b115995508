//! The common status of Istio's kinds.

use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;

/// The control plane's status of an object (`istio.meta.v1alpha1.IstioStatus`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct IstioStatus {
    /// The conditions of the object, one per type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<IstioCondition>,
    /// Problems that the analysis found in the object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validation_messages: Vec<ValidationMessage>,
    /// The generation of the object that the status describes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub observed_generation: String,
}

/// One condition of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct IstioCondition {
    /// The condition's type.
    #[serde(rename = "type")]
    pub aspect: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When the condition was last checked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_probe_time: String,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_transition_time: String,
    /// The reason for the status, in one CamelCase word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The reason for the status, as readable text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The generation of the object that the condition describes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub observed_generation: String,
}

wire_enum! {
    /// The severity of a validation message.
    MessageLevel {
        /// The severity is unknown.
        Unknown = 0, "UNKNOWN";
        /// The object does not work.
        Error = 3, "ERROR";
        /// The object may not work as intended.
        Warning = 8, "WARNING";
        /// The message is informational.
        Info = 12, "INFO";
    }
}

/// A problem that the analysis found in an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ValidationMessage {
    /// The type of the message.
    #[serde(rename = "type")]
    pub kind: MessageType,
    /// The severity of the message.
    pub level: MessageLevel,
    /// URL of the message's documentation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub documentation_url: String,
}

/// The type of a validation message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MessageType {
    /// The type's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The type's code, such as `IST0101`.
    pub code: String,
}

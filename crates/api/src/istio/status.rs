//! The status that all of Istio's kinds share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;

/// What the control plane says of an object (`istio.meta.v1alpha1.IstioStatus`).
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IstioStatus {
    /// The state of the object, one condition per type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<IstioCondition>,
    /// What was found wrong with the object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validation_messages: Vec<ValidationMessage>,
    /// The generation of the object that was looked at.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub observed_generation: String,
}

/// One aspect of an object's state.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IstioCondition {
    /// The aspect.
    #[serde(rename = "type")]
    pub aspect: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When it was last looked at.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_probe_time: String,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_transition_time: String,
    /// Why, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The generation of the object that was looked at.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub observed_generation: String,
}

wire_enum! {
    /// How bad a finding is.
    MessageLevel {
        /// Nobody knows.
        Unknown = 0, "UNKNOWN";
        /// The object does not work.
        Error = 3, "ERROR";
        /// The object may not do what is meant.
        Warning = 8, "WARNING";
        /// Nothing is wrong.
        Info = 12, "INFO";
    }
}

/// What was found wrong with an object.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ValidationMessage {
    /// What kind of finding it is.
    #[serde(rename = "type")]
    pub kind: MessageType,
    /// How bad it is.
    pub level: MessageLevel,
    /// A page that says more.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub documentation_url: String,
}

/// A kind of finding.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageType {
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its code, such as `IST0101`.
    pub code: String,
}

//! Envoy's own messages as users write them: the values of EnvoyFilter's patches.

mod go_durations;

use std::sync::OnceLock;

use navarch_proto::json::{Codec, JsonError, UnknownFields};
use navarch_proto::prost_reflect::DynamicMessage;
use serde_json::{Map, Value};

use super::istio::ApplyTo;

/// The descriptors of Envoy's messages.
///
/// They are part of the program and never change; decoding them takes long enough that it is done once, and only where
/// somebody writes Envoy's messages at all.
#[must_use]
pub fn codec() -> &'static Codec {
    static CODEC: OnceLock<Codec> = OnceLock::new();
    CODEC.get_or_init(Codec::new)
}

/// The message that the value of a patch says.
///
/// # Errors
/// With the field that does not fit, or the type that is not known.
pub fn patch_value(
    apply_to: ApplyTo,
    value: &Map<String, Value>,
    unknown: UnknownFields,
) -> Result<DynamicMessage, JsonError> {
    let message = apply_to.message().unwrap_or_default();
    let mut json = Value::Object(value.clone());
    go_durations::in_seconds(codec(), &codec().descriptor(message)?, &mut json);
    codec().message_from_json(message, &json, unknown)
}

//! Envoy's messages as JSON: the values of EnvoyFilter patches.

mod go_forms;

use std::sync::OnceLock;

use navarch_proto::json::{Codec, JsonError, UnknownFields};
use navarch_proto::prost_reflect::DynamicMessage;
use serde_json::{Map, Value};

use super::istio::ApplyTo;

/// The descriptors of Envoy's messages.
///
/// They are part of the program; since decoding them is expensive, it is done once, and only if
/// there is an EnvoyFilter.
#[must_use]
pub fn codec() -> &'static Codec {
    static CODEC: OnceLock<Codec> = OnceLock::new();
    CODEC.get_or_init(Codec::new)
}

/// The message of a patch value.
///
/// # Errors
/// The field that does not match, or the unknown type.
pub fn patch_value(
    apply_to: ApplyTo,
    value: &Map<String, Value>,
    unknown: UnknownFields,
) -> Result<DynamicMessage, JsonError> {
    let message = apply_to.message().unwrap_or_default();
    let mut json = Value::Object(value.clone());
    go_forms::normalize(codec(), &codec().descriptor(message)?, &mut json);
    codec().message_from_json(message, &json, unknown)
}

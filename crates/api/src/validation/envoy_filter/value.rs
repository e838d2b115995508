//! Whether the value of a patch is a valid message of Envoy, and of a type that is not frozen.

use navarch_proto::json::UnknownFields;
use navarch_proto::prost_reflect::{DynamicMessage, ReflectMessage};
use serde_json::{Map, Value};

use crate::envoy_json::{codec, patch_value};
use crate::istio::ApplyTo;
use crate::validation::Verdict;
use crate::validation::path::Path;

/// The message type that can contain any other.
const ANY: &str = "google.protobuf.Any";
/// The option with which Envoy's files mark themselves as frozen.
const FILE_STATUS: &str = "udpa.annotations.file_status";
/// The number of `FROZEN` in that option.
const FROZEN: i32 = 1;

/// The decoder's error for an unknown enum value.
const UNKNOWN_VALUE: &str = "unrecognized enum value";

/// The path of the first `typed_config` without a type.
fn without_type(value: &Value, name: &str) -> Option<String> {
    match value {
        Value::Object(members) => {
            if matches!(name, "typed_config" | "typedConfig") && !members.contains_key("@type") {
                return Some(name.to_owned());
            }
            members
                .iter()
                .find_map(|(name, value)| Some(under(name, &without_type(value, name)?)))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| Some(under(&format!("[{at}]"), &without_type(item, "")?))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// The path of a field within a member.
fn under(name: &str, path: &str) -> String {
    match path {
        same if same == name => name.to_owned(),
        item if item.starts_with('[') => format!("{name}{item}"),
        path => format!("{name}.{path}"),
    }
}

/// Validates a value: a type mismatch is an error, an unknown field a warning.
pub(super) fn value(
    verdict: &mut Verdict,
    at: &Path<'_>,
    apply_to: ApplyTo,
    value: &Map<String, Value>,
) {
    if let Err(error) = patch_value(apply_to, value, UnknownFields::Skip) {
        verdict.error(at, error.to_string());
        return;
    }

    if let Some(path) = value
        .iter()
        .find_map(|(name, inner)| Some(under(name, &without_type(inner, name)?)))
    {
        verdict.error(
            at,
            format!("{path} has no \"@type\"; write the type URL of the message"),
        );
        return;
    }

    match patch_value(apply_to, value, UnknownFields::Reject) {
        // The lenient decoder skips unknown enum values together with unknown fields.
        Err(error) if error.to_string().contains(UNKNOWN_VALUE) => {
            verdict.error(at, error.to_string())
        }
        Err(error) => verdict.warn(at, error.to_string()),
        Ok(message) => {
            let frozen = frozen_types(&message);
            if !frozen.is_empty() {
                verdict.warn(
                    at,
                    format!("has messages of frozen types: {}", frozen.join(", ")),
                );
            }

            let untyped = untyped_extensions(&message);
            if !untyped.is_empty() {
                let names = untyped.join(", ");
                verdict.warn(
                    at,
                    format!("has extensions without typed_config, for which Envoy is ending support: {names}"),
                );
            }
        }
    }
}

/// The messages in the singular fields of a message.
fn inner(message: &DynamicMessage) -> Vec<DynamicMessage> {
    let messages = message
        .fields()
        .filter_map(|(_, value)| value.as_message().cloned());
    messages.collect()
}

/// The types of `Any` messages that frozen files declare.
fn frozen_types(message: &DynamicMessage) -> Vec<String> {
    let mut found = Vec::new();
    for inner in inner(message) {
        if inner.descriptor().full_name() == ANY
            && let Some(url) = inner
                .get_field_by_name("type_url")
                .and_then(|url| url.as_str().map(str::to_owned))
            && is_frozen(&url)
        {
            found.push(url);
        }
        found.extend(frozen_types(&inner));
    }
    found
}

/// Whether the file that declares a type is frozen.
fn is_frozen(type_url: &str) -> bool {
    let Ok(descriptor) = codec().descriptor(type_url) else {
        return false;
    };
    let options = descriptor.parent_file().options();
    let Some(status) = codec().pool().get_extension_by_name(FILE_STATUS) else {
        return false;
    };
    let status = options.get_extension(&status);
    let version = status
        .as_message()
        .and_then(|status| status.get_field_by_name("package_version_status"));
    version.and_then(|version| version.as_enum_number()) == Some(FROZEN)
}

/// The names of extensions that have only a name.
fn untyped_extensions(message: &DynamicMessage) -> Vec<String> {
    let mut found: Vec<String> = inner(message).iter().flat_map(untyped_extensions).collect();
    let descriptor = message.descriptor();
    let has = |name: &str| {
        descriptor
            .get_field_by_json_name(name)
            .is_some_and(|field| message.has_field(&field))
    };
    if descriptor.get_field_by_json_name("typedConfig").is_some()
        && !has("typedConfig")
        && !has("configDiscovery")
    {
        let name = message.get_field_by_name("name");
        found.push(
            name.and_then(|name| name.as_str().map(str::to_owned))
                .unwrap_or_default(),
        );
    }

    found
}

//! Validation of Envoy's messages by the rules in its `.proto` files (`validate.rules`).
//!
//! Envoy checks these rules on every resource and rejects it for one field. With the check here,
//! only the invalid part is skipped with a remark. Of the checks in Envoy's code, that of
//! regular expressions is included. Scripts are not checked: Envoy loads them, and what it rejects is
//! quarantined (`navarch_quarantine`).

mod merged;
mod regex;
mod scalar;

use std::borrow::Cow;

use navarch_proto::prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Value,
};

pub use merged::{REPLACED, check_merged};

use navarch_api::envoy_json::codec;
use navarch_api::field_error::FieldError;

/// The option with the rules of a field.
const FIELD_RULES: &str = "validate.rules";
/// The option of oneofs that must be set.
const ONEOF_REQUIRED: &str = "validate.required";
/// The message that can contain any other.
const ANY: &str = "google.protobuf.Any";
/// Maximum nesting depth that is checked; Envoy's own messages are far less deep.
const MAX_DEPTH: usize = 60;

/// Checks a message and all messages in it.
///
/// # Errors
/// With the path of the first field that violates the rules, and the reason.
pub fn check(message: &DynamicMessage) -> Result<(), FieldError> {
    check_message(message, MAX_DEPTH)
}

/// Checks the bytes of a message of a type, as [`check`]; bytes of unknown types pass.
///
/// # Errors
/// As [`check`].
pub fn check_bytes(type_url: &str, bytes: &[u8]) -> Result<(), FieldError> {
    codec()
        .decode(type_url, bytes)
        .map_or(Ok(()), |message| check(&message))
}

/// An error of the whole message.
fn fault(reason: impl Into<String>) -> Result<(), FieldError> {
    Err(FieldError::new("", reason))
}

/// Checks a message down to `depth` levels.
fn check_message(message: &DynamicMessage, depth: usize) -> Result<(), FieldError> {
    let Some(depth) = depth.checked_sub(1) else {
        return fault("is nested too deeply");
    };

    let descriptor = message.descriptor();
    if descriptor.full_name() == ANY {
        return check_any(message, depth);
    }

    if descriptor.full_name().starts_with("google.protobuf.") {
        return Ok(());
    }

    for oneof in descriptor.oneofs() {
        let is_set = oneof.fields().any(|field| message.has_field(&field));
        let required = codec().pool().get_extension_by_name(ONEOF_REQUIRED);
        let is_required = required
            .is_some_and(|option| oneof.options().get_extension(&option).as_bool() == Some(true));
        if is_required && !is_set {
            return fault(format!("none of the choices of {} is set", oneof.name()));
        }
    }

    regex::check(message)?;

    for field in descriptor.fields() {
        let rules = rules_of(&field);
        check_field(message, &field, rules.as_ref(), depth)
            .map_err(|error| error.under(field.name()))?;
    }

    Ok(())
}

/// The rules of a field, if any.
fn rules_of(field: &FieldDescriptor) -> Option<DynamicMessage> {
    let rules = codec().pool().get_extension_by_name(FIELD_RULES)?;
    let options = field.options();
    if !options.has_extension(&rules) {
        return None;
    }
    options.get_extension(&rules).as_message().cloned()
}

/// The nested rules of this name.
fn part(rules: Option<&DynamicMessage>, name: &str) -> Option<DynamicMessage> {
    let rules = rules.filter(|rules| rules.has_field_by_name(name))?;
    rules
        .get_field_by_name(name)
        .and_then(|part| part.as_message().cloned())
}

/// Whether a boolean rule is set.
fn is_on(rules: Option<&DynamicMessage>, name: &str) -> bool {
    rules
        .and_then(|rules| rules.get_field_by_name(name))
        .and_then(|on| on.as_bool())
        .unwrap_or_default()
}

/// The limit of a count.
fn count(rules: Option<&DynamicMessage>, name: &str) -> Option<usize> {
    let rules = rules.filter(|rules| rules.has_field_by_name(name))?;
    rules
        .get_field_by_name(name)
        .and_then(|limit| limit.as_u64())
        .and_then(|limit| usize::try_from(limit).ok())
}

/// Checks one field of a message.
fn check_field(
    message: &DynamicMessage,
    field: &FieldDescriptor,
    rules: Option<&DynamicMessage>,
    depth: usize,
) -> Result<(), FieldError> {
    let is_set = message.has_field(field);
    if !is_set && field.containing_oneof().is_some() {
        return Ok(());
    }

    // An unset field with presence is only checked for being required.
    if !is_set && field.supports_presence() {
        return scalar::required(rules).or_else(fault);
    }

    let value: Cow<'_, Value> = message.get_field(field);
    if let Some(items) = value.as_list() {
        return check_list(items, part(rules, "repeated").as_ref(), depth);
    }

    if let Some(entries) = value.as_map() {
        let mut entries: Vec<(&MapKey, &Value)> = entries.iter().collect();
        entries.sort_by_cached_key(|(key, _)| format!("{key:?}"));
        return check_map(&entries, part(rules, "map").as_ref(), depth);
    }

    check_value(&value, Some(&field.kind()), rules, depth)
}

fn check_list(
    items: &[Value],
    rules: Option<&DynamicMessage>,
    depth: usize,
) -> Result<(), FieldError> {
    if !(items.is_empty() && is_on(rules, "ignore_empty")) {
        check_count(
            items.len(),
            count(rules, "min_items"),
            count(rules, "max_items"),
        )?;
    }
    check_items(&[], items, rules, depth)
}

/// Checks the items of a list after those that are known to be valid.
fn check_items(
    known: &[Value],
    items: &[Value],
    rules: Option<&DynamicMessage>,
    depth: usize,
) -> Result<(), FieldError> {
    let is_known = |at: usize, item: &Value| {
        known.contains(item) || items.iter().take(at).any(|other| other == item)
    };
    if is_on(rules, "unique")
        && items
            .iter()
            .enumerate()
            .any(|(at, item)| is_known(at, item))
    {
        return fault("holds a value twice");
    }
    let of_items = part(rules, "items");
    for (index, item) in (known.len()..).zip(items) {
        check_value(item, None, of_items.as_ref(), depth)
            .map_err(|error| error.under(&format!("[{index}]")))?;
    }
    Ok(())
}

fn check_map(
    entries: &[(&MapKey, &Value)],
    rules: Option<&DynamicMessage>,
    depth: usize,
) -> Result<(), FieldError> {
    if !(entries.is_empty() && is_on(rules, "ignore_empty")) {
        check_count(
            entries.len(),
            count(rules, "min_pairs"),
            count(rules, "max_pairs"),
        )?;
    }
    check_entries(entries, rules, depth)
}

/// Checks the entries of a map, whatever their number.
fn check_entries(
    entries: &[(&MapKey, &Value)],
    rules: Option<&DynamicMessage>,
    depth: usize,
) -> Result<(), FieldError> {
    let of_keys = part(rules, "keys");
    let of_values = part(rules, "values");
    for (key, value) in entries {
        let key = Value::from((*key).clone());
        check_value(&key, None, of_keys.as_ref(), depth)
            .map_err(|error| error.under(&format!("[{key}]")))?;
        check_value(value, None, of_values.as_ref(), depth)
            .map_err(|error| error.under(&format!("[{key}]")))?;
    }
    Ok(())
}

/// Checks a number of items.
fn check_count(length: usize, least: Option<usize>, most: Option<usize>) -> Result<(), FieldError> {
    match (least, most) {
        (Some(least), _) if length < least => fault(format!(
            "holds {length} values, at least {least} are needed"
        )),
        (_, Some(most)) if length > most => {
            fault(format!("holds {length} values, at most {most} are allowed"))
        }
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

/// Checks one value: of a field, a list or a map.
fn check_value(
    value: &Value,
    kind: Option<&Kind>,
    rules: Option<&DynamicMessage>,
    depth: usize,
) -> Result<(), FieldError> {
    if let Some(rules) = rules {
        scalar::check(value, kind, rules).or_else(fault)?;
    }
    match value.as_message() {
        Some(inner) if !is_on(part(rules, "message").as_ref(), "skip") => {
            check_message(inner, depth)
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks the message in an `Any`, if its type is known.
fn check_any(any: &DynamicMessage, depth: usize) -> Result<(), FieldError> {
    let text = any.get_field_by_name("type_url");
    let bytes = any.get_field_by_name("value");
    let (Some(text), Some(bytes)) = (text.as_ref().and_then(|text| text.as_str()), bytes.as_ref())
    else {
        return Ok(());
    };
    let Some(bytes) = bytes.as_bytes() else {
        return Ok(());
    };
    codec()
        .decode(text, bytes)
        .map_or(Ok(()), |inner| check_message(&inner, depth))
}

#[cfg(test)]
mod tests {
    use navarch_proto::json::UnknownFields;
    use serde_json::json;

    use super::*;

    /// What is wrong with a message of this type and JSON.
    fn fault(message: &str, json: &serde_json::Value) -> Option<String> {
        let message = codec()
            .message_from_json(message, json, UnknownFields::Reject)
            .unwrap();
        check(&message).err().map(|error| error.to_string())
    }

    #[test]
    fn values_that_envoy_accepts_pass() {
        let route =
            json!({ "match": { "prefix": "/" }, "route": { "cluster": "a", "timeout": "0s" } });
        assert_eq!(fault("envoy.config.route.v3.Route", &route), None);
        let cluster = json!({ "name": "a", "connect_timeout": "1s", "type": "EDS" });
        assert_eq!(fault("envoy.config.cluster.v3.Cluster", &cluster), None);
    }

    #[test]
    fn oneofs_lists_texts_and_numbers_are_bounded() {
        let route = |json| fault("envoy.config.route.v3.Route", &json).unwrap_or_default();
        assert_eq!(
            route(json!({ "match": { "prefix": "/" } })),
            "none of the choices of action is set"
        );
        assert_eq!(
            route(json!({ "route": { "cluster": "a" } })),
            "match: is required"
        );

        assert_eq!(
            route(json!({ "match": {}, "route": { "cluster": "a" } })),
            "match: none of the choices of path_specifier is set"
        );
        let status = json!({ "match": { "prefix": "/" }, "direct_response": { "status": 99 } });
        assert!(route(status).starts_with("direct_response.status: 99 "));
        let host = json!({ "name": "a", "domains": [] });
        let host = fault("envoy.config.route.v3.VirtualHost", &host).unwrap();
        assert_eq!(host, "domains: holds 0 values, at least 1 are needed");

        let cluster = json!({ "name": "a", "connect_timeout": "0s" });
        let cluster = fault("envoy.config.cluster.v3.Cluster", &cluster).unwrap();
        assert!(cluster.starts_with("connect_timeout: "), "{cluster}");
    }

    #[test]
    fn envelopes_are_opened() {
        let filter = json!({ "name": "a", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "cluster": "a",
        } });
        let fault = fault("envoy.config.listener.v3.Filter", &filter).unwrap();
        assert!(fault.starts_with("typed_config.stat_prefix: "), "{fault}");
    }
}

//! Conversion between template values and JSON.
//!
//! Structs in Go are maps with the fields' Go names, plus the struct's JSON under the empty key,
//! which no template can reference: functions that serialize structs to JSON or YAML read the JSON
//! from there.

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::{TemplateError, Value};
use serde_json::Value as Json;

/// The key of a struct's JSON.
pub(super) const JSON: &str = "";

/// The maximum depth of a value.
const MAX_DEPTH: usize = 64;

/// The maximum number of parts of a value.
const MAX_PARTS: usize = 100_000;

pub(super) type Entries = BTreeMap<Arc<str>, Value>;

pub(super) fn map(entries: Entries) -> Value {
    Value::Map(Arc::new(entries))
}

pub(super) fn text(text: impl Into<Arc<str>>) -> Value {
    Value::String(text.into())
}

/// Converts plain data.
pub(super) fn of_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Float(number.as_f64().unwrap_or_default()),
        },
        Json::String(value) => text(value.as_str()),
        Json::Array(items) => Value::List(items.iter().map(of_json).collect()),
        Json::Object(fields) => map(fields
            .iter()
            .map(|(key, value)| (key.as_str().into(), of_json(value)))
            .collect()),
    }
}

/// Fields that are maps in Go, so their keys are not renamed.
const MAPS: [&str; 13] = [
    "labels",
    "annotations",
    "nodeSelector",
    "limits",
    "requests",
    "overhead",
    "matchLabels",
    "proxyMetadata",
    "runtimeValues",
    "volumeAttributes",
    "attributes",
    "customTags",
    "options",
];

/// Converts the JSON of a Go struct.
pub(super) fn of_struct(json: &Json) -> Value {
    match json {
        Json::Object(fields) => {
            let mut entries: Entries = fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| {
                    let plain = MAPS.contains(&key.as_str());
                    (
                        go_name(key).into(),
                        if plain {
                            of_json(value)
                        } else {
                            of_struct(value)
                        },
                    )
                })
                .collect();

            entries.insert(JSON.into(), text(super::super::go_json::text(json)));
            map(entries)
        }
        Json::Array(items) => Value::List(items.iter().map(of_struct).collect()),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => of_json(json),
    }
}

fn go_name(field: &str) -> String {
    match field {
        "uid" => return "UID".to_owned(),
        "ip" => return "IP".to_owned(),
        "tty" => return "TTY".to_owned(),
        "grpc" => return "GRPC".to_owned(),
        "csi" => return "CSI".to_owned(),
        "nfs" => return "NFS".to_owned(),
        "fsGroup" => return "FSGroup".to_owned(),
        "apiVersion" => return "APIVersion".to_owned(),
        _ => {}
    }

    for (prefix, name) in [("http", "HTTP"), ("tcp", "TCP"), ("dns", "DNS")] {
        if let Some(rest) = field.strip_prefix(prefix)
            && rest.starts_with(|first: char| first.is_ascii_uppercase())
        {
            return format!("{name}{rest}");
        }
    }

    let mut letters = field.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase())
        .into_iter()
        .chain(letters)
        .collect()
}

/// Converts a value to JSON.
///
/// # Errors
/// When the value exceeds the maximum depth or size.
pub(super) fn to_json(value: &Value) -> Result<Json, TemplateError> {
    let mut parts = 0;
    follow(value, 0, &mut parts)
}

fn follow(value: &Value, depth: usize, parts: &mut usize) -> Result<Json, TemplateError> {
    *parts += 1;
    if depth > MAX_DEPTH || *parts > MAX_PARTS {
        return Err(TemplateError::Exec("a value is too large".to_owned()));
    }

    Ok(match value {
        Value::Nil | Value::Function(_) => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(number) => Json::from(*number),
        Value::Uint(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::String(value) => Json::String(value.to_string()),
        Value::List(items) => Json::Array(
            items
                .iter()
                .map(|item| follow(item, depth + 1, parts))
                .collect::<Result<_, _>>()?,
        ),
        Value::Map(entries) => match entries.get(JSON).and_then(Value::as_str) {
            Some(json) => serde_json::from_str(json).unwrap_or(Json::Null),
            None => Json::Object(
                entries
                    .iter()
                    .map(|(key, value)| Ok((key.to_string(), follow(value, depth + 1, parts)?)))
                    .collect::<Result<_, TemplateError>>()?,
            ),
        },
    })
}

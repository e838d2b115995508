//! Conversion of JSON Schema with references to the structural schemas that Kubernetes requires.

use serde_json::{Map, Value, json};

/// Prefix of references.
const DEFINITIONS: &str = "#/$defs/";

/// The structural form of `schema`: one tree, each node with one type, and only keywords that
/// Kubernetes supports.
///
/// A definition must not contain itself; no kind's does.
pub(super) fn structural(schema: &Value, definitions: &Map<String, Value>) -> Value {
    let Some(schema) = schema.as_object() else {
        return free_object();
    };

    let target = target(schema, definitions).map(|target| structural(target, definitions));
    let mut out = target
        .as_ref()
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();

    for (key, value) in schema {
        let value = match key.as_str() {
            "$ref" | "default" | "title" | "$schema" | "propertyNames" => continue,
            "anyOf" if out.contains_key("type") => continue,
            "description" => json!(description(value.as_str().unwrap_or_default())),
            "type" => match kind(value, schema, &mut out) {
                Some(kind) => kind,
                None => continue,
            },
            "format" => match value.as_str() {
                // Kubernetes has no unsigned formats; for 32 bits the value is bounded instead.
                Some("uint32") => {
                    out.entry("maximum").or_insert(json!(u32::MAX));
                    continue;
                }
                Some("uint" | "uint8" | "uint16" | "uint64") => continue,
                _ => value.clone(),
            },
            "properties" => {
                let fields = value.as_object().into_iter().flatten();
                fields
                    .map(|(name, field)| (name.clone(), structural(field, definitions)))
                    .collect()
            }
            "additionalProperties" if *value == json!(true) => {
                out.insert(
                    "x-kubernetes-preserve-unknown-fields".to_owned(),
                    json!(true),
                );
                continue;
            }
            "items" | "additionalProperties" => structural(value, definitions),
            "patternProperties" => match value
                .as_object()
                .and_then(|patterns| patterns.values().next())
            {
                // Kubernetes does not support `patternProperties`: a rule checks the names.
                Some(value) => {
                    out.insert(
                        "additionalProperties".to_owned(),
                        structural(value, definitions),
                    );
                    continue;
                }
                None => continue,
            },
            _ => value.clone(),
        };

        out.insert(key.clone(), value);
    }

    if !out.contains_key("type") && !out.contains_key("x-kubernetes-int-or-string") {
        out.insert("type".to_owned(), json!("object"));
        out.insert(
            "x-kubernetes-preserve-unknown-fields".to_owned(),
            json!(true),
        );
    }

    Value::Object(out)
}

/// What `schema` refers to, alone or as the alternative to null.
fn target<'a>(
    schema: &Map<String, Value>,
    definitions: &'a Map<String, Value>,
) -> Option<&'a Value> {
    let reference = schema.get("$ref").or_else(|| {
        let mut choices = schema.get("anyOf")?.as_array()?.iter();
        choices.find_map(|choice| choice.get("$ref"))
    })?;
    definitions.get(reference.as_str()?.strip_prefix(DEFINITIONS)?)
}

/// The one type of `schema`. Numbers and truth values that may be absent may be null, as protobuf's
/// wrappers are.
fn kind(value: &Value, schema: &Map<String, Value>, out: &mut Map<String, Value>) -> Option<Value> {
    if schema.contains_key("x-kubernetes-int-or-string") {
        return None;
    }
    let Value::Array(kinds) = value else {
        return Some(value.clone());
    };
    let kind = kinds.iter().find(|kind| *kind != "null")?;
    if matches!(kind.as_str(), Some("integer" | "number" | "boolean"))
        && !schema.contains_key("nullable")
    {
        out.insert("nullable".to_owned(), json!(true));
    }
    Some(kind.clone())
}

/// Any object at all.
fn free_object() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A doc comment as a description: one paragraph, without links into the code.
fn description(text: &str) -> String {
    text.replace("[`", "`")
        .replace("`]", "`")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

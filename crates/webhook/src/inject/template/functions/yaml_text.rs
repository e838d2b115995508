//! Serializes values as block-style YAML, which templates indent and place next to other keys.

use serde_json::Value;

/// The YAML of a value, with a trailing newline.
pub(super) fn yaml_text(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => block(&mut out, value, 0),
        Value::Array(items) if !items.is_empty() => block(&mut out, value, 0),
        scalar => {
            out.push_str(&flow(scalar));
            out.push('\n');
        }
    }
    out
}

/// Appends a non-empty map or list.
fn block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                out.push_str(&" ".repeat(indent));
                out.push_str(&scalar_text(key));
                out.push(':');
                member(out, value, indent);
            }
        }
        Value::Array(items) => {
            for item in items {
                out.push_str(&" ".repeat(indent));
                out.push('-');
                out.push(' ');
                out.push_str(&flow(item));
                out.push('\n');
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Appends the value after a key.
fn member(out: &mut String, value: &Value, indent: usize) {
    let nested = match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    if nested {
        out.push('\n');
        block(out, value, indent + 2);
    } else {
        out.push(' ');
        out.push_str(&flow(value));
        out.push('\n');
    }
}

/// A value on one line: JSON, except for strings that need no quotes.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar_text(text),
        other => other.to_string(),
    }
}

/// A string, quoted if it could be parsed as another type.
fn scalar_text(text: &str) -> String {
    let mut letters = text.bytes();
    let plain = letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
        && letters
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'-'));
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null"
    );
    if plain && !word {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use navarch_api::yaml::{Schema, parse};

    #[test]
    fn written_yaml_parses_to_the_same() {
        for value in [
            json!({"a": {"b": ["1", 2, {"c": null}], "d": {}, "yes": "no"}, "e": "x: y", "1": true}),
            json!(["a\nb", [], {"k": "v"}]),
            json!("text"),
            json!(null),
            json!({}),
        ] {
            assert_eq!(parse(&yaml_text(&value), Schema::V1_1).unwrap(), value);
        }
        assert_eq!(
            yaml_text(&json!({"limits": {"cpu": "2"}})),
            "limits:\n  cpu: \"2\"\n"
        );
    }
}

//! The metadata of simulated nodes.

use prost_types::Struct;
use prost_types::value::Kind;
use serde_json::Value;

/// The metadata of a node with these fields.
pub(crate) fn of<const N: usize>(fields: [(&str, Value); N]) -> Struct {
    let fields = fields
        .into_iter()
        .map(|(key, value)| (key.to_owned(), wire(value)))
        .collect();
    Struct { fields }
}

/// A JSON value as a protobuf `Value`.
fn wire(value: Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text),
        Value::Array(values) => Kind::ListValue(prost_types::ListValue {
            values: values.into_iter().map(wire).collect(),
        }),
        Value::Object(fields) => Kind::StructValue(Struct {
            fields: fields.into_iter().map(|(k, v)| (k, wire(v))).collect(),
        }),
    };
    prost_types::Value { kind: Some(kind) }
}

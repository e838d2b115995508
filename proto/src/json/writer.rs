//! From messages to JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, ReflectMessage, Value as Field};
use serde_json::{Map, Number, Value};

use super::{ANY, JsonError, decode, is_well_known};

/// Up to here, every whole number has a `f64` of its own.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The JSON of `message`.
pub(super) fn message(message: &DynamicMessage) -> Result<Value, JsonError> {
    let descriptor = message.descriptor();
    if descriptor.full_name() == ANY {
        let any: prost_types::Any = message.transcode_to().map_err(JsonError::here)?;
        return self::any(descriptor.parent_pool(), &any.type_url, any.value.into());
    }
    if is_well_known(&descriptor) {
        well_known(message)
    } else {
        Ok(Value::Object(fields(message)?))
    }
}

/// The JSON of a message in its envelope.
pub(super) fn any(pool: &DescriptorPool, type_url: &str, value: Bytes) -> Result<Value, JsonError> {
    if type_url.is_empty() && value.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let content = decode(pool, type_url, value)?;
    let mut object =
        if is_well_known(&content.descriptor()) || content.descriptor().full_name() == ANY {
            Map::from_iter([("value".to_owned(), message(&content)?)])
        } else {
            fields(&content)?
        };
    object.insert("@type".to_owned(), Value::String(type_url.to_owned()));
    Ok(Value::Object(object))
}

/// The set fields of `message` by name.
fn fields(message: &DynamicMessage) -> Result<Map<String, Value>, JsonError> {
    let mut object = Map::new();
    for (field, value) in message.fields() {
        let json =
            self::field(value, &field.kind()).map_err(|error| error.under(field.json_name()))?;
        object.insert(field.json_name().to_owned(), json);
    }
    Ok(object)
}

/// The JSON of a field, or of one item of it.
fn field(value: &Field, kind: &Kind) -> Result<Value, JsonError> {
    Ok(match value {
        Field::Message(inner) => message(inner)?,
        Field::List(items) => Value::Array(list(items, kind)?),

        Field::Map(entries) => {
            let value_kind = kind
                .as_message()
                .map_or(Kind::Bool, |entry| entry.map_entry_value_field().kind());

            let mut object = Map::new();
            for (key, value) in entries {
                let key = key_text(key);
                let json = field(value, &value_kind).map_err(|error| error.under(&key))?;
                object.insert(key, json);
            }

            Value::Object(object)
        }

        Field::Bool(flag) => Value::Bool(*flag),
        Field::I32(number) => Value::from(*number),
        Field::U32(number) => Value::from(*number),
        Field::I64(number) => Value::String(number.to_string()),
        Field::U64(number) => Value::String(number.to_string()),
        // By way of its text: 0.1 is not to become 0.10000000149011612.
        Field::F32(number) => float(number.to_string().parse().unwrap_or(f64::NAN)),
        Field::F64(number) => float(*number),
        Field::String(text) => Value::String(text.clone()),
        Field::Bytes(bytes) => Value::String(STANDARD.encode(bytes)),
        Field::EnumNumber(number) => choice(*number, kind),
    })
}

fn list(items: &[Field], kind: &Kind) -> Result<Vec<Value>, JsonError> {
    let item =
        |(i, item)| field(item, kind).map_err(|error: JsonError| error.under(&format!("[{i}]")));
    items.iter().enumerate().map(item).collect()
}

/// The JSON of an enum: its value's name, or the number of a value without one.
fn choice(number: i32, kind: &Kind) -> Value {
    let Some(choices) = kind.as_enum() else {
        return Value::from(number);
    };
    if choices.full_name() == "google.protobuf.NullValue" {
        return Value::Null;
    }
    choices.get_value(number).map_or_else(
        || Value::from(number),
        |value| Value::String(value.name().to_owned()),
    )
}

/// The key of a map entry; JSON has texts only.
fn key_text(key: &prost_reflect::MapKey) -> String {
    use prost_reflect::MapKey;
    match key {
        MapKey::Bool(flag) => flag.to_string(),
        MapKey::I32(number) => number.to_string(),
        MapKey::I64(number) => number.to_string(),
        MapKey::U32(number) => number.to_string(),
        MapKey::U64(number) => number.to_string(),
        MapKey::String(text) => text.clone(),
    }
}

/// The JSON of a message that has a form of its own.
fn well_known(message: &DynamicMessage) -> Result<Value, JsonError> {
    if let Some(Field::F32(number)) = message.get_field_by_name("value").as_deref() {
        return field(&Field::F32(*number), &Kind::Float);
    }
    let mut json = serde_json::to_value(message).map_err(JsonError::here)?;
    shorten_numbers(&mut json);
    Ok(json)
}

/// The JSON of a floating-point number: whole ones without a fraction, as `protojson` prints them.
fn float(number: f64) -> Value {
    if number.is_nan() {
        return Value::from("NaN");
    }

    if number.is_infinite() {
        return Value::from(if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        });
    }

    let negative_zero = number == 0.0 && number.is_sign_negative();
    if number.fract() == 0.0 && number.abs() <= MAX_EXACT && !negative_zero {
        // The printed form of such a number is its digits alone.
        if let Ok(whole) = format!("{number:.0}").parse::<i64>() {
            return Value::from(whole);
        }
    }

    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

/// Applies [`float`] to all numbers of a `Struct`.
fn shorten_numbers(json: &mut Value) {
    match json {
        Value::Number(number) if number.is_f64() => {
            if let Some(number) = number.as_f64() {
                *json = float(number);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten_numbers),
        Value::Object(fields) => fields.values_mut().for_each(shorten_numbers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

//! From JSON to messages.

use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MapKey,
    MessageDescriptor, Value as Field,
};
use serde_json::{Map, Value};
use std::collections::HashMap;

use super::{ANY, JsonError, UnknownFields, descriptor, is_well_known};
use crate::canonical;

/// Reads a message of the type `descriptor`.
pub(super) fn message(
    descriptor: &MessageDescriptor,
    json: &Value,
    unknown: UnknownFields,
) -> Result<DynamicMessage, JsonError> {
    if descriptor.full_name() == ANY {
        let any = any(descriptor.parent_pool(), json, unknown)?;
        let mut message = DynamicMessage::new(descriptor.clone());
        message.transcode_from(&any).map_err(JsonError::here)?;
        return Ok(message);
    }
    if is_well_known(descriptor) {
        return delegate(descriptor, json, unknown);
    }
    object(descriptor, as_object(json)?, unknown)
}

/// Reads an `Any`; one without a type must be empty.
pub(super) fn any(
    pool: &DescriptorPool,
    json: &Value,
    unknown: UnknownFields,
) -> Result<prost_types::Any, JsonError> {
    let mut fields = as_object(json)?.clone();
    let type_url = match fields.remove("@type") {
        Some(Value::String(type_url)) => type_url,
        None if fields.is_empty() => return Ok(prost_types::Any::default()),
        Some(_) | None => return Err(JsonError::here("has no \"@type\" that says what it is")),
    };
    let descriptor = descriptor(pool, &type_url)?;
    let content = if is_well_known(&descriptor) || descriptor.full_name() == ANY {
        let value = fields
            .remove("value")
            .unwrap_or_else(|| Value::Object(Map::new()));
        if let (Some(name), UnknownFields::Reject) = (fields.keys().next(), unknown) {
            return Err(JsonError::here("is not a field of it").under(name));
        }
        message(&descriptor, &value, unknown).map_err(|error| error.under("value"))?
    } else {
        object(&descriptor, &fields, unknown)?
    };

    Ok(prost_types::Any {
        type_url,
        value: canonical::encode(&content),
    })
}

/// The message whose fields `json` has.
fn object(
    descriptor: &MessageDescriptor,
    json: &Map<String, Value>,
    unknown: UnknownFields,
) -> Result<DynamicMessage, JsonError> {
    let mut message = DynamicMessage::new(descriptor.clone());

    for (name, value) in json {
        let known = descriptor
            .get_field_by_json_name(name)
            .or_else(|| descriptor.get_field_by_name(name));
        let Some(field) = known else {
            match unknown {
                UnknownFields::Skip => continue,
                UnknownFields::Reject => {
                    let reason = format!("is not a field of {}", descriptor.full_name());
                    return Err(JsonError::here(reason).under(name));
                }
            }
        };

        if value.is_null() && !takes_null(&field) {
            continue;
        }

        if let Some(other) = other_choice(&message, &field) {
            return Err(
                JsonError::here(format!("cannot be set together with {other}")).under(name),
            );
        }

        let value = self::field(&field, value, unknown).map_err(|error| error.under(name))?;
        message.set_field(&field, value);
    }

    Ok(message)
}

/// Whether `null` is a value of the field, rather than its absence.
fn takes_null(field: &FieldDescriptor) -> bool {
    let kind = field.kind();
    let message = kind
        .as_message()
        .is_some_and(|message| message.full_name() == "google.protobuf.Value");
    let choice = kind
        .as_enum()
        .is_some_and(|choices| choices.full_name() == "google.protobuf.NullValue");
    message || choice
}

/// A field that is set and excludes this one.
fn other_choice(message: &DynamicMessage, field: &FieldDescriptor) -> Option<String> {
    let oneof = field.containing_oneof()?;
    let other = oneof
        .fields()
        .find(|other| other.number() != field.number() && message.has_field(other))?;
    Some(other.json_name().to_owned())
}

fn field(
    field: &FieldDescriptor,
    json: &Value,
    unknown: UnknownFields,
) -> Result<Field, JsonError> {
    let Kind::Message(inner) = field.kind() else {
        return plain(field, json, unknown);
    };

    if field.is_map() {
        return map(&inner, json, unknown);
    }

    if !field.is_list() {
        return Ok(Field::Message(message(&inner, json, unknown)?));
    }

    let items = json
        .as_array()
        .ok_or_else(|| JsonError::here("must be a list"))?;
    let read =
        |(i, json)| message(&inner, json, unknown).map_err(|error| error.under(&format!("[{i}]")));
    let items: Result<Vec<_>, _> = items.iter().enumerate().map(read).collect();

    Ok(Field::List(
        items?.into_iter().map(Field::Message).collect(),
    ))
}

fn map(
    entry: &MessageDescriptor,
    json: &Value,
    unknown: UnknownFields,
) -> Result<Field, JsonError> {
    let key_kind = entry.map_entry_key_field().kind();
    let value_field = entry.map_entry_value_field();
    let mut entries = HashMap::new();
    for (name, value) in as_object(json)? {
        let read = || Ok((key(&key_kind, name)?, field(&value_field, value, unknown)?));
        let (key, value) = read().map_err(|error: JsonError| error.under(name))?;
        entries.insert(key, value);
    }
    Ok(Field::Map(entries))
}

/// The key of a map entry; JSON has texts only.
fn key(kind: &Kind, text: &str) -> Result<MapKey, JsonError> {
    let key = match kind {
        Kind::String => Some(MapKey::String(text.to_owned())),
        Kind::Bool => text.parse().ok().map(MapKey::Bool),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => text.parse().ok().map(MapKey::I32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => text.parse().ok().map(MapKey::I64),
        Kind::Uint32 | Kind::Fixed32 => text.parse().ok().map(MapKey::U32),
        Kind::Uint64 | Kind::Fixed64 => text.parse().ok().map(MapKey::U64),
        Kind::Double | Kind::Float | Kind::Bytes | Kind::Message(_) | Kind::Enum(_) => None,
    };
    key.ok_or_else(|| JsonError::here("is not a key that the map can have"))
}

/// Reads the value of a field whose type is no message, by reading a message with that field alone.
fn plain(
    field: &FieldDescriptor,
    json: &Value,
    unknown: UnknownFields,
) -> Result<Field, JsonError> {
    let alone = Value::Object(Map::from_iter([(
        field.json_name().to_owned(),
        json.clone(),
    )]));
    let mut message = delegate(field.parent_message(), &alone, unknown)?;
    Ok(message
        .take_field(field)
        .unwrap_or_else(|| Field::default_value_for_field(field)))
}

/// Lets `prost-reflect` read a message that holds no `Any`.
fn delegate(
    descriptor: &MessageDescriptor,
    json: &Value,
    unknown: UnknownFields,
) -> Result<DynamicMessage, JsonError> {
    let options = DeserializeOptions::new().deny_unknown_fields(unknown == UnknownFields::Reject);
    DynamicMessage::deserialize_with_options(descriptor.clone(), json, &options)
        .map_err(JsonError::here)
}

/// The fields of an object.
fn as_object(json: &Value) -> Result<&Map<String, Value>, JsonError> {
    json.as_object()
        .ok_or_else(|| JsonError::here("must be an object"))
}

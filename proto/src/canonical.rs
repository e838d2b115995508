//! Canonical bytes of a message that has only a descriptor, no generated type.
//!
//! `prost-reflect` keeps maps in hash order, so its own encoding of one message differs from run to
//! run. This encoder has the order of the generated types: fields by number (a oneof's by its
//! lowest), maps by key, the same inside of `Any`.

use bytes::{BufMut, Bytes};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};

/// The full name of the message that can hold any other.
const ANY: &str = "google.protobuf.Any";

/// Encodes `message`; equal messages give equal bytes.
pub(crate) fn encode(message: &DynamicMessage) -> Vec<u8> {
    let mut out = Vec::new();
    put_message(message, &mut out);
    out
}

/// Appends the fields of `message`.
fn put_message(message: &DynamicMessage, out: &mut Vec<u8>) {
    if let Some(any) = reencoded_any(message) {
        // Only the envelope is left to encode, and that has no maps.
        any.encode_raw(out);
        return;
    }
    let mut fields: Vec<_> = message.fields().collect();
    fields.sort_by_key(|(field, _)| position(field));
    for (field, value) in fields {
        put_field(message, &field, value, out);
    }
    put_unknown(message, out);
}

/// Where the generated types put a field: prost writes a oneof at the number of its lowest member.
fn position(field: &FieldDescriptor) -> u32 {
    let lowest = field
        .containing_oneof()
        .and_then(|oneof| oneof.fields().map(|member| member.number()).min());
    lowest.unwrap_or_else(|| field.number())
}

/// Appends one field, which is set.
fn put_field(message: &DynamicMessage, field: &FieldDescriptor, value: &Value, out: &mut Vec<u8>) {
    if let Some(entries) = value.as_map() {
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by(|(a, _), (b, _)| compare_keys(a, b));
        for (key, value) in entries {
            put_entry(field, key, value, out);
        }
    } else if field.kind().as_message().is_some() {
        let items = value.as_list().unwrap_or(std::slice::from_ref(value));
        for inner in items.iter().filter_map(Value::as_message) {
            put_bytes(field.number(), &encode(inner), out);
        }
    } else {
        // Numbers, texts and lists of them have one encoding.
        let mut alone = DynamicMessage::new(message.descriptor());
        alone.set_field(field, value.clone());
        alone.encode_raw(out);
    }
}

/// Appends already encoded content as the field `number`.
fn put_bytes(number: u32, content: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.put_slice(content);
}

/// Appends one entry of the map `field`. Like the generated types, it leaves out a key or value
/// that is the default.
fn put_entry(field: &FieldDescriptor, key: &MapKey, value: &Value, out: &mut Vec<u8>) {
    let Kind::Message(entry) = field.kind() else {
        return;
    };

    let key_field = entry.map_entry_key_field();
    let value_field = entry.map_entry_value_field();
    let mut alone = DynamicMessage::new(entry);
    if !key.is_default(&key_field.kind()) {
        alone.set_field(&key_field, key.clone().into());
    }

    let mut content = Vec::new();

    if let Some(inner) = value.as_message() {
        alone.encode_raw(&mut content);
        let inner = encode(inner);
        if !inner.is_empty() {
            put_bytes(value_field.number(), &inner, &mut content);
        }
    } else {
        if !value.is_default(&value_field.kind()) {
            alone.set_field(&value_field, value.clone());
        }
        alone.encode_raw(&mut content);
    }

    put_bytes(field.number(), &content, out);
}

/// Orders the keys of a map, which are all of one type, as a `BTreeMap` of the generated types
/// does.
fn compare_keys(a: &MapKey, b: &MapKey) -> std::cmp::Ordering {
    match (a, b) {
        (MapKey::String(a), MapKey::String(b)) => a.cmp(b),
        (MapKey::Bool(a), MapKey::Bool(b)) => a.cmp(b),
        (a, b) => whole_number(a).cmp(&whole_number(b)),
    }
}

/// A numeric key; keys that are not numbers never come here.
fn whole_number(key: &MapKey) -> i128 {
    match key {
        MapKey::I32(number) => i128::from(*number),
        MapKey::I64(number) => i128::from(*number),
        MapKey::U32(number) => i128::from(*number),
        MapKey::U64(number) => i128::from(*number),
        MapKey::Bool(flag) => i128::from(*flag),
        MapKey::String(_) => 0,
    }
}

/// `message` with its content encoded anew, if it is an `Any` of a type in the same pool and its
/// content is sound.
fn reencoded_any(message: &DynamicMessage) -> Option<prost_types::Any> {
    if message.descriptor().full_name() != ANY {
        return None;
    }
    let any: prost_types::Any = message.transcode_to().ok()?;
    let (_, name) = any.type_url.rsplit_once('/')?;
    let descriptor = message
        .descriptor()
        .parent_pool()
        .get_message_by_name(name)?;
    let content = DynamicMessage::decode(descriptor, Bytes::from(any.value)).ok()?;
    Some(prost_types::Any {
        type_url: any.type_url,
        value: encode(&content),
    })
}

/// Appends what the descriptor does not know, as it came.
fn put_unknown(message: &DynamicMessage, out: &mut Vec<u8>) {
    if message.unknown_fields().next().is_none() && message.extensions().next().is_none() {
        return;
    }
    let mut rest = message.clone();
    rest.take_fields().for_each(drop);
    rest.encode_raw(out);
}

#[cfg(test)]
mod tests {
    use super::encode;
    use crate::any::{pack, type_url};
    use crate::envoy::config::core::v3::{HealthStatus, HealthStatusSet, Metadata};
    use crate::envoy::config::listener::v3::{Filter, filter::ConfigType};
    use crate::istio::networking::nds::v1::{NameTable, name_table::NameInfo};
    use crate::json::Codec;
    use prost::{Message, Name};
    use prost_types::{Struct, Value, value::Kind};
    use std::collections::BTreeMap;

    fn many_keys() -> BTreeMap<String, Value> {
        (0..40)
            .map(|i| {
                (
                    format!("key-{i}"),
                    Value {
                        kind: Some(Kind::NumberValue(f64::from(i))),
                    },
                )
            })
            .collect()
    }

    fn recoded<M: Message + Name>(message: &M) -> Vec<u8> {
        encode(
            &Codec::new()
                .decode(&type_url::<M>(), &message.encode_to_vec())
                .unwrap(),
        )
    }

    #[test]
    fn maps_have_the_order_of_the_generated_types() {
        let filter_metadata = BTreeMap::from([
            (
                "istio".to_owned(),
                Struct {
                    fields: many_keys(),
                },
            ),
            (
                String::new(),
                Struct {
                    fields: many_keys(),
                },
            ),
            ("empty".to_owned(), Struct::default()),
        ]);

        let metadata = Metadata {
            filter_metadata,
            ..Metadata::default()
        };
        assert_eq!(recoded(&metadata), metadata.encode_to_vec());
    }

    #[test]
    fn messages_inside_any_are_reencoded() {
        let table = NameTable {
            table: (0..40)
                .map(|i| (format!("host-{i}"), NameInfo::default()))
                .collect(),
        };
        let filter = Filter {
            name: "nested".to_owned(),
            config_type: Some(ConfigType::TypedConfig(pack(&table))),
        };
        assert_eq!(recoded(&filter), filter.encode_to_vec());
    }

    #[test]
    fn lists_of_numbers_are_packed_by_both() {
        let statuses = vec![HealthStatus::Healthy.into(), HealthStatus::Unknown.into()];
        let set = HealthStatusSet { statuses };
        assert_eq!(set.encode_to_vec(), [0x0a, 2, 1, 0]);
        assert_eq!(recoded(&set), set.encode_to_vec());
    }

    #[test]
    fn fields_unknown_to_the_descriptor_are_kept() {
        let mut bytes = Filter {
            name: "known".to_owned(),
            config_type: None,
        }
        .encode_to_vec();
        bytes.extend_from_slice(&[0x98, 0x75, 0x01]);
        let message = Codec::new().decode(&type_url::<Filter>(), &bytes).unwrap();
        assert_eq!(encode(&message), bytes);
    }
}

//! Writing messages as protobuf's JSON: fields that hold their default are left out, what is explicitly there is not.

use serde::ser::{self, Serialize};
use serde_json::{Map, Number, Value};

/// A message in the form that istiod's `protomarshal.Marshal` gives it.
///
/// Scalars, lists, maps and enums at their default are left out; so are messages and wrappers that are not there, but
/// one that is there is written, be it empty or zero. Integers of 64 bits are texts.
#[must_use]
pub fn to_proto_json(message: &impl Serialize) -> Value {
    // Types of messages are plain data: nothing of them can fail to be written.
    message.serialize(Writer { explicit: true }).ok().flatten().unwrap_or_default()
}

/// Writes one value; nothing where it is its type's default and not there explicitly.
#[derive(Clone, Copy)]
struct Writer {
    /// Whether the value is there explicitly: as a wrapper, in a list or in a map.
    explicit: bool,
}

/// Why a value has no JSON form.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WriteError(String);

impl ser::Error for WriteError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// What is written, or nothing.
type Written = Result<Option<Value>, WriteError>;

impl Writer {
    /// The value, unless it may be left out.
    #[expect(clippy::unnecessary_wraps, reason = "serde wants a result of every method")]
    fn unless_default(self, is_default: bool, value: impl Into<Value>) -> Written {
        Ok((self.explicit || !is_default).then(|| value.into()))
    }
}

/// A writer for what is in a list or a map.
const EXPLICIT: Writer = Writer { explicit: true };

impl ser::Serializer for Writer {
    type Ok = Option<Value>;
    type Error = WriteError;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = ser::Impossible<Option<Value>, WriteError>;
    type SerializeMap = Entries;
    type SerializeStruct = Fields;
    type SerializeStructVariant = ser::Impossible<Option<Value>, WriteError>;

    fn serialize_bool(self, value: bool) -> Written {
        self.unless_default(!value, value)
    }

    fn serialize_i8(self, value: i8) -> Written {
        self.unless_default(value == 0, value)
    }

    fn serialize_i16(self, value: i16) -> Written {
        self.unless_default(value == 0, value)
    }

    fn serialize_i32(self, value: i32) -> Written {
        self.unless_default(value == 0, value)
    }

    fn serialize_i64(self, value: i64) -> Written {
        self.unless_default(value == 0, value.to_string())
    }

    fn serialize_u8(self, value: u8) -> Written {
        self.unless_default(value == 0, value)
    }

    fn serialize_u16(self, value: u16) -> Written {
        self.unless_default(value == 0, value)
    }

    fn serialize_u32(self, value: u32) -> Written {
        self.unless_default(value == 0, value)
    }

    fn serialize_u64(self, value: u64) -> Written {
        self.unless_default(value == 0, value.to_string())
    }

    fn serialize_f32(self, value: f32) -> Written {
        self.serialize_f64(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> Written {
        self.unless_default(value == 0.0, number(value))
    }

    fn serialize_char(self, value: char) -> Written {
        self.unless_default(false, value.to_string())
    }

    fn serialize_str(self, value: &str) -> Written {
        self.unless_default(value.is_empty(), value)
    }

    fn serialize_bytes(self, _: &[u8]) -> Written {
        Err(ser::Error::custom("bytes are not written"))
    }

    fn serialize_none(self) -> Written {
        Ok(None)
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Written {
        value.serialize(EXPLICIT)
    }

    fn serialize_unit(self) -> Written {
        Ok(None)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Written {
        self.unless_default(false, Value::Object(Map::new()))
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, variant: &'static str) -> Written {
        self.unless_default(index == 0, variant)
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, _: &'static str, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Written {
        Err(ser::Error::custom(format!("{name} is no message")))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List, WriteError> {
        Ok(List { writer: self, values: Vec::new() })
    }

    fn serialize_tuple(self, _: usize) -> Result<List, WriteError> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List, WriteError> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, WriteError> {
        Err(ser::Error::custom(format!("{name} is no message")))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Entries, WriteError> {
        Ok(Entries { writer: self, values: Map::new(), key: String::new() })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields, WriteError> {
        Ok(Fields(Map::new()))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, WriteError> {
        Err(ser::Error::custom(format!("{name} is no message")))
    }
}

/// A number as JSON; whole ones without a fraction.
fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole, and below what 64 bits hold")]
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or_else(|| Value::from(value.to_string()), Value::Number)
}

/// A list that grows.
struct List {
    /// How it is written.
    writer: Writer,
    /// What there is of it.
    values: Vec<Value>,
}

impl List {
    /// Adds a value.
    fn add<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), WriteError> {
        self.values.push(value.serialize(EXPLICIT)?.unwrap_or_default());
        Ok(())
    }

    /// The whole list.
    fn finish(self) -> Written {
        self.writer.unless_default(self.values.is_empty(), self.values)
    }
}

impl ser::SerializeSeq for List {
    type Ok = Option<Value>;
    type Error = WriteError;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), WriteError> {
        self.add(value)
    }

    fn end(self) -> Written {
        self.finish()
    }
}

impl ser::SerializeTuple for List {
    type Ok = Option<Value>;
    type Error = WriteError;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), WriteError> {
        self.add(value)
    }

    fn end(self) -> Written {
        self.finish()
    }
}

impl ser::SerializeTupleStruct for List {
    type Ok = Option<Value>;
    type Error = WriteError;

    fn serialize_field<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), WriteError> {
        self.add(value)
    }

    fn end(self) -> Written {
        self.finish()
    }
}

/// A map that grows.
struct Entries {
    /// How it is written.
    writer: Writer,
    /// What there is of it.
    values: Map<String, Value>,
    /// The key of the value that comes next.
    key: String,
}

impl ser::SerializeMap for Entries {
    type Ok = Option<Value>;
    type Error = WriteError;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), WriteError> {
        self.key = match key.serialize(EXPLICIT)? {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => String::new(),
        };
        Ok(())
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), WriteError> {
        let value = value.serialize(EXPLICIT)?.unwrap_or_default();
        self.values.insert(std::mem::take(&mut self.key), value);
        Ok(())
    }

    fn end(self) -> Written {
        self.writer.unless_default(self.values.is_empty(), self.values)
    }
}

/// A message that grows.
struct Fields(Map<String, Value>);

impl ser::SerializeStruct for Fields {
    type Ok = Option<Value>;
    type Error = WriteError;

    fn serialize_field<T: ?Sized + Serialize>(&mut self, key: &'static str, value: &T) -> Result<(), WriteError> {
        if let Some(value) = value.serialize(Writer { explicit: false })? {
            self.0.insert(key.to_owned(), value);
        }
        Ok(())
    }

    fn end(self) -> Written {
        Ok(Some(Value::Object(self.0)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::to_proto_json;
    use crate::api::mesh::ProxyConfig;

    #[test]
    fn only_what_is_not_default_or_is_there_explicitly_is_written() {
        assert_eq!(to_proto_json(&ProxyConfig::default()), json!({}));
        let text = "{tracing: {zipkin: {}, sampling: 100, stackdriver: {maxNumberOfAttributes: 0}}, concurrency: 0, \
            statsCompression: false, proxyMetadata: {A: ''}, terminationDrainDuration: 0.5s, interceptionMode: TPROXY, \
            envoyAccessLogService: {tlsSettings: {mode: DISABLE}}}";
        let config = ProxyConfig::default().apply(text).unwrap().value;
        assert_eq!(
            to_proto_json(&config),
            json!({
                "tracing": { "zipkin": {}, "sampling": 100, "stackdriver": { "maxNumberOfAttributes": "0" } },
                "concurrency": 0,
                "statsCompression": false,
                "proxyMetadata": { "A": "" },
                "terminationDrainDuration": "0.500s",
                "interceptionMode": "TPROXY",
                "envoyAccessLogService": { "tlsSettings": {} },
            })
        );
    }
}

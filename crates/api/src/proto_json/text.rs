//! Encoding of messages as the text of protobuf's JSON, in the order of the protos. Zero values are
//! omitted.
//!
//! A scalar with presence (`Option`) is encoded whenever it is set. Fields are encoded in the order
//! in which their types declare them, which is that of the protos.

use std::fmt::Display;

use serde::ser::{
    Error as _, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple,
    Serializer,
};
use serde_json::{Error, Value};

use navarch_base::go_text::write_json_string;

/// Encodes a message as a JSON value, which has no order: the same as the parsed output of istiod's
/// `protomarshal.Marshal`.
///
/// # Panics
/// If the type is no message: it has a map whose keys are not texts, or is nested deeper than the
/// text of any object may be. Both are mistakes in the type, which no input causes.
#[must_use]
pub fn to_proto_json<T: Serialize>(message: &T) -> Value {
    let text = to_proto_json_text(message).expect("all map keys of messages are texts");
    serde_json::from_str(&text).expect("a message is nested less deeply than the object it is in")
}

/// Encodes a message as JSON; [`to_proto_json`] returns the same as a value.
///
/// # Errors
/// When the message holds what JSON cannot: a map whose keys are not texts.
pub fn to_proto_json_text<T: Serialize>(message: &T) -> Result<String, Error> {
    Ok(message.serialize(Writer(Within::Message))?.text)
}

/// An encoded value.
#[derive(Debug)]
struct JsonText {
    text: String,
    /// Whether it is the zero value of its type.
    zero: bool,
}

impl JsonText {
    /// Encodes a value whose `Display` output is its JSON.
    fn plain(value: impl Display, zero: bool) -> Self {
        Self {
            text: value.to_string(),
            zero,
        }
    }
}

/// A text in quotes.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_json_string(&mut out, text);
    out
}

/// Writes one value.
struct Writer(Within);

/// The container of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// A message, in which 64-bit integers are strings.
    Message,
    /// A map. A map with such integers is a `google.protobuf.Struct`, in which they are numbers.
    Map,
}

/// Encodes scalars whose `Display` output is their JSON.
macro_rules! plain {
    ($($method:ident($type:ty))*) => {
        $(
            fn $method(self, value: $type) -> Result<JsonText, Error> {
                Ok(JsonText::plain(value, value == <$type>::default()))
            }
        )*
    };
}

/// Rejects types that no message contains.
macro_rules! foreign {
    ($($method:ident($($arg:ident: $type:ty),*) -> $ok:ty;)*) => {
        $(
            fn $method(self, $($arg: $type),*) -> Result<$ok, Error> {
                $(let _ = $arg;)*
                Err(Error::custom(concat!("no message has a ", stringify!($method))))
            }
        )*
    };
}

impl Writer {
    /// A 64-bit integer.
    fn wide(&self, value: impl Display, zero: bool) -> JsonText {
        match self.0 {
            Within::Message => JsonText::plain(format_args!("\"{value}\""), zero),
            Within::Map => JsonText::plain(value, zero),
        }
    }
}

impl Serializer for Writer {
    type Ok = JsonText;
    type Error = Error;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = Impossible<JsonText, Error>;
    type SerializeTupleVariant = Impossible<JsonText, Error>;
    type SerializeMap = Fields;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Impossible<JsonText, Error>;

    plain! {
        serialize_bool(bool) serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_u8(u8) serialize_u16(u16)
        serialize_u32(u32)
    }

    fn serialize_f32(self, value: f32) -> Result<JsonText, Error> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<JsonText, Error> {
        Ok(match (value.is_finite(), value.is_nan()) {
            (true, _) => JsonText::plain(value, value == 0.0),
            (false, true) => JsonText::plain("\"NaN\"", false),
            (false, false) => JsonText::plain(
                if value > 0.0 {
                    "\"Infinity\""
                } else {
                    "\"-Infinity\""
                },
                false,
            ),
        })
    }

    foreign! {
        serialize_bytes(value: &[u8]) -> JsonText;
        serialize_tuple_struct(name: &'static str, len: usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, len: usize)
            -> Self::SerializeTupleVariant;
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, len: usize)
            -> Self::SerializeStructVariant;
    }

    fn serialize_i64(self, value: i64) -> Result<JsonText, Error> {
        Ok(self.wide(value, value == 0))
    }

    fn serialize_u64(self, value: u64) -> Result<JsonText, Error> {
        Ok(self.wide(value, value == 0))
    }

    fn serialize_char(self, value: char) -> Result<JsonText, Error> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<JsonText, Error> {
        Ok(JsonText {
            text: quoted(value),
            zero: value.is_empty(),
        })
    }

    fn serialize_none(self) -> Result<JsonText, Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<JsonText, Error> {
        Ok(JsonText {
            zero: false,
            ..value.serialize(self)?
        })
    }

    fn serialize_unit(self) -> Result<JsonText, Error> {
        Ok(JsonText::plain("null", true))
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<JsonText, Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<JsonText, Error> {
        Ok(JsonText {
            text: quoted(variant),
            zero: index == 0,
        })
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<JsonText, Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<JsonText, Error> {
        let mut fields = Fields::default();
        fields.write(variant, value, Zero::Kept)?;
        fields.finish(false)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List, Error> {
        Ok(List {
            text: String::new(),
            within: self.0,
        })
    }

    fn serialize_tuple(self, _: usize) -> Result<List, Error> {
        Ok(List {
            text: String::new(),
            within: self.0,
        })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Fields, Error> {
        Ok(Fields::default())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields, Error> {
        Ok(Fields::default())
    }
}

/// The items of a list so far.
#[derive(Debug)]
struct List {
    text: String,
    /// The container of the list.
    within: Within,
}

impl List {
    /// Appends an item.
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text
            .push_str(&value.serialize(Writer(self.within))?.text);
        Ok(())
    }

    /// The whole list.
    fn finish(self) -> JsonText {
        JsonText {
            zero: self.text.is_empty(),
            text: format!("[{}]", self.text),
        }
    }
}

impl SerializeSeq for List {
    type Ok = JsonText;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.push(value)
    }

    fn end(self) -> Result<JsonText, Error> {
        Ok(self.finish())
    }
}

impl SerializeTuple for List {
    type Ok = JsonText;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.push(value)
    }

    fn end(self) -> Result<JsonText, Error> {
        Ok(self.finish())
    }
}

/// The handling of a member with the value zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zero {
    /// It is encoded.
    Kept,
    /// It is omitted.
    Dropped,
}

/// The members of an object so far.
#[derive(Debug, Default)]
struct Fields {
    text: String,
    /// The key of the next value of a map, as JSON.
    key: String,
}

impl Fields {
    /// Appends a member.
    fn write<T: Serialize + ?Sized>(
        &mut self,
        key: &str,
        value: &T,
        zero: Zero,
    ) -> Result<(), Error> {
        let written = value.serialize(Writer(Within::Message))?;
        if written.zero && zero == Zero::Dropped {
            return Ok(());
        }
        self.push(&quoted(key), &written.text);
        Ok(())
    }

    /// Appends an encoded member.
    fn push(&mut self, key: &str, value: &str) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(key);
        self.text.push(':');
        self.text.push_str(value);
    }

    /// The whole object.
    fn finish(self, zero: bool) -> Result<JsonText, Error> {
        Ok(JsonText {
            zero,
            text: format!("{{{}}}", self.text),
        })
    }
}

impl SerializeMap for Fields {
    type Ok = JsonText;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = key.serialize(Writer(Within::Map))?.text;
        if self.key.starts_with('"') {
            Ok(())
        } else {
            Err(Error::custom("a key is not a text"))
        }
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let key = std::mem::take(&mut self.key);
        let value = value.serialize(Writer(Within::Map))?;
        self.push(&key, &value.text);
        Ok(())
    }

    fn end(self) -> Result<JsonText, Error> {
        let zero = self.text.is_empty();
        self.finish(zero)
    }
}

impl SerializeStruct for Fields {
    type Ok = JsonText;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.write(key, value, Zero::Dropped)
    }

    fn end(self) -> Result<JsonText, Error> {
        self.finish(false)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mesh::ProxyConfig;

    #[test]
    fn zeros_are_omitted_unless_presence_is_tracked() {
        let text = concat!(
            r#"{"concurrency":0,"tracing":{"stackdriver":{"maxNumberOfAttributes":"7"},"sampling":0.5},"#,
            r#""proxyMetadata":{"A":"","B":"\u003c"},"extraStatTags":["x"],"holdApplicationUntilProxyStarts":false}"#
        );
        let config = ProxyConfig::default().apply(text).unwrap().value;
        assert_eq!(to_proto_json_text(&config).unwrap(), text);
        assert_eq!(to_proto_json_text(&ProxyConfig::default()).unwrap(), "{}");
        let mode = ProxyConfig::default()
            .apply("interceptionMode: TPROXY")
            .unwrap()
            .value;
        assert_eq!(
            to_proto_json_text(&mode).unwrap(),
            r#"{"interceptionMode":"TPROXY"}"#
        );
    }

    #[test]
    fn only_set_or_non_default_fields_are_written() {
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

    #[test]
    fn numbers_of_a_struct_are_numbers() {
        let value = json!({ "a": 1, "b": [0, -2, 2.5], "c": { "d": null, "e": false } });
        assert_eq!(to_proto_json(&value), value);
    }

    #[test]
    fn the_deepest_value_that_objects_can_have_is_encoded() {
        // 127 levels are the limit of serde_json, which reads objects.
        let text = format!("{}{}", "[".repeat(127), "]".repeat(127));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(to_proto_json(&value), value);
    }

    #[test]
    #[should_panic(expected = "a key is not a text")]
    fn a_type_that_is_no_message_is_not_encoded_as_null() {
        _ = to_proto_json(&std::collections::BTreeMap::from([(1, 2)]));
    }

    #[test]
    fn nan_and_infinity_are_strings() {
        assert_eq!(
            to_proto_json_text(&[f64::NAN, f64::INFINITY, -2.5]).unwrap(),
            r#"["NaN","Infinity",-2.5]"#
        );
    }
}

//! Reading JSON the lenient way in which protobuf's JSON mapping is read.
//!
//! Fields are found by their camelCase name and by the name that the proto gives them, numbers may stand in quotes,
//! whole numbers may have a fraction of zero, and `null` is as good as absence. The keys of maps stay as they are.
//! What the types do not know is told apart by the caller (`serde_ignored`).

mod access;
#[cfg(test)]
mod tests;
mod text;

use serde::de::value::{Error, MapAccessDeserializer, StrDeserializer};
use serde::de::{Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use serde_json::{Number, Value};

use access::{Fields, Items, Keys};
pub use text::{to_proto_json, to_proto_json_text};

/// Deserializes a value of JSON as protobuf's JSON mapping means it.
#[derive(Clone, Copy, Debug)]
pub struct ProtoJson<'de>(pub &'de Value);

/// The camelCase form of a field's name.
///
/// An underscore goes and the letter after it is raised, as protobuf derives JSON names.
#[must_use]
pub fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut raise = false;
    for letter in name.chars() {
        if letter == '_' {
            raise = true;
        } else if raise {
            camel.push(letter.to_ascii_uppercase());
            raise = false;
        } else {
            camel.push(letter);
        }
    }
    camel
}

impl<'de> ProtoJson<'de> {
    /// What to say when something else was expected.
    fn unexpected(self) -> Unexpected<'de> {
        match self.0 {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => Unexpected::Unsigned(number),
                (_, Some(number), _) => Unexpected::Signed(number),
                (_, _, Some(number)) => Unexpected::Float(number),
                (None, None, None) => Unexpected::Other("number"),
            },
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        }
    }

    /// Hands an integer to the visitor, whichever way it is written.
    fn integer<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = match self.0 {
            Value::Null => return visitor.visit_u64(0),
            Value::Number(number) => whole(number),
            Value::String(text) => text.parse::<Number>().ok().as_ref().and_then(whole),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        match number.map(|number| (u64::try_from(number), i64::try_from(number))) {
            Some((Ok(number), _)) => visitor.visit_u64(number),
            Some((_, Ok(number))) => visitor.visit_i64(number),
            Some((Err(_), Err(_))) | None => Err(Error::invalid_type(self.unexpected(), &visitor)),
        }
    }

    /// Hands a float to the visitor, whichever way it is written.
    fn float<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = match self.0 {
            Value::Null => Some(0.0),
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.parse().ok(),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        match number {
            Some(number) => visitor.visit_f64(number),
            None => Err(Error::invalid_type(self.unexpected(), &visitor)),
        }
    }
}

/// The whole number that is meant, where one is: `2`, `2.0` and `2e0` are the same.
fn whole(number: &Number) -> Option<i128> {
    if let Some(number) = number.as_i128() {
        return Some(number);
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15)?;
    // Its shortest text is exact and has no exponent below 10^15, so no cast is needed.
    format!("{float:.0}").parse().ok()
}

impl<'de> IntoDeserializer<'de, Error> for ProtoJson<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Integers of all widths are read alike; the visitor checks the range.
macro_rules! integers {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
                self.integer(visitor)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for ProtoJson<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (_, _, Some(number)) => visitor.visit_f64(number),
                (None, None, None) => Err(Error::invalid_value(self.unexpected(), &visitor)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visitor.visit_seq(Items::new(items)),
            Value::Object(members) => visitor.visit_map(Keys::new(members)),
        }
    }

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.float(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.float(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_bool(false),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.deserialize_any(visitor)
            }
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_borrowed_str(""),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.deserialize_any(visitor)
            }
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_seq(Items::new(&[])),
            Value::Array(items) => visitor.visit_seq(Items::new(items)),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                Err(Error::invalid_type(self.unexpected(), &visitor))
            }
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_map(Keys::empty()),
            Value::Object(members) => visitor.visit_map(Keys::new(members)),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(Error::invalid_type(self.unexpected(), &visitor))
            }
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_map(Keys::empty()),
            Value::Object(members) => visitor.visit_map(Fields::new(members, fields)),
            // Derived visitors would take a list for the fields in their order; nobody means that.
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(Error::invalid_type(self.unexpected(), &visitor))
            }
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(StrDeserializer::new(text)),
            Value::Object(members) => visitor.visit_enum(MapAccessDeserializer::new(Keys::new(members))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                Err(Error::invalid_type(self.unexpected(), &visitor))
            }
        }
    }

    forward_to_deserialize_any! {
        char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

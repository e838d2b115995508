//! Reading values of JSON, with the path of what is wrong and of what a type does not know.
//!
//! There are two ways to mean JSON. Kubernetes' is strict. Protobuf's JSON mapping, of Istio's kinds and mesh config, is lenient:
//! fields are found by their camelCase name and by the name that the proto gives them, numbers may stand in quotes, whole numbers
//! may have a fraction of zero, and `null` is as good as absence. In both the keys of maps stay as they are.
//!
//! One deserializer for both, which knows where it stands: with `serde_ignored` and `serde_path_to_error` around two others, the
//! code of each type was generated for six of them, and this crate took 411 s of a processor to build in release.

mod access;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt::Write as _;

use serde::de::value::Error;
use serde::de::{Deserialize, Error as _, Unexpected, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use serde_json::{Number, Value};

use super::field_error::FieldError;
use access::{Items, Members, Variant};

/// How JSON is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapping {
    /// As Kubernetes means it.
    Kubernetes,
    /// As protobuf's JSON mapping means it.
    Protobuf,
}

/// Reads a type from a value. Returns the value of the type, and the paths of the fields that the type does not know, in their order.
///
/// # Errors
/// With the path of the first field whose value does not fit.
pub(super) fn read<'de, T>(value: &'de Value, mapping: Mapping) -> Result<(T, Vec<String>), FieldError>
where
    T: Deserialize<'de>,
{
    let notes = Notes { mapping, unknown_fields: RefCell::default(), wrong: RefCell::default() };
    match T::deserialize(JsonReader { value, path: &Path::Root, notes: &notes }) {
        Ok(value) => Ok((value, notes.unknown_fields.into_inner())),
        Err(error) => Err(FieldError::new(notes.wrong.into_inner().unwrap_or_default(), error.to_string())),
    }
}

/// What is noted while a value is read.
#[derive(Debug)]
struct Notes {
    /// How the value is meant.
    mapping: Mapping,
    /// Paths of the fields that the type does not know.
    unknown_fields: RefCell<Vec<String>>,
    /// The path of the first field whose value does not fit.
    wrong: RefCell<Option<String>>,
}

/// Where a reader stands.
#[derive(Debug)]
enum Path<'p> {
    Root,
    /// At the member of a map or message.
    Member(&'p Path<'p>, &'p str),
    /// At the item of a list.
    Item(&'p Path<'p>, usize),
}

impl Path<'_> {
    /// As users write it, such as `spec.http[0].match`.
    fn text(&self) -> String {
        let mut text = String::new();
        self.put(&mut text);
        text
    }

    /// Appends the path to a text.
    fn put(&self, text: &mut String) {
        match self {
            Self::Root => {}
            Self::Member(parent, name) => {
                parent.put(text);
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Self::Item(parent, index) => {
                parent.put(text);
                // Writing to a text does not fail.
                _ = write!(text, "[{index}]");
            }
        }
    }
}

/// Deserializes a value.
#[derive(Clone, Copy, Debug)]
struct JsonReader<'p, 'de> {
    value: &'de Value,
    path: &'p Path<'p>,
    notes: &'p Notes,
}

impl<'de> JsonReader<'_, 'de> {
    /// Whether the value is meant as protobuf's JSON mapping means it.
    fn is_lenient(self) -> bool {
        self.notes.mapping == Mapping::Protobuf
    }

    /// Says that the value is not what the visitor expects.
    fn invalid_type<'v, V: Visitor<'v>>(self, visitor: &V) -> Error {
        Error::invalid_type(unexpected(self.value), visitor)
    }

    /// Hands an integer to the visitor; the visitor checks the range.
    fn integer<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.is_lenient() {
            return self.number(visitor);
        }
        let number = match self.value {
            Value::Null => return visitor.visit_u64(0),
            Value::Number(number) => whole(number),
            Value::String(text) => text.parse::<Number>().ok().as_ref().and_then(whole),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        match number.map(|number| (u64::try_from(number), i64::try_from(number))) {
            Some((Ok(number), _)) => visitor.visit_u64(number),
            Some((_, Ok(number))) => visitor.visit_i64(number),
            Some((Err(_), Err(_))) | None => Err(self.invalid_type(&visitor)),
        }
    }

    /// Hands a float to the visitor.
    fn float<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.is_lenient() {
            return self.number(visitor);
        }
        let number = match self.value {
            Value::Null => Some(0.0),
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.parse().ok(),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        match number {
            Some(number) => visitor.visit_f64(number),
            None => Err(self.invalid_type(&visitor)),
        }
    }

    /// Hands a number to the visitor as it is written.
    fn number<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_number() { self.deserialize_any(visitor) } else { Err(self.invalid_type(&visitor)) }
    }

    /// Hands a list to the visitor, which must take all of it.
    fn list<V: Visitor<'de>>(self, items: &'de [Value], visitor: V) -> Result<V::Value, Error> {
        let mut access = Items::new(items, self.path, self.notes);
        let value = visitor.visit_seq(&mut access)?;
        if access.is_empty() || self.is_lenient() {
            return Ok(value);
        }
        Err(Error::invalid_length(items.len(), &"fewer elements in array"))
    }

    /// Hands the members of a map, or the fields of a message that knows `known`, to the visitor.
    fn members<V: Visitor<'de>>(self, known: Option<&'static [&'static str]>, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null if self.is_lenient() => visitor.visit_map(Members::empty(self.path, self.notes)),
            Value::Object(members) => visitor.visit_map(Members::new(members, known, self.path, self.notes)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(self.invalid_type(&visitor))
            }
        }
    }
}

/// What to say of a value when something else was expected.
fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Other("null"),
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

/// The whole number that is meant, where one is: `2`, `2.0` and `2e0` are the same.
fn whole(number: &Number) -> Option<i128> {
    if let Some(number) = number.as_i128() {
        return Some(number);
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15)?;
    // Its shortest text is exact and has no exponent below 10^15, so no cast is needed.
    format!("{float:.0}").parse().ok()
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

impl<'de> Deserializer<'de> for JsonReader<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (_, _, Some(number)) => visitor.visit_f64(number),
                (None, None, None) => Err(Error::invalid_value(unexpected(self.value), &visitor)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => self.list(items, visitor),
            Value::Object(_) => self.members(None, visitor),
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
        match self.value {
            Value::Null if self.is_lenient() => visitor.visit_bool(false),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                Err(self.invalid_type(&visitor))
            }
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null if self.is_lenient() => visitor.visit_borrowed_str(""),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                Err(self.invalid_type(&visitor))
            }
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null if self.is_lenient() => self.list(&[], visitor),
            Value::Array(items) => self.list(items, visitor),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                Err(self.invalid_type(&visitor))
            }
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.members(None, visitor)
    }

    /// Derived visitors would take a list for the fields in their order; nobody means that.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.members(self.is_lenient().then_some(fields), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match Variant::of(self.value, self.path, self.notes) {
            Some(variant) => visitor.visit_enum(variant),
            None => Err(self.invalid_type(&visitor)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.notes.unknown_fields.borrow_mut().push(self.path.text());
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

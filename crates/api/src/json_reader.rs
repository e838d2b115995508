//! Deserialization of JSON values, with the paths of errors and of unknown fields.
//!
//! JSON has two mappings. Kubernetes' is strict. Protobuf's JSON mapping, for Istio's kinds and
//! mesh config, is lenient: fields are found by their camelCase name and by their proto name,
//! numbers may be quoted, whole numbers may have a fraction of zero, and `null` means absent. In
//! both, the keys of maps stay unchanged.
//!
//! One deserializer implements both and tracks its path. With `serde_ignored` and
//! `serde_path_to_error` around two other deserializers, the code of each type was generated for
//! six of them, and a release build of this crate took 411 s of CPU time.

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

/// The JSON mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapping {
    /// Kubernetes' JSON.
    Kubernetes,
    /// Protobuf's JSON mapping.
    Protobuf,
}

/// Deserializes a type from a value. Returns the typed value, and the paths of unknown fields in
/// their order.
///
/// # Errors
/// With the path of the first field whose value does not fit.
pub(super) fn read<'de, T>(
    value: &'de Value,
    mapping: Mapping,
) -> Result<(T, Vec<String>), FieldError>
where
    T: Deserialize<'de>,
{
    let notes = Notes {
        mapping,
        unknown_fields: RefCell::default(),
        wrong: RefCell::default(),
    };
    match T::deserialize(JsonReader {
        value,
        path: &Path::Root,
        notes: &notes,
    }) {
        Ok(value) => Ok((value, notes.unknown_fields.into_inner())),
        Err(error) => Err(FieldError::new(
            notes.wrong.into_inner().unwrap_or_default(),
            error.to_string(),
        )),
    }
}

/// Results that are collected while a value is deserialized.
#[derive(Debug)]
struct Notes {
    mapping: Mapping,
    /// Paths of unknown fields.
    unknown_fields: RefCell<Vec<String>>,
    /// The path of the first field whose value does not fit.
    wrong: RefCell<Option<String>>,
}

/// The path of a reader.
#[derive(Debug)]
enum Path<'p> {
    Root,
    /// The member of a map or message.
    Member(&'p Path<'p>, &'p str),
    /// The item of a list.
    Item(&'p Path<'p>, usize),
}

impl Path<'_> {
    /// The path as users write it, such as `spec.http[0].match`.
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
                // Writing to a `String` does not fail.
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
    /// Whether the mapping is protobuf's.
    fn is_lenient(self) -> bool {
        self.notes.mapping == Mapping::Protobuf
    }

    /// The error for a value that the visitor does not expect.
    fn invalid_type<'v, V: Visitor<'v>>(self, visitor: &V) -> Error {
        Error::invalid_type(unexpected(self.value), visitor)
    }

    /// Passes an integer to the visitor, which checks the range.
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

    /// Passes a float to the visitor.
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

    /// Passes a number to the visitor as it is written.
    fn number<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_number() {
            self.deserialize_any(visitor)
        } else {
            Err(self.invalid_type(&visitor))
        }
    }

    /// Passes a list to the visitor, which must consume all of it.
    fn list<V: Visitor<'de>>(self, items: &'de [Value], visitor: V) -> Result<V::Value, Error> {
        let mut access = Items::new(items, self.path, self.notes);
        let value = visitor.visit_seq(&mut access)?;
        if access.is_empty() || self.is_lenient() {
            return Ok(value);
        }
        Err(Error::invalid_length(
            items.len(),
            &"fewer elements in array",
        ))
    }

    /// Passes the members of a map, or the fields of a message whose fields are `known`, to the
    /// visitor.
    fn members<V: Visitor<'de>>(
        self,
        known: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value {
            Value::Null if self.is_lenient() => {
                visitor.visit_map(Members::empty(self.path, self.notes))
            }
            Value::Object(members) => {
                visitor.visit_map(Members::new(members, known, self.path, self.notes))
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err(self.invalid_type(&visitor)),
        }
    }
}

/// The description of an unexpected value, for errors.
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

/// The integer value of a number, if it has one: `2`, `2.0` and `2e0` are equal.
fn whole(number: &Number) -> Option<i128> {
    if let Some(number) = number.as_i128() {
        return Some(number);
    }
    let float = number
        .as_f64()
        .filter(|float| float.fract() == 0.0 && float.abs() < 1e15)?;
    // Its shortest text is exact and has no exponent below 10^15, so no cast is needed.
    format!("{float:.0}").parse().ok()
}

/// Integers of all widths are deserialized alike; the visitor checks the range.
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
            Value::Null
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => Err(self.invalid_type(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null if self.is_lenient() => visitor.visit_borrowed_str(""),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => Err(self.invalid_type(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null if self.is_lenient() => self.list(&[], visitor),
            Value::Array(items) => self.list(items, visitor),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => Err(self.invalid_type(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.members(None, visitor)
    }

    /// Derived visitors would also accept a list of the fields in their order, which neither
    /// mapping allows.
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
        self.notes
            .unknown_fields
            .borrow_mut()
            .push(self.path.text());
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

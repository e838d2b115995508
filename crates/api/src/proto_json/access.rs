//! Walking lists, maps and messages.

use std::borrow::Cow;

use serde::de::value::{CowStrDeserializer, Error};
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use serde_json::{Map, Value, map};

use super::{ProtoJson, camel_case};

/// The items of a list.
pub(super) struct Items<'de>(std::slice::Iter<'de, Value>);

/// The members of a map: every key as it is, and nulls too.
pub(super) struct Keys<'de> {
    /// What is still to come; `None` for a map that is not there.
    rest: Option<map::Iter<'de>>,
    /// The value whose key was handed out last.
    value: Option<&'de Value>,
}

/// The fields of a message: keys become the names that the type knows, and nulls are passed over.
pub(super) struct Fields<'de> {
    /// What is still to come.
    rest: map::Iter<'de>,
    /// The names that the type knows.
    known: &'static [&'static str],
    /// The value whose key was handed out last.
    value: Option<&'de Value>,
}

impl<'de> Items<'de> {
    /// Walks a list.
    pub(super) fn new(items: &'de [Value]) -> Self {
        Self(items.iter())
    }
}

impl<'de> Keys<'de> {
    /// Walks a map.
    pub(super) fn new(members: &'de Map<String, Value>) -> Self {
        Self { rest: Some(members.iter()), value: None }
    }

    /// Walks a map that is not there.
    pub(super) fn empty() -> Self {
        Self { rest: None, value: None }
    }
}

impl<'de> Fields<'de> {
    /// Walks a message whose type knows the fields `known`.
    pub(super) fn new(members: &'de Map<String, Value>, known: &'static [&'static str]) -> Self {
        Self { rest: members.iter(), known, value: None }
    }

    /// The name that the type knows, where it knows one; else the key itself.
    fn name(&self, key: &'de str) -> Cow<'de, str> {
        if !key.contains('_') || self.known.contains(&key) {
            return Cow::Borrowed(key);
        }
        let camel = camel_case(key);
        if self.known.contains(&camel.as_str()) { Cow::Owned(camel) } else { Cow::Borrowed(key) }
    }
}

/// Deserializes the value whose key was handed out last.
fn take_value<'de, V: DeserializeSeed<'de>>(value: &mut Option<&'de Value>, seed: V) -> Result<V::Value, Error> {
    match value.take() {
        Some(value) => seed.deserialize(ProtoJson(value)),
        None => Err(Error::custom("a value was asked for before its key")),
    }
}

/// A key of a map. JSON knows text alone, so maps by number have their numbers in it.
struct Key<'de>(&'de str);

/// Keys that are integers of any width; the visitor checks the range.
macro_rules! integer_keys {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
                match (self.0.parse(), self.0.parse()) {
                    (Ok(number), _) => visitor.visit_u64(number),
                    (_, Ok(number)) => visitor.visit_i64(number),
                    (Err(_), Err(_)) => visitor.visit_borrowed_str(self.0),
                }
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.0)
    }

    integer_keys! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple tuple_struct map struct
        enum identifier ignored_any
    }
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|item| seed.deserialize(ProtoJson(item))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

impl<'de> MapAccess<'de> for Keys<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.as_mut().and_then(Iterator::next) else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(Key(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        take_value(&mut self.value, seed)
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.find(|(_, value)| !value.is_null()) else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(CowStrDeserializer::new(self.name(key))).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        take_value(&mut self.value, seed)
    }
}

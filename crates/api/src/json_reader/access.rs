//! Access to lists, maps, messages and enums.

use std::borrow::Cow;
use std::slice;

use serde::de::value::{CowStrDeserializer, Error};
use serde::de::{
    DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, Unexpected, VariantAccess,
    Visitor,
};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};
use serde_json::{Map, Value, map};

use super::{JsonReader, Notes, Path};
use crate::proto_json::camel_case;

/// The items of a list.
pub(super) struct Items<'p, 'de> {
    rest: slice::Iter<'de, Value>,
    /// The index of the next item.
    index: usize,
    path: &'p Path<'p>,
    notes: &'p Notes,
}

/// The members of a map, or the fields of a message.
pub(super) struct Members<'p, 'de> {
    /// The remaining members; `None` for an absent map.
    rest: Option<map::Iter<'de>>,
    /// The fields of a message: keys are converted to these names, and nulls are skipped. `None`
    /// for a map, whose keys and nulls stay.
    known: Option<&'static [&'static str]>,
    /// The member whose key was returned last.
    member: Option<(Cow<'de, str>, &'de Value)>,
    path: &'p Path<'p>,
    notes: &'p Notes,
}

/// A variant of an enum: its name, or a map of its name to its content.
pub(super) struct Variant<'p, 'de> {
    name: &'de str,
    content: Option<&'de Value>,
    path: &'p Path<'p>,
    notes: &'p Notes,
}

/// Deserializes the value at a path. If values do not fit, the path of the innermost one is
/// recorded, since it fails first.
fn read_at<'de, S: DeserializeSeed<'de>>(
    seed: S,
    value: &'de Value,
    path: &Path<'_>,
    notes: &Notes,
) -> Result<S::Value, Error> {
    seed.deserialize(JsonReader { value, path, notes })
        .inspect_err(|_| {
            notes.wrong.borrow_mut().get_or_insert_with(|| path.text());
        })
}

impl<'p, 'de> Items<'p, 'de> {
    /// Iterates over a list.
    pub(super) fn new(items: &'de [Value], path: &'p Path<'p>, notes: &'p Notes) -> Self {
        Self {
            rest: items.iter(),
            index: 0,
            path,
            notes,
        }
    }

    /// Whether no items are left.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.as_slice().is_empty()
    }
}

impl<'p, 'de> Members<'p, 'de> {
    /// Iterates over a map, or over a message whose fields are `known`.
    pub(super) fn new(
        members: &'de Map<String, Value>,
        known: Option<&'static [&'static str]>,
        path: &'p Path<'p>,
        notes: &'p Notes,
    ) -> Self {
        Self {
            rest: Some(members.iter()),
            known,
            member: None,
            path,
            notes,
        }
    }

    /// An absent map.
    pub(super) fn empty(path: &'p Path<'p>, notes: &'p Notes) -> Self {
        Self {
            rest: None,
            known: None,
            member: None,
            path,
            notes,
        }
    }

    /// The next member. For a message: the next non-null field, by the name in the type if the type
    /// has the field.
    fn next(&mut self) -> Option<(Cow<'de, str>, &'de Value)> {
        let rest = self.rest.as_mut()?;
        let Some(known) = self.known else {
            return rest
                .next()
                .map(|(key, value)| (Cow::Borrowed(key.as_str()), value));
        };

        let (key, value) = rest.find(|(_, value)| !value.is_null())?;
        if !key.contains('_') || known.contains(&key.as_str()) {
            return Some((Cow::Borrowed(key), value));
        }

        let camel = camel_case(key);
        Some((
            if known.contains(&camel.as_str()) {
                Cow::Owned(camel)
            } else {
                Cow::Borrowed(key)
            },
            value,
        ))
    }
}

impl<'p, 'de> Variant<'p, 'de> {
    /// The variant of a value, if the value is a variant.
    pub(super) fn of(value: &'de Value, path: &'p Path<'p>, notes: &'p Notes) -> Option<Self> {
        let (name, content) = match value {
            Value::String(name) => (name, None),
            Value::Object(members) if members.len() == 1 => members
                .iter()
                .next()
                .map(|(name, content)| (name, Some(content)))?,
            Value::Object(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_) => return None,
        };

        Some(Self {
            name,
            content,
            path,
            notes,
        })
    }

    /// Deserializes the content.
    fn read<S: DeserializeSeed<'de>>(self, seed: S, expected: &str) -> Result<S::Value, Error> {
        match self.content {
            Some(content) => read_at(
                seed,
                content,
                &Path::Member(self.path, self.name),
                self.notes,
            ),
            None => Err(Error::invalid_type(Unexpected::UnitVariant, &expected)),
        }
    }
}

/// Content of a variant that a visitor reads.
struct Content<V> {
    visitor: V,
    /// The fields of a message; `None` for a tuple.
    fields: Option<&'static [&'static str]>,
}

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Content<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        match self.fields {
            Some(fields) => inner.deserialize_struct("", fields, self.visitor),
            None => inner.deserialize_seq(self.visitor),
        }
    }
}

/// A key of a map. JSON keys are strings, so maps by number have their numbers in strings.
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

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        serde::de::value::BorrowedStrDeserializer::new(self.0)
            .deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(item) = self.rest.next() else {
            return Ok(None);
        };
        let path = Path::Item(self.path, self.index);
        self.index += 1;
        read_at(seed, item, &path, self.notes).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.next() else {
            return Ok(None);
        };
        let key = match &name {
            Cow::Borrowed(name) => seed.deserialize(Key(name)),
            Cow::Owned(name) => {
                seed.deserialize(CowStrDeserializer::new(Cow::Borrowed(name.as_str())))
            }
        };
        self.member = Some((name, value));
        key.map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        match self.member.take() {
            Some((name, value)) => {
                read_at(seed, value, &Path::Member(self.path, &name), self.notes)
            }
            None => Err(Error::custom("a value was requested before its key")),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        self.rest.as_ref().map(ExactSizeIterator::len)
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        seed.deserialize(Key(self.name)).map(|name| (name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.content {
            Some(content) => <()>::deserialize(JsonReader {
                value: content,
                path: self.path,
                notes: self.notes,
            }),
            None => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        self.read(seed, "newtype variant")
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.read(
            Content {
                visitor,
                fields: None,
            },
            "tuple variant",
        )
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.read(
            Content {
                visitor,
                fields: Some(fields),
            },
            "struct variant",
        )
    }
}

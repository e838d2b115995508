//! JSON as protobuf's parser reads it in Envoy, which rejects what serde accepts: repeated members,
//! and deep nesting.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// How deep values may be nested for the text to be sent as it is. protobuf accepts a hundred.
const MAX_DEPTH: usize = 90;

/// A text that is JSON.
pub(super) struct Document {
    pub(super) value: Value,
    /// Whether protobuf's parser accepts the text, too.
    pub(super) is_plain: bool,
}

impl Document {
    /// The text that is sent in place of the given one.
    pub(super) fn text(&self, given: &str) -> String {
        if self.is_plain {
            given.to_owned()
        } else {
            self.value.to_string()
        }
    }
}

/// Reads a text.
pub(super) fn parse(text: &str) -> Result<Document, serde_json::Error> {
    let mut is_plain = true;
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Reader {
        depth: 0,
        is_plain: &mut is_plain,
    }
    .deserialize(&mut reader)?;
    reader.end()?;
    Ok(Document { value, is_plain })
}

/// Reads a value at a depth.
struct Reader<'a> {
    depth: usize,
    is_plain: &'a mut bool,
}

impl Reader<'_> {
    /// A reader of the values within.
    fn within(&mut self) -> Reader<'_> {
        let depth = self.depth + 1;
        *self.is_plain &= depth <= MAX_DEPTH;
        Reader {
            depth,
            is_plain: &mut *self.is_plain,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.within())? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(self.within())?;
            let before = map.insert(name, value);
            *self.is_plain &= before.is_none();
        }
        Ok(Value::Object(map))
    }
}

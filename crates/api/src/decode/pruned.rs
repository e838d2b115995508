//! Pruning during deserialization: fields of a stored object that are not used cost no memory.
//!
//! A pod is mostly volumes, probes, environment and managed fields. A [`Keep`] lists the fields of
//! an object that are deserialized; all others are skipped in the text.

use std::fmt;

use serde::Deserializer;
use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// Which parts of a value are read. For a list it applies to each item.
#[derive(Debug)]
pub(super) enum Keep {
    All,
    /// These fields.
    Only(&'static [(&'static str, Keep)]),
    /// All fields but these.
    Without(&'static [&'static str]),
}

/// A deserializer without pruned fields.
pub(super) struct Pruned<D> {
    inner: D,
    /// What is kept.
    keep: &'static Keep,
}

/// `inner` without pruned fields.
pub(super) fn pruned<D>(inner: D, keep: &'static Keep) -> Pruned<D> {
    Pruned { inner, keep }
}

/// Deserializes a seed without pruned fields.
fn descend<'de, S, D>(seed: S, inner: D, keep: &'static Keep) -> Result<S::Value, D::Error>
where
    S: DeserializeSeed<'de>,
    D: Deserializer<'de>,
{
    match keep {
        Keep::All => seed.deserialize(inner),
        Keep::Only(_) | Keep::Without(_) => seed.deserialize(Pruned { inner, keep }),
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Pruned<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(PrunedVisitor {
            inner: visitor,
            keep: self.keep,
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(PrunedVisitor {
            inner: visitor,
            keep: self.keep,
        })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// A visitor of lists and maps without pruned fields. Other values are not pruned, and not visited
/// by it.
struct PrunedVisitor<V> {
    inner: V,
    /// What is kept.
    keep: &'static Keep,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for PrunedVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Pruned {
            inner,
            keep: self.keep,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(PrunedItems {
            inner,
            keep: self.keep,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(PrunedFields {
            inner,
            keep: self.keep,
            next: &Keep::All,
        })
    }
}

/// The items of a list, each pruned.
struct PrunedItems<A> {
    inner: A,
    /// What is kept of each.
    keep: &'static Keep,
}

/// A seed for a pruned value.
struct PrunedSeed<S> {
    inner: S,
    /// What is kept.
    keep: &'static Keep,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for PrunedSeed<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        descend(self.inner, inner, self.keep)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for PrunedItems<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_element_seed(PrunedSeed {
            inner: seed,
            keep: self.keep,
        })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// The fields that are kept.
struct PrunedFields<A> {
    inner: A,
    /// Which are kept.
    keep: &'static Keep,
    /// The rule for the field whose name was returned last.
    next: &'static Keep,
}

/// The name of a field with its rule.
enum Name {
    /// It is kept, pruned by the rule.
    Listed(&'static str, &'static Keep),
    /// It is kept completely.
    Free(String),
    /// It is pruned.
    Dropped,
}

/// Deserializes the name of a field.
struct NameSeed(&'static Keep);

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Name;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<Name, D::Error> {
        inner.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
        Ok(match self.0 {
            Keep::All => Name::Free(name.to_owned()),
            Keep::Only(fields) => match fields.iter().find(|(field, _)| *field == name) {
                Some((field, keep)) => Name::Listed(field, keep),
                None => Name::Dropped,
            },
            Keep::Without(fields) if fields.contains(&name) => Name::Dropped,
            Keep::Without(_) => Name::Free(name.to_owned()),
        })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for PrunedFields<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        while let Some(name) = self.inner.next_key_seed(NameSeed(self.keep))? {
            match name {
                Name::Listed(name, keep) => {
                    self.next = keep;
                    return seed.deserialize(name.into_deserializer()).map(Some);
                }
                Name::Free(name) => {
                    self.next = &Keep::All;
                    return seed.deserialize(StringDeserializer::new(name)).map(Some);
                }
                Name::Dropped => drop(self.inner.next_value::<IgnoredAny>()?),
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(PrunedSeed {
            inner: seed,
            keep: self.next,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    /// The pruned value.
    fn prune(value: &Value, keep: &'static Keep) -> Value {
        let text = value.to_string();
        Value::deserialize(pruned(&mut serde_json::Deserializer::from_str(&text), keep)).unwrap()
    }

    #[test]
    fn pruned_fields_are_not_decoded() {
        const KEEP: Keep = Keep::Only(&[
            ("a", Keep::All),
            ("b", Keep::Only(&[("c", Keep::All)])),
            ("m", Keep::Without(&["x"])),
        ]);
        static KEPT: Keep = KEEP;
        let value = json!({ "a": { "x": [1] }, "b": [{ "c": 1, "d": { "e": "f" } }, { "d": null }], "m": { "x": "1", "y": "2" }, "z": 1 });
        assert_eq!(
            prune(&value, &KEPT),
            json!({ "a": { "x": [1] }, "b": [{ "c": 1 }, {}], "m": { "y": "2" } })
        );
        assert_eq!(prune(&json!({ "b": null }), &KEPT), json!({ "b": null }));
    }
}

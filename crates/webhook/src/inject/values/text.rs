//! Scalars that charts write as string, number or boolean.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A scalar as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(in crate::inject) struct Text(String);

impl Text {
    /// The text of the scalar.
    pub(in crate::inject) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the text is empty.
    pub(in crate::inject) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text, unless it is empty or zero, which both mean unset.
    pub(in crate::inject) fn set(&self) -> Option<&str> {
        (!self.0.is_empty() && self.0 != "0").then_some(self.as_str())
    }

    /// The text, or a default if it is empty.
    pub(in crate::inject) fn or<'a>(&'a self, other: &'a str) -> &'a str {
        if self.0.is_empty() { other } else { &self.0 }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Accepts any scalar.
struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number or a boolean")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

/// Parses a boolean that may be quoted.
pub(in crate::inject) fn flag<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<bool, D::Error> {
    match Text::deserialize(deserializer)?.as_str() {
        "true" => Ok(true),
        "false" | "" => Ok(false),
        other => Err(D::Error::custom(format!(
            "{other:?} is neither true nor false"
        ))),
    }
}

//! What a request must show for an HTTP route to apply.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a request must show; all that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpMatchRequest {
    /// A name for the match; appended to the route's name in access logs.
    pub name: String,
    /// The path with its query.
    pub uri: Option<StringMatch>,
    /// The scheme.
    pub scheme: Option<StringMatch>,
    /// The method.
    pub method: Option<StringMatch>,
    /// The authority, or Host header.
    pub authority: Option<StringMatch>,
    /// Headers by lowercase name; an unset match asks only that the header is there.
    pub headers: BTreeMap<String, StringMatch>,
    /// The port that the client asked for; 0 is any.
    pub port: u32,
    /// Labels that the client workload must carry; for sidecars only.
    pub source_labels: BTreeMap<String, String>,
    /// Gateways for which this match counts, in place of the VirtualService's own list.
    pub gateways: Vec<String>,
    /// Query parameters by name.
    pub query_params: BTreeMap<String, StringMatch>,
    /// Whether exact and prefix matches of the path ignore case.
    pub ignore_uri_case: bool,
    /// Headers that must not match.
    pub without_headers: BTreeMap<String, StringMatch>,
    /// Namespace of the client workload; for sidecars only.
    pub source_namespace: String,
    /// Prefix of the statistics that Envoy keeps for the route; empty keeps none.
    pub stat_prefix: String,
}

/// How a text must look.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(try_from = "StringMatchWire", into = "StringMatchWire")]
pub enum StringMatch {
    /// Written as `{}`: any text, as long as it is there.
    #[default]
    Unset,
    /// Equal to this.
    Exact(String),
    /// Starting with this.
    Prefix(String),
    /// Wholly matched by this RE2 expression.
    Regex(String),
}

/// The wire form of [`StringMatch`]: one field per way, at most one of them set.
#[derive(Default, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StringMatchWire {
    /// Equal to this.
    #[serde(skip_serializing_if = "Option::is_none")]
    exact: Option<String>,
    /// Starting with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    /// Matched by this.
    #[serde(skip_serializing_if = "Option::is_none")]
    regex: Option<String>,
}

impl TryFrom<StringMatchWire> for StringMatch {
    type Error = &'static str;

    fn try_from(wire: StringMatchWire) -> Result<Self, Self::Error> {
        match (wire.exact, wire.prefix, wire.regex) {
            (None, None, None) => Ok(Self::Unset),
            (Some(text), None, None) => Ok(Self::Exact(text)),
            (None, Some(text), None) => Ok(Self::Prefix(text)),
            (None, None, Some(text)) => Ok(Self::Regex(text)),
            _ => Err("more than one of exact, prefix and regex is set; set one"),
        }
    }
}

impl From<StringMatch> for StringMatchWire {
    fn from(value: StringMatch) -> Self {
        let none = Self::default();
        match value {
            StringMatch::Unset => none,
            StringMatch::Exact(text) => Self { exact: Some(text), ..none },
            StringMatch::Prefix(text) => Self { prefix: Some(text), ..none },
            StringMatch::Regex(text) => Self { regex: Some(text), ..none },
        }
    }
}

impl StringMatch {
    /// The text to match with, empty when unset.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Unset => "",
            Self::Exact(text) | Self::Prefix(text) | Self::Regex(text) => text,
        }
    }

    /// Whether there is no text to match with: unset, or set to the empty text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_string_match_is_one_of_its_fields() {
        for (value, expected) in [
            (json!({}), StringMatch::Unset),
            (json!({"exact": ""}), StringMatch::Exact(String::new())),
            (json!({"prefix": "/a"}), StringMatch::Prefix("/a".into())),
            (json!({"regex": ".*"}), StringMatch::Regex(".*".into())),
        ] {
            assert_eq!(serde_json::from_value::<StringMatch>(value.clone()).unwrap(), expected);
            assert_eq!(serde_json::to_value(expected).unwrap(), value);
        }
        assert!(serde_json::from_value::<StringMatch>(json!({"exact": "a", "regex": "b"})).is_err());
    }
}

//! Match conditions of an HTTP route.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Match conditions of a request; all fields that are set must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HttpMatchRequest {
    /// The match's name; appended to the route's name in access logs.
    pub name: String,
    /// The path of the request, including its query.
    pub uri: Option<StringMatch>,
    /// The URI scheme, such as `https`.
    pub scheme: Option<StringMatch>,
    /// The HTTP method, such as `GET`.
    pub method: Option<StringMatch>,
    /// The authority (Host header).
    pub authority: Option<StringMatch>,
    /// Headers by lowercase name; an unset match requires only the header's presence.
    pub headers: BTreeMap<String, StringMatch>,
    /// The port of the request; 0 matches any port.
    pub port: u32,
    /// Labels that the client workload must have; applies to sidecars only.
    pub source_labels: BTreeMap<String, String>,
    /// Gateways that the match applies to, instead of the VirtualService's own list.
    pub gateways: Vec<String>,
    /// Query parameters by name.
    pub query_params: BTreeMap<String, StringMatch>,
    /// Whether exact and prefix matches of the path ignore case.
    pub ignore_uri_case: bool,
    /// Headers that must not match.
    pub without_headers: BTreeMap<String, StringMatch>,
    /// Namespace of the client workload; applies to sidecars only.
    pub source_namespace: String,
    /// Prefix of Envoy's statistics for the route; empty disables the statistics.
    pub stat_prefix: String,
}

/// A condition on a string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "StringMatchWire", into = "StringMatchWire")]
pub enum StringMatch {
    /// Written as `{}`: matches any value that is present.
    #[default]
    Unset,
    /// The value equals this string.
    Exact(String),
    /// The value starts with this string.
    Prefix(String),
    /// The whole value matches this RE2 expression.
    Regex(String),
}

/// The wire form of [`StringMatch`]: one field per kind of match, at most one of them set.
#[derive(Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
struct StringMatchWire {
    /// The value equals this string.
    #[serde(skip_serializing_if = "Option::is_none")]
    exact: Option<String>,
    /// The value starts with this string.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    /// The whole value matches this RE2 expression.
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
            StringMatch::Exact(text) => Self {
                exact: Some(text),
                ..none
            },
            StringMatch::Prefix(text) => Self {
                prefix: Some(text),
                ..none
            },
            StringMatch::Regex(text) => Self {
                regex: Some(text),
                ..none
            },
        }
    }
}

impl StringMatch {
    /// The string or expression of the match, empty when unset.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Unset => "",
            Self::Exact(text) | Self::Prefix(text) | Self::Regex(text) => text,
        }
    }

    /// Whether the match is unset, or set to the empty string.
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
            assert_eq!(
                serde_json::from_value::<StringMatch>(value.clone()).unwrap(),
                expected
            );
            assert_eq!(serde_json::to_value(expected).unwrap(), value);
        }
        assert!(
            serde_json::from_value::<StringMatch>(json!({"exact": "a", "regex": "b"})).is_err()
        );
    }
}

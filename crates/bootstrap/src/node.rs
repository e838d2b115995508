//! The proxy's node: identity and metadata that Envoy sends to the control plane.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A proxy's node, with the metadata that the bootstrap depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// `type~address~pod.namespace~domain`.
    pub id: String,
    /// The known metadata, as JSON.
    pub metadata: Map<String, Value>,
    /// All metadata set by users, including unknown keys.
    pub raw: Map<String, Value>,
    /// Where the proxy runs.
    pub locality: Locality,
    /// The pod's labels.
    pub labels: BTreeMap<String, String>,
    /// The pod's annotations.
    pub annotations: BTreeMap<String, String>,
}

/// A locality, from region to subzone; unknown parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// Such as `us-east1`; `region` of Envoy's `Locality`.
    pub region: String,
    /// The part of the region, such as `us-east1-b`; `zone` of Envoy's `Locality`.
    pub zone: String,
    /// A part of the zone, such as a rack; `sub_zone` of Envoy's `Locality`.
    pub sub_zone: String,
}

impl Node {
    /// A text value of the metadata; empty if it is not set.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.metadata
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Whether a boolean of the metadata is true.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        self.text(key) == "true"
    }

    /// The metadata that Envoy sends: the known metadata, and all other keys set by users.
    #[must_use]
    pub fn all_metadata(&self) -> Map<String, Value> {
        let mut all = self.raw.clone();
        all.extend(self.metadata.clone());
        all
    }
}

impl Locality {
    /// Parses `region/zone/subzone`, or the same with dots if it has no slash.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut parts = text
            .split(if text.contains('/') { '/' } else { '.' })
            .map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Self {
            region: next(),
            zone: next(),
            sub_zone: next(),
        }
    }

    /// As JSON, without empty parts.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let parts = [
            ("region", &self.region),
            ("zone", &self.zone),
            ("sub_zone", &self.sub_zone),
        ];
        let known = parts.into_iter().filter(|(_, value)| !value.is_empty());
        Value::Object(
            known
                .map(|(key, value)| (key.to_owned(), Value::from(value.as_str())))
                .collect(),
        )
    }
}

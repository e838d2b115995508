//! Who the proxy is: what Envoy says of itself to the control plane.

mod addresses;
mod keys;
mod metadata;

pub use addresses::{AddressMode, Addresses, Interface};
pub use metadata::{MetadataError, MetadataInput, NodeIdentity};

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A proxy's node, with what of its metadata the bootstrap is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// `type~address~pod.namespace~domain`.
    pub id: String,
    /// The metadata with meaning, as JSON.
    pub metadata: Map<String, Value>,
    /// All that users wrote, also what nobody knows.
    pub raw: Map<String, Value>,
    /// Where the proxy runs.
    pub locality: Locality,
    /// The pod's labels.
    pub labels: BTreeMap<String, String>,
    /// The pod's annotations.
    pub annotations: BTreeMap<String, String>,
}

/// A place, from the large to the small; empty where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// The region.
    pub region: String,
    /// The zone.
    pub zone: String,
    /// The subzone.
    pub sub_zone: String,
}

impl Node {
    /// A text of the metadata; empty where it is not there.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.metadata.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether a switch of the metadata is on.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        self.text(key) == "true"
    }

    /// What Envoy sends: the metadata with meaning, and what users wrote beside it.
    #[must_use]
    pub fn all_metadata(&self) -> Map<String, Value> {
        let mut all = self.raw.clone();
        all.extend(self.metadata.clone());
        all
    }
}

impl Locality {
    /// Reads `region/zone/subzone`, or the same with dots where there is no slash.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut parts = text.split(if text.contains('/') { '/' } else { '.' }).map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Self { region: next(), zone: next(), sub_zone: next() }
    }

    /// As JSON, without what is not known.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let parts = [("region", &self.region), ("zone", &self.zone), ("sub_zone", &self.sub_zone)];
        let known = parts.into_iter().filter(|(_, value)| !value.is_empty());
        Value::Object(known.map(|(key, value)| (key.to_owned(), Value::from(value.as_str()))).collect())
    }
}

//! Merging of user settings over other settings, by the rules of istiod's
//! `pkg/config/mesh/mesh.go`.
//!
//! A field that is set replaces the lower one entirely, with these exceptions: `defaultConfig` and
//! `defaultProviders` are merged by field, `extensionProviders` by name, and `trustDomainAliases`
//! are combined. Within `defaultConfig`, `proxyMetadata` is merged by key, and some members of
//! `proxyHeaders` keep the lower value if unset. JSON is merged, since it distinguishes fields that
//! are set from absent fields.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{MeshConfig, MeshNetworks, ProxyConfig, ProxyHeaders};
use crate::field_error::FieldError;
use crate::proto_json::camel_case;
use crate::text_error::TextError;
use crate::typed::Typed;
use crate::yaml::{self, Schema};

/// The members of the oneof that names a proxy's service: setting one unsets the other.
const CLUSTER_NAME: [&str; 2] = ["serviceCluster", "tracingServiceName"];

/// Members of `proxyHeaders` that keep the lower value if they are unset.
const INHERITED_HEADERS: [&str; 5] = [
    "forwardedClientCert",
    "requestId",
    "attemptCount",
    "server",
    "envoyDebugHeaders",
];

/// Fields by their camelCase names.
type Fields = Map<String, Value>;

impl MeshConfig {
    /// Returns these settings, overridden by a text. An empty text changes nothing.
    ///
    /// # Errors
    /// When the text is not YAML, or a field has the wrong type.
    pub fn apply(&self, text: &str) -> Result<Typed<Self>, TextError> {
        let written = fields(text)?;

        // Decoded separately first, so that errors have the paths of the text, not those of the
        // merged lists.
        let alone = Typed::<Self>::from_proto_json(&written)
            .map_err(|error| TextError::in_field(text, error))?;
        let merged = merge_mesh_config(to_fields(self), written);
        let merged = Typed::<Self>::from_proto_json(&Value::Object(merged));
        let mut config = merged
            .map_err(|error| TextError::in_field(text, error))?
            .value;
        let aliases = config
            .trust_domain_aliases
            .iter()
            .chain(&self.trust_domain_aliases);
        config.trust_domain_aliases = aliases
            .cloned()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();

        Ok(Typed {
            value: config,
            unknown_fields: alone.unknown_fields,
        })
    }
}

impl ProxyConfig {
    /// Returns these settings, overridden by a text, such as the annotation `proxy.istio.io/config`
    /// of a pod.
    ///
    /// # Errors
    /// When the text is not YAML, or a field has the wrong type.
    pub fn apply(&self, text: &str) -> Result<Typed<Self>, TextError> {
        let written = fields(text)?;
        let alone = Typed::<Self>::from_proto_json(&written)
            .map_err(|error| TextError::in_field(text, error))?;
        let merged = merge_proxy_config(to_fields(self), written);
        let merged = Typed::<Self>::from_proto_json(&Value::Object(merged));
        let config = merged
            .map_err(|error| TextError::in_field(text, error))?
            .value;
        Ok(Typed {
            value: config,
            unknown_fields: alone.unknown_fields,
        })
    }
}

impl MeshNetworks {
    /// Parses the networks of the mesh; an empty text has none.
    ///
    /// # Errors
    /// When the text is not YAML, or a field has the wrong type.
    pub fn parse(text: &str) -> Result<Typed<Self>, TextError> {
        Typed::from_proto_json(&fields(text)?).map_err(|error| TextError::in_field(text, error))
    }
}

/// Parses a text with the fields of a message; an empty text has none.
fn fields(text: &str) -> Result<Value, TextError> {
    match yaml::parse(text, Schema::V1_1)? {
        Value::Null => Ok(Value::Object(Fields::new())),
        Value::Object(fields) => Ok(Value::Object(fields)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Err(TextError {
            line: 1,
            field: FieldError::new("", "is not a map of fields"),
        }),
    }
}

/// All fields of a message; unset fields are `null`.
fn to_fields(message: &impl Serialize) -> Fields {
    match serde_json::to_value(message) {
        Ok(Value::Object(fields)) => fields,
        // Messages are structs of plain data with string keys, so they always become an object.
        Ok(_) | Err(_) => Fields::new(),
    }
}

/// The fields that are set, under their names in `known`. Nulls are unset.
fn written_fields(written: Value, known: &Fields) -> Fields {
    let Value::Object(written) = written else {
        return Fields::new();
    };

    let named = |(key, value): (String, Value)| {
        let camel = camel_case(&key);
        (
            if known.contains_key(&camel) {
                camel
            } else {
                key
            },
            value,
        )
    };

    written
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(named)
        .collect()
}

/// Merges a written mesh config over another one.
fn merge_mesh_config(mut below: Fields, written: Value) -> Fields {
    for (key, value) in written_fields(written, &below) {
        let under = below.remove(&key).unwrap_or_default();
        let laid = match (key.as_str(), under) {
            ("defaultConfig", Value::Object(under)) => {
                Value::Object(merge_proxy_config(under, value))
            }
            ("defaultProviders", Value::Object(under)) => Value::Object(merge_fields(under, value)),
            ("extensionProviders", Value::Array(under)) => {
                Value::Array(merge_providers(under, value))
            }
            _ => value,
        };
        below.insert(key, laid);
    }
    below
}

/// Merges written fields over a message; each replaces the lower field entirely.
fn merge_fields(mut below: Fields, written: Value) -> Fields {
    let written = written_fields(written, &below);
    below.extend(written);
    below
}

/// Merges a written proxy config over another one.
fn merge_proxy_config(mut below: Fields, written: Value) -> Fields {
    for (key, value) in written_fields(written, &below) {
        let under = below.remove(&key).unwrap_or_default();
        let laid = match (key.as_str(), under, value) {
            ("proxyMetadata", Value::Object(mut under), Value::Object(over)) => {
                under.extend(over);
                Value::Object(under)
            }
            ("proxyHeaders", Value::Object(under), over) => {
                Value::Object(merge_proxy_headers(&under, over))
            }
            (_, _, value) => value,
        };

        if CLUSTER_NAME.contains(&key.as_str()) {
            below.retain(|other, _| !CLUSTER_NAME.contains(&other.as_str()));
        }

        below.insert(key, laid);
    }

    below
}

/// Merges headers: written headers replace the lower ones, and some unset headers keep the lower
/// value.
fn merge_proxy_headers(below: &Fields, written: Value) -> Fields {
    let mut over = written_fields(written, &to_fields(&ProxyHeaders::default()));
    for key in INHERITED_HEADERS {
        let unset = over
            .get(key)
            .is_none_or(|value| value == "UNDEFINED" || value == 0);
        if let (true, Some(shining)) = (unset, below.get(key)) {
            over.insert(key.to_owned(), shining.clone());
        }
    }
    over
}

/// Merges providers: a provider replaces the one of the same name, or is appended.
fn merge_providers(mut below: Vec<Value>, written: Value) -> Vec<Value> {
    let Value::Array(written) = written else {
        return below;
    };
    for provider in written {
        match below
            .iter_mut()
            .find(|other| other.get("name") == provider.get("name"))
        {
            Some(other) => *other = provider,
            None => below.push(provider),
        }
    }
    below
}

//! Laying what users write over what holds otherwise, by the rules of istiod's `pkg/config/mesh/mesh.go`.
//!
//! A field that is written replaces the one below it wholly, but for these: `defaultConfig` and `defaultProviders` are laid
//! over field by field, `extensionProviders` by name, and `trustDomainAliases` are added up. Within `defaultConfig`,
//! `proxyMetadata` is laid over key by key, and some members of `proxyHeaders` shine through. It is done on JSON, which
//! distinguishes fields that are set from fields that are absent.

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

/// Members of `proxyHeaders` that shine through where what is laid over leaves them unset.
const SHINING_HEADERS: [&str; 5] = ["forwardedClientCert", "requestId", "attemptCount", "server", "envoyDebugHeaders"];

/// Fields by their camelCase names.
type Fields = Map<String, Value>;

impl MeshConfig {
    /// These settings with a text laid over them. An empty text changes nothing.
    ///
    /// # Errors
    /// When the text is not YAML, or a field has the wrong type.
    pub fn apply(&self, text: &str) -> Result<Typed<Self>, TextError> {
        let written = fields(text)?;
        // Read by itself first: so faults have the paths of the text, not those of the merged lists.
        let alone = Typed::<Self>::from_proto_json(&written).map_err(|error| TextError::in_field(text, error))?;
        let merged = lay_mesh_config(to_fields(self), written);
        let merged = Typed::<Self>::from_proto_json(&Value::Object(merged));
        let mut config = merged.map_err(|error| TextError::in_field(text, error))?.value;
        let aliases = config.trust_domain_aliases.iter().chain(&self.trust_domain_aliases);
        config.trust_domain_aliases = aliases.cloned().collect::<BTreeSet<_>>().into_iter().collect();
        Ok(Typed { value: config, unknown_fields: alone.unknown_fields })
    }
}

impl ProxyConfig {
    /// These settings with a text laid over them, such as the annotation `proxy.istio.io/config` of a pod.
    ///
    /// # Errors
    /// When the text is not YAML, or a field has the wrong type.
    pub fn apply(&self, text: &str) -> Result<Typed<Self>, TextError> {
        let written = fields(text)?;
        let alone = Typed::<Self>::from_proto_json(&written).map_err(|error| TextError::in_field(text, error))?;
        let merged = lay_proxy_config(to_fields(self), written);
        let merged = Typed::<Self>::from_proto_json(&Value::Object(merged));
        let config = merged.map_err(|error| TextError::in_field(text, error))?.value;
        Ok(Typed { value: config, unknown_fields: alone.unknown_fields })
    }
}

impl MeshNetworks {
    /// Reads the networks of the mesh; an empty text has none.
    ///
    /// # Errors
    /// When the text is not YAML, or a field has the wrong type.
    pub fn parse(text: &str) -> Result<Typed<Self>, TextError> {
        Typed::from_proto_json(&fields(text)?).map_err(|error| TextError::in_field(text, error))
    }
}

/// Reads a text that holds the fields of a message; an empty one holds none.
fn fields(text: &str) -> Result<Value, TextError> {
    match yaml::parse(text, Schema::V1_1)? {
        Value::Null => Ok(Value::Object(Fields::new())),
        Value::Object(fields) => Ok(Value::Object(fields)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(TextError { line: 1, field: FieldError::new("", "is not a map of fields") })
        }
    }
}

/// All fields of a message, those that are not set as `null`.
fn to_fields(message: &impl Serialize) -> Fields {
    match serde_json::to_value(message) {
        Ok(Value::Object(fields)) => fields,
        // Messages are structs of plain data with text as keys: they always become an object.
        Ok(_) | Err(_) => Fields::new(),
    }
}

/// The fields that are written, by the names that `known` has for them. Nulls are not written.
fn written_fields(written: Value, known: &Fields) -> Fields {
    let Value::Object(written) = written else { return Fields::new() };
    let named = |(key, value): (String, Value)| {
        let camel = camel_case(&key);
        (if known.contains_key(&camel) { camel } else { key }, value)
    };
    written.into_iter().filter(|(_, value)| !value.is_null()).map(named).collect()
}

/// Lays what is written over a mesh config.
fn lay_mesh_config(mut below: Fields, written: Value) -> Fields {
    for (key, value) in written_fields(written, &below) {
        let under = below.remove(&key).unwrap_or_default();
        let laid = match (key.as_str(), under) {
            ("defaultConfig", Value::Object(under)) => Value::Object(lay_proxy_config(under, value)),
            ("defaultProviders", Value::Object(under)) => Value::Object(lay_fields(under, value)),
            ("extensionProviders", Value::Array(under)) => Value::Array(lay_providers(under, value)),
            _ => value,
        };
        below.insert(key, laid);
    }
    below
}

/// Lays what is written over a message, each field wholly.
fn lay_fields(mut below: Fields, written: Value) -> Fields {
    let written = written_fields(written, &below);
    below.extend(written);
    below
}

/// Lays what is written over a proxy config.
fn lay_proxy_config(mut below: Fields, written: Value) -> Fields {
    for (key, value) in written_fields(written, &below) {
        let under = below.remove(&key).unwrap_or_default();
        let laid = match (key.as_str(), under, value) {
            ("proxyMetadata", Value::Object(mut under), Value::Object(over)) => {
                under.extend(over);
                Value::Object(under)
            }
            ("proxyHeaders", Value::Object(under), over) => Value::Object(lay_proxy_headers(&under, over)),
            (_, _, value) => value,
        };
        if CLUSTER_NAME.contains(&key.as_str()) {
            below.retain(|other, _| !CLUSTER_NAME.contains(&other.as_str()));
        }
        below.insert(key, laid);
    }
    below
}

/// Lays headers over headers: what is written stands, and some of what is not shines through.
fn lay_proxy_headers(below: &Fields, written: Value) -> Fields {
    let mut over = written_fields(written, &to_fields(&ProxyHeaders::default()));
    for key in SHINING_HEADERS {
        let unset = over.get(key).is_none_or(|value| value == "UNDEFINED" || value == 0);
        if let (true, Some(shining)) = (unset, below.get(key)) {
            over.insert(key.to_owned(), shining.clone());
        }
    }
    over
}

/// Lays providers over providers: one with a name that is there replaces it, others follow.
fn lay_providers(mut below: Vec<Value>, written: Value) -> Vec<Value> {
    let Value::Array(written) = written else { return below };
    for provider in written {
        match below.iter_mut().find(|other| other.get("name") == provider.get("name")) {
            Some(other) => *other = provider,
            None => below.push(provider),
        }
    }
    below
}

//! Deserialization of JSON values to types, with the paths of errors and of unknown fields.

use serde::Deserialize;
use serde_json::Value;

use super::field_error::FieldError;
use super::json_reader::{Mapping, read};

/// A value of a type, and the unknown fields of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed<T> {
    /// Decoded from the known fields.
    pub value: T,
    /// Paths of unknown fields, in their order in the text.
    pub unknown_fields: Vec<String>,
}

impl<T> Typed<T> {
    /// Deserializes a message of protobuf's JSON: Istio's kinds and mesh config.
    ///
    /// # Errors
    /// With the path of the first field whose value does not fit.
    pub fn from_proto_json<'de>(value: &'de Value) -> Result<Self, FieldError>
    where
        T: Deserialize<'de>,
    {
        let (value, unknown_fields) = read(value, Mapping::Protobuf)?;
        Ok(Self {
            value,
            unknown_fields,
        })
    }

    /// Deserializes an object of Kubernetes' own JSON.
    ///
    /// # Errors
    /// With the path of the first field whose value does not fit.
    pub fn from_json<'de>(value: &'de Value) -> Result<Self, FieldError>
    where
        T: Deserialize<'de>,
    {
        let (value, unknown_fields) = read(value, Mapping::Kubernetes)?;
        Ok(Self {
            value,
            unknown_fields,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mesh::MeshConfig;

    #[test]
    fn unknown_fields_are_reported_and_the_rest_is_decoded() {
        let value = json!({
            "rootNamespace": "mesh", "colour": "red",
            "defaultConfig": { "tracing": { "zipkin": { "adress": "x" } } },
            "extensionProviders": [{ "name": "a" }, { "nmae": "b" }],
        });
        let typed = Typed::<MeshConfig>::from_proto_json(&value).unwrap();
        assert_eq!(typed.value.root_namespace, "mesh");
        let mut unknown = typed.unknown_fields;
        unknown.sort();
        assert_eq!(
            unknown,
            [
                "colour",
                "defaultConfig.tracing.zipkin.adress",
                "extensionProviders[1].nmae"
            ]
        );
    }

    #[test]
    fn errors_name_the_field() {
        let path = |value| {
            Typed::<MeshConfig>::from_proto_json(&value)
                .unwrap_err()
                .path
        };
        assert_eq!(
            path(json!({ "extensionProviders": [{ "zipkin": { "port": "x" } }] })),
            "extensionProviders[0].zipkin.port"
        );
        assert_eq!(
            path(json!({ "default_config": { "tracing": { "sampling": [] } } })),
            "defaultConfig.tracing.sampling"
        );
        assert_eq!(path(json!({ "connectTimeout": "5" })), "connectTimeout");
        assert_eq!(path(json!("x")), "");
    }
}

//! From a value of JSON to a type, with the path of what is wrong and of what the type does not know.

use serde::{Deserialize, Deserializer};
use serde_ignored::Path;
use serde_json::Value;

use super::field_error::FieldError;
use super::proto_json::ProtoJson;

/// A value of a type, and what of the text it was read from had no place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed<T> {
    /// The value.
    pub value: T,
    /// Paths of the fields that the type does not know, in their order in the text.
    pub unknown_fields: Vec<String>,
}

impl<T> Typed<T> {
    /// Reads a message of protobuf's JSON: Istio's kinds and mesh config.
    ///
    /// # Errors
    /// With the path of the first field whose value does not fit.
    pub fn from_proto_json<'de>(value: &'de Value) -> Result<Self, FieldError>
    where
        T: Deserialize<'de>,
    {
        read(ProtoJson(value))
    }

    /// Reads an object of Kubernetes' own JSON.
    ///
    /// # Errors
    /// With the path of the first field whose value does not fit.
    pub fn from_json<'de>(value: &'de Value) -> Result<Self, FieldError>
    where
        T: Deserialize<'de>,
    {
        read(value)
    }
}

/// Reads from any deserializer.
fn read<'de, T, D>(deserializer: D) -> Result<Typed<T>, FieldError>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let mut unknown_fields = Vec::new();
    let mut note = |path: Path<'_>| unknown_fields.push(path_text(&path));
    let watched = serde_ignored::Deserializer::new(deserializer, &mut note);
    match serde_path_to_error::deserialize(watched) {
        Ok(value) => Ok(Typed { value, unknown_fields }),
        Err(error) => {
            let path = match error.path().to_string() {
                root if root == "." => String::new(),
                path => path,
            };
            Err(FieldError::new(path, error.into_inner().to_string()))
        }
    }
}

/// A path as users write it, such as `spec.http[0].match`.
fn path_text(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", path_text(parent)),
        Path::Map { parent, key } => match path_text(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => path_text(parent),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mesh::MeshConfig;

    #[test]
    fn unknown_fields_are_told_and_the_rest_is_read() {
        let value = json!({
            "rootNamespace": "mesh", "colour": "red",
            "defaultConfig": { "tracing": { "zipkin": { "adress": "x" } } },
            "extensionProviders": [{ "name": "a" }, { "nmae": "b" }],
        });
        let typed = Typed::<MeshConfig>::from_proto_json(&value).unwrap();
        assert_eq!(typed.value.root_namespace, "mesh");
        let mut unknown = typed.unknown_fields;
        unknown.sort();
        assert_eq!(unknown, ["colour", "defaultConfig.tracing.zipkin.adress", "extensionProviders[1].nmae"]);
    }

    #[test]
    fn errors_name_the_field() {
        let path = |value| Typed::<MeshConfig>::from_proto_json(&value).unwrap_err().path;
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

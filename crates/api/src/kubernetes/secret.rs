//! `v1/Secret`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::core::v1 as wire;

use super::metadata::text;
use crate::field_error::FieldError;
use crate::object::Object;

/// Such as the certificate and private key that a Gateway references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secret {
    /// `type`; the default is `Opaque`.
    pub secret_type: Arc<str>,
    /// `data`, overridden by `stringData`.
    pub data: BTreeMap<Arc<str>, SecretBytes>,
}

/// Secret bytes: printing omits the content.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretBytes(Bytes);

impl SecretBytes {
    /// Wraps bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes, for callers that must send or parse them.
    #[must_use]
    pub fn expose(&self) -> &Bytes {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<hidden>")
    }
}

impl TryFrom<wire::Secret> for Object<Secret> {
    type Error = FieldError;

    fn try_from(object: wire::Secret) -> Result<Self, FieldError> {
        let data = object
            .data
            .into_iter()
            .flatten()
            .map(|(key, value)| (key, value.0));

        let string_data = object
            .string_data
            .into_iter()
            .flatten()
            .map(|(key, value)| (key, value.into_bytes()));
        let all = data
            .chain(string_data)
            .map(|(key, value)| (Arc::from(key), SecretBytes::new(value)));

        let secret_type = match text(object.type_) {
            unset if unset.is_empty() => Arc::from("Opaque"),
            set => set,
        };

        Ok(Self {
            meta: object.metadata.try_into()?,
            spec: Secret {
                secret_type,
                data: all.collect(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(body: serde_json::Value) -> Object<Secret> {
        serde_json::from_value::<wire::Secret>(body)
            .unwrap()
            .try_into()
            .unwrap()
    }

    #[test]
    fn string_data_wins_over_data() {
        let secret = secret(serde_json::json!({
            "metadata": { "name": "s" }, "data": { "a": "b2xk", "b": "Yg==" }, "stringData": { "a": "new" },
        }));
        assert_eq!(&secret.spec.data["a"].expose()[..], b"new");
        assert_eq!(&secret.spec.data["b"].expose()[..], b"b");
        assert_eq!(&*secret.spec.secret_type, "Opaque");
    }

    #[test]
    fn debug_output_omits_the_data() {
        let secret = secret(
            serde_json::json!({ "metadata": { "name": "s" }, "stringData": { "key": "password" } }),
        );
        let printed = format!("{secret:?}");
        assert!(
            printed.contains("key") && !printed.contains("password"),
            "{printed}"
        );
    }
}

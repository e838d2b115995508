//! `v1/ConfigMap`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::core::v1 as wire;

use crate::field_error::FieldError;
use crate::object::Object;

/// Such as mesh config, or the CA certificates that a Gateway references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMap {
    /// `data` and `binaryData` as one; a key is never in both.
    pub data: BTreeMap<Arc<str>, Bytes>,
}

impl ConfigMap {
    /// The value of `key` as text; `None` if it is absent or not UTF-8.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.data
            .get(key)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
}

impl TryFrom<wire::ConfigMap> for Object<ConfigMap> {
    type Error = FieldError;

    fn try_from(object: wire::ConfigMap) -> Result<Self, FieldError> {
        let text = object
            .data
            .into_iter()
            .flatten()
            .map(|(key, value)| (Arc::from(key), Bytes::from(value)));
        let mut data: BTreeMap<Arc<str>, Bytes> = text.collect();

        for (key, value) in object.binary_data.into_iter().flatten() {
            if data
                .insert(Arc::from(key.as_str()), Bytes::from(value.0))
                .is_some()
            {
                return Err(FieldError::new(
                    format!("binaryData[{key}]"),
                    "the key is in data too",
                ));
            }
        }

        Ok(Self {
            meta: object.metadata.try_into()?,
            spec: ConfigMap { data },
        })
    }
}

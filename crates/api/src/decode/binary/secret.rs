//! `v1.Secret`.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1 as wire;
use prost::Message;

use super::metadata::{ObjectMeta, metadata};
use super::non_empty;
use crate::field_error::FieldError;
use crate::kubernetes;
use crate::object::Object;

/// `v1.Secret`.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(super) struct Secret {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(btree_map = "string, bytes", tag = "2")]
    data: BTreeMap<String, Vec<u8>>,
    /// `type`.
    #[prost(string, tag = "3")]
    kind: String,
}

/// Omits the secret data.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret")
            .field("type", &self.kind)
            .finish_non_exhaustive()
    }
}

impl TryFrom<Secret> for Object<kubernetes::Secret> {
    type Error = FieldError;

    fn try_from(secret: Secret) -> Result<Self, FieldError> {
        let data = secret
            .data
            .into_iter()
            .map(|(key, value)| (key, ByteString(value)));
        wire::Secret {
            metadata: metadata(secret.metadata),
            data: Some(data.collect()),
            type_: non_empty(secret.kind),
            ..Default::default()
        }
        .try_into()
    }
}

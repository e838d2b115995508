//! `v1.ConfigMap`.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1 as wire;
use prost::Message;

use super::metadata::{ObjectMeta, metadata};
use crate::field_error::FieldError;
use crate::kubernetes;
use crate::object::Object;

/// `v1.ConfigMap`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ConfigMap {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(btree_map = "string, string", tag = "2")]
    data: BTreeMap<String, String>,
    #[prost(btree_map = "string, bytes", tag = "3")]
    binary_data: BTreeMap<String, Vec<u8>>,
}

impl TryFrom<ConfigMap> for Object<kubernetes::ConfigMap> {
    type Error = FieldError;

    fn try_from(map: ConfigMap) -> Result<Self, FieldError> {
        let binary = map
            .binary_data
            .into_iter()
            .map(|(key, value)| (key, ByteString(value)));
        wire::ConfigMap {
            metadata: metadata(map.metadata),
            data: Some(map.data),
            binary_data: Some(binary.collect()),
            ..Default::default()
        }
        .try_into()
    }
}

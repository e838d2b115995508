//! `metav1.ObjectMeta`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as wire;
use k8s_openapi::jiff::Timestamp;
use prost::Message;

use super::non_empty;
use crate::decode::stored::LAST_APPLIED;

/// `metav1.ObjectMeta`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) generate_name: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
    #[prost(string, tag = "5")]
    pub(super) uid: String,
    #[prost(string, tag = "6")]
    pub(super) resource_version: String,
    #[prost(int64, tag = "7")]
    pub(super) generation: i64,
    #[prost(message, optional, tag = "8")]
    pub(super) creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    pub(super) deletion_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    pub(super) labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    pub(super) annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    pub(super) owner_references: Vec<OwnerReference>,
}

/// `metav1.Time`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Time {
    /// `seconds`; what Kubernetes writes has no parts of a second.
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
}

/// `metav1.OwnerReference`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OwnerReference {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(bool, optional, tag = "6")]
    pub(super) controller: Option<bool>,
}

/// A time. An empty message is no time; all other times are in Kubernetes' range, which is jiff's.
fn moment(time: Option<Time>) -> Option<wire::Time> {
    time.and_then(|time| Timestamp::from_second(time.seconds).ok())
        .map(wire::Time)
}

impl From<ObjectMeta> for wire::ObjectMeta {
    fn from(mut meta: ObjectMeta) -> Self {
        meta.annotations.remove(LAST_APPLIED);
        let owner = |owner: OwnerReference| wire::OwnerReference {
            kind: owner.kind,
            name: owner.name,
            controller: owner.controller,
            ..Default::default()
        };

        Self {
            name: non_empty(meta.name),
            generate_name: non_empty(meta.generate_name),
            namespace: non_empty(meta.namespace),
            uid: non_empty(meta.uid),
            resource_version: non_empty(meta.resource_version),
            generation: Some(meta.generation).filter(|generation| *generation != 0),
            creation_timestamp: moment(meta.creation_timestamp),
            deletion_timestamp: moment(meta.deletion_timestamp),
            labels: Some(meta.labels).filter(|labels| !labels.is_empty()),
            annotations: Some(meta.annotations).filter(|annotations| !annotations.is_empty()),
            owner_references: super::listed(meta.owner_references.into_iter().map(owner).collect()),
            ..Self::default()
        }
    }
}

pub(super) fn metadata(meta: Option<ObjectMeta>) -> wire::ObjectMeta {
    meta.unwrap_or_default().into()
}

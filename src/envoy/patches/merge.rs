//! Merging messages as Istio does.
//!
//! Set fields of the patch replace those of the target; messages are merged field by field, lists are joined, entries of
//! maps replaced. It is protobuf's own merge but for durations: half of one and half of another is neither's meaning, so
//! they are replaced.

use navarch_proto::any::type_url;
use navarch_proto::prost_reflect::{DynamicMessage, ReflectMessage, Value};
use prost::{Message, Name};
use prost_types::Any;

use crate::api::envoy_json::codec;
use crate::api::field_error::FieldError;
use crate::api::istio::PatchOperation;
use crate::envoy::constraints;

/// The message that is replaced as a whole.
const DURATION: &str = "google.protobuf.Duration";

/// Why a message cannot be merged into another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MergeError {
    /// Messages of two types have no fields in common.
    #[error("a {patch} cannot be merged into a {target}")]
    TwoTypes {
        /// The type that is generated.
        target: String,
        /// The type in the patch.
        patch: String,
    },
    /// Envoy would refuse what comes of it.
    #[error("Envoy would refuse what comes of it: {0}")]
    Refused(FieldError),
    /// A message is of no type that is known, or no message of its type.
    #[error("{0}")]
    Unreadable(String),
}

/// Merges the value of a patch into a message.
pub(super) fn merge<M>(operation: PatchOperation, target: &mut M, patch: &DynamicMessage) -> Result<(), MergeError>
where
    M: Message + Name + Default,
{
    let unreadable = |error: &dyn std::error::Error| MergeError::Unreadable(error.to_string());
    let mut merged = codec().decode(&type_url::<M>(), &target.encode_to_vec()).map_err(|error| unreadable(&error))?;
    if merged.descriptor() != patch.descriptor() {
        return Err(two_types(&merged, patch));
    }
    let before = merged.clone();
    merge_message(&mut merged, patch, operation == PatchOperation::MergeAndReplaceList);
    accept(&before, &merged)?;
    *target = M::decode(codec().encode(&merged).as_slice()).map_err(|error| unreadable(&error))?;
    Ok(())
}

/// Merges an enveloped message into another of its type.
pub(super) fn merge_any(target: &Any, patch: &Any) -> Result<Any, MergeError> {
    let decode = |any: &Any| {
        codec().decode(&any.type_url, &any.value).map_err(|error| MergeError::Unreadable(error.to_string()))
    };
    let (mut merged, patch) = (decode(target)?, decode(patch)?);
    if merged.descriptor() != patch.descriptor() {
        return Err(two_types(&merged, &patch));
    }
    let before = merged.clone();
    merge_message(&mut merged, &patch, false);
    accept(&before, &merged)?;
    Ok(Any { type_url: target.type_url.clone(), value: codec().encode(&merged) })
}

/// Refuses what a patch makes of a message if Envoy would, and would not have refused the message before.
fn accept(before: &DynamicMessage, after: &DynamicMessage) -> Result<(), MergeError> {
    match constraints::check(after) {
        Err(fault) if constraints::check(before).is_ok() => Err(MergeError::Refused(fault)),
        Err(_) | Ok(()) => Ok(()),
    }
}

/// The error of messages of two types.
fn two_types(target: &DynamicMessage, patch: &DynamicMessage) -> MergeError {
    let name = |message: &DynamicMessage| message.descriptor().full_name().to_owned();
    MergeError::TwoTypes { target: name(target), patch: name(patch) }
}

/// Merges messages of one type.
fn merge_message(target: &mut DynamicMessage, patch: &DynamicMessage, replace_lists: bool) {
    for (field, value) in patch.fields() {
        if !target.has_field(&field) {
            target.set_field(&field, value.clone());
            continue;
        }
        match (target.get_field_mut(&field), value) {
            (Value::List(target), Value::List(patch)) => {
                if replace_lists {
                    target.clear();
                }
                target.extend(patch.iter().cloned());
            }
            (Value::Map(target), Value::Map(patch)) => {
                target.extend(patch.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            (Value::Message(target), Value::Message(patch)) if patch.descriptor().full_name() != DURATION => {
                merge_message(target, patch, replace_lists);
            }
            (target, value) => *target = value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use navarch_proto::any::pack;
    use navarch_proto::envoy::config::cluster::v3::Cluster;
    use navarch_proto::envoy::config::listener::v3::{Listener, ListenerFilter};
    use navarch_proto::envoy::extensions::filters::http::lua::v3::Lua;
    use navarch_proto::envoy::extensions::filters::http::router::v3::Router;
    use navarch_proto::json::UnknownFields;
    use serde_json::json;

    use super::*;

    /// A patch of this type and JSON.
    fn patch<M: Name>(json: &serde_json::Value) -> DynamicMessage {
        codec().message_from_json(&type_url::<M>(), json, UnknownFields::Refuse).unwrap()
    }

    #[test]
    fn durations_are_replaced_and_other_messages_merged() {
        let second = prost_types::Duration { seconds: 1, nanos: 5 };
        let mut cluster = Cluster { name: "a".into(), connect_timeout: Some(second), ..Cluster::default() };
        cluster.common_lb_config.get_or_insert_default().ignore_new_hosts_until_first_hc = true;
        let json = json!({
            "connect_timeout": "2s",
            "common_lb_config": { "close_connections_on_host_set_change": true },
        });
        merge(PatchOperation::Merge, &mut cluster, &patch::<Cluster>(&json)).unwrap();
        assert_eq!(cluster.connect_timeout, Some(prost_types::Duration { seconds: 2, nanos: 0 }));
        let balancing = cluster.common_lb_config.unwrap();
        assert!(balancing.ignore_new_hosts_until_first_hc && balancing.close_connections_on_host_set_change);
        assert_eq!(cluster.name, "a");
    }

    #[test]
    fn lists_are_joined_or_replaced() {
        let filter = |name: &str| ListenerFilter { name: name.to_owned(), ..ListenerFilter::default() };
        let listener = Listener { listener_filters: vec![filter("a")], ..Listener::default() };
        let json = json!({ "listener_filters": [{ "name": "b" }] });
        let names = |operation| {
            let mut merged = listener.clone();
            merge(operation, &mut merged, &patch::<Listener>(&json)).unwrap();
            merged.listener_filters.into_iter().map(|filter| filter.name).collect::<Vec<_>>()
        };
        assert_eq!(names(PatchOperation::Merge), ["a", "b"]);
        assert_eq!(names(PatchOperation::MergeAndReplaceList), ["b"]);
    }

    #[test]
    fn the_other_choice_of_a_oneof_goes() {
        let mut cluster = Cluster::default();
        cluster.cluster_discovery_type =
            Some(navarch_proto::envoy::config::cluster::v3::cluster::ClusterDiscoveryType::Type(3));
        let json = json!({ "cluster_type": { "name": "x" } });
        merge(PatchOperation::Merge, &mut cluster, &patch::<Cluster>(&json)).unwrap();
        let navarch_proto::envoy::config::cluster::v3::cluster::ClusterDiscoveryType::ClusterType(custom) =
            cluster.cluster_discovery_type.unwrap()
        else {
            panic!("the patch's choice holds")
        };
        assert_eq!(custom.name, "x");
    }

    #[test]
    fn what_envoy_would_refuse_is_not_merged() {
        let mut cluster = Cluster { name: "a".into(), ..Cluster::default() };
        let json = json!({ "connect_timeout": "0s" });
        let refused = merge(PatchOperation::Merge, &mut cluster, &patch::<Cluster>(&json));
        assert!(matches!(refused, Err(MergeError::Refused(fault)) if fault.path == "connect_timeout"));
        assert_eq!(cluster.connect_timeout, None);
    }

    #[test]
    fn envelopes_hold_one_type() {
        let router = pack(&Router { suppress_envoy_headers: true, ..Router::default() });
        let more = pack(&Router { respect_expected_rq_timeout: true, ..Router::default() });
        let both = Router::decode(merge_any(&router, &more).unwrap().value.as_slice()).unwrap();
        assert!(both.suppress_envoy_headers && both.respect_expected_rq_timeout);
        assert!(matches!(merge_any(&router, &pack(&Lua::default())), Err(MergeError::TwoTypes { .. })));
    }
}

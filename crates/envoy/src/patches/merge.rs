//! Merging of messages as in Istio.
//!
//! Set fields of the patch replace those of the target; messages are merged field by field, lists
//! are concatenated, map entries replaced. This is protobuf's own merge except for durations, which
//! are replaced as a whole: fields of two durations must not be mixed.

use navarch_proto::any::type_url;
use navarch_proto::envoy::config::bootstrap::v3::Bootstrap;
use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
use navarch_proto::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};
use navarch_proto::prost_reflect::{DynamicMessage, ReflectMessage, Value};
use prost::{Message, Name};
use prost_types::Any;

use crate::constraints::{self, REPLACED, check_merged};
use navarch_api::envoy_json::codec;
use navarch_api::field_error::FieldError;
use navarch_api::istio::PatchOperation;

/// Why a message cannot be merged into another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MergeError {
    /// The messages have different types.
    #[error("a {patch} cannot be merged into a {target}")]
    TwoTypes {
        /// The type that is generated.
        target: String,
        /// The type in the patch.
        patch: String,
    },
    /// Envoy would reject the result.
    #[error("Envoy would reject the merged message: {0}")]
    Rejected(FieldError),
    /// The type of a message is unknown, or its bytes are invalid.
    #[error("{0}")]
    Unreadable(String),
}

/// A message into which others are merged, one after the other: it is decoded and encoded once,
/// whatever their number.
#[derive(Debug)]
struct Merged {
    /// The result so far.
    message: DynamicMessage,
    /// Whether Envoy would accept it as it is, if known.
    sound: Option<bool>,
    /// Whether anything was merged into it.
    is_changed: bool,
}

impl Merged {
    /// Decodes a message.
    fn new(type_url: &str, bytes: &[u8]) -> Result<Self, MergeError> {
        let message = codec()
            .decode(type_url, bytes)
            .map_err(|error| MergeError::Unreadable(error.to_string()))?;
        Ok(Self {
            message,
            sound: None,
            is_changed: false,
        })
    }

    /// Merges a message of its type, unless Envoy would reject the result but not the previous
    /// message.
    fn merge(&mut self, patch: &DynamicMessage, replace_lists: bool) -> Result<(), MergeError> {
        if self.message.descriptor() != patch.descriptor() {
            return Err(two_types(&self.message, patch));
        }
        if let Err(fault) = check_merged(&self.message, patch, replace_lists, merge_message)
            && *self
                .sound
                .get_or_insert_with(|| constraints::check(&self.message).is_ok())
        {
            return Err(MergeError::Rejected(fault));
        }
        if self.sound == Some(false) {
            self.sound = None;
        }
        merge_message(&mut self.message, patch, replace_lists);
        self.is_changed = true;
        Ok(())
    }

    /// Its bytes, if anything was merged.
    fn changed_bytes(&self) -> Option<Vec<u8>> {
        self.is_changed.then(|| codec().encode(&self.message))
    }
}

/// The fields of a message type that patches match on (see `matching`).
pub(super) trait Identity: Message + Name + Default {
    /// The fields whose contents patches match on.
    const READ: &'static [&'static str];
    /// The fields that patches only check for presence.
    const SET: &'static [&'static str] = &[];
}

impl Identity for Bootstrap {
    const READ: &'static [&'static str] = &[];
}

impl Identity for Cluster {
    const READ: &'static [&'static str] = &["name"];
}

impl Identity for Listener {
    const READ: &'static [&'static str] = &["name", "address"];
}

impl Identity for FilterChain {
    const READ: &'static [&'static str] = &["name", "filter_chain_match", "transport_socket"];
}

impl Identity for RouteConfiguration {
    const READ: &'static [&'static str] = &["name"];
}

impl Identity for VirtualHost {
    const READ: &'static [&'static str] = &["name", "domains"];
}

impl Identity for Route {
    const READ: &'static [&'static str] = &["name"];
    const SET: &'static [&'static str] = &[
        "route",
        "redirect",
        "direct_response",
        "filter_action",
        "non_forwarding_action",
    ];
}

/// A generated message while patches are merged into it.
#[derive(Debug)]
pub(super) struct Target<'a, M> {
    /// The message, without fields that are only in `merged`.
    message: &'a mut M,
    /// The message with all merged values; `None` if `message` contains them already.
    merged: Option<Merged>,
    /// Whether `message` lacks fields that patches match on.
    is_stale: bool,
}

impl<'a, M: Identity> Target<'a, M> {
    /// A message without merged values.
    pub(super) fn new(message: &'a mut M) -> Self {
        Self {
            message,
            merged: None,
            is_stale: false,
        }
    }

    /// The fields of the message that patches match on.
    pub(super) fn identity(&mut self) -> &M {
        if self.is_stale {
            self.catch_up();
        }
        self.message
    }

    /// The message with all merged values, for other changes.
    pub(super) fn whole(&mut self) -> &mut M {
        self.catch_up();
        self.merged = None;
        self.message
    }

    /// Merges the value of a patch.
    pub(super) fn merge(
        &mut self,
        operation: PatchOperation,
        patch: &DynamicMessage,
    ) -> Result<(), MergeError> {
        let merged = match &mut self.merged {
            Some(merged) => merged,
            None => self.merged.insert(Merged::new(
                &type_url::<M>(),
                &self.message.encode_to_vec(),
            )?),
        };
        let turns = M::SET
            .iter()
            .any(|name| patch.has_field_by_name(name) && !merged.message.has_field_by_name(name));
        merged.merge(patch, operation == PatchOperation::MergeAndReplaceList)?;
        self.is_stale |= turns || M::READ.iter().any(|name| patch.has_field_by_name(name));
        Ok(())
    }

    /// Updates the message.
    fn catch_up(&mut self) {
        self.is_stale = false;
        if let Some(bytes) = self.merged.as_ref().and_then(Merged::changed_bytes) {
            *self.message = M::decode(bytes.as_slice())
                .expect("the bytes encode this type, and patches nest at most MAX_DEPTH deep");
        }
    }

    /// Encodes the message.
    pub(super) fn finish(mut self) {
        self.catch_up();
    }
}

/// Merges the value of a patch into a message.
#[cfg(test)]
pub(super) fn merge<M: Identity>(
    operation: PatchOperation,
    target: &mut M,
    patch: &DynamicMessage,
) -> Result<(), MergeError> {
    let mut target = Target::new(target);
    let merged = target.merge(operation, patch);
    target.finish();
    merged
}

/// A message in an `Any` while others are merged into it.
#[derive(Debug)]
pub(super) struct TargetAny<'a> {
    /// The `Any`, with its original content.
    envelope: &'a mut Any,
    /// The message with all merged values.
    merged: Option<Merged>,
}

impl<'a> TargetAny<'a> {
    /// An `Any` without merged values.
    pub(super) fn new(envelope: &'a mut Any) -> Self {
        Self {
            envelope,
            merged: None,
        }
    }

    /// Merges a message in an `Any` of the same type.
    pub(super) fn merge(&mut self, patch: &Any) -> Result<(), MergeError> {
        let merged = match &mut self.merged {
            Some(merged) => merged,
            None => self
                .merged
                .insert(Merged::new(&self.envelope.type_url, &self.envelope.value)?),
        };
        merged.merge(&Merged::new(&patch.type_url, &patch.value)?.message, false)
    }

    /// Stores the message in its `Any`.
    pub(super) fn finish(self) {
        if let Some(bytes) = self.merged.as_ref().and_then(Merged::changed_bytes) {
            self.envelope.value = bytes;
        }
    }
}

/// Merges a message in an `Any` into another of the same type.
pub(super) fn merge_any(target: &mut Any, patch: &Any) -> Result<(), MergeError> {
    let mut target = TargetAny::new(target);
    target.merge(patch)?;
    target.finish();
    Ok(())
}

/// The error for messages of different types.
fn two_types(target: &DynamicMessage, patch: &DynamicMessage) -> MergeError {
    let name = |message: &DynamicMessage| message.descriptor().full_name().to_owned();
    MergeError::TwoTypes {
        target: name(target),
        patch: name(patch),
    }
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
                target.extend(
                    patch
                        .iter()
                        .map(|(key, value)| (key.clone(), value.clone())),
                );
            }
            (Value::Message(target), Value::Message(patch))
                if patch.descriptor().full_name() != REPLACED =>
            {
                merge_message(target, patch, replace_lists);
            }
            (target, value) => *target = value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use navarch_proto::any::pack;
    use navarch_proto::envoy::config::listener::v3::ListenerFilter;
    use navarch_proto::envoy::extensions::filters::http::lua::v3::Lua;
    use navarch_proto::envoy::extensions::filters::http::router::v3::Router;
    use navarch_proto::json::UnknownFields;
    use serde_json::json;

    use super::*;

    /// A patch of this type and JSON.
    fn patch<M: Name>(json: &serde_json::Value) -> DynamicMessage {
        codec()
            .message_from_json(&type_url::<M>(), json, UnknownFields::Reject)
            .unwrap()
    }

    #[test]
    fn durations_are_replaced_and_other_messages_merged() {
        let second = prost_types::Duration {
            seconds: 1,
            nanos: 5,
        };
        let mut cluster = Cluster {
            name: "a".into(),
            connect_timeout: Some(second),
            ..Cluster::default()
        };
        cluster
            .common_lb_config
            .get_or_insert_default()
            .ignore_new_hosts_until_first_hc = true;

        let json = json!({
            "connect_timeout": "2s",
            "common_lb_config": { "close_connections_on_host_set_change": true },
        });
        merge(
            PatchOperation::Merge,
            &mut cluster,
            &patch::<Cluster>(&json),
        )
        .unwrap();
        assert_eq!(
            cluster.connect_timeout,
            Some(prost_types::Duration {
                seconds: 2,
                nanos: 0
            })
        );

        let balancing = cluster.common_lb_config.unwrap();
        assert!(
            balancing.ignore_new_hosts_until_first_hc
                && balancing.close_connections_on_host_set_change
        );
        assert_eq!(cluster.name, "a");
    }

    #[test]
    fn lists_are_joined_or_replaced() {
        let filter = |name: &str| ListenerFilter {
            name: name.to_owned(),
            ..ListenerFilter::default()
        };
        let listener = Listener {
            listener_filters: vec![filter("a")],
            ..Listener::default()
        };

        let json = json!({ "listener_filters": [{ "name": "b" }] });
        let names = |operation| {
            let mut merged = listener.clone();
            merge(operation, &mut merged, &patch::<Listener>(&json)).unwrap();
            merged
                .listener_filters
                .into_iter()
                .map(|filter| filter.name)
                .collect::<Vec<_>>()
        };

        assert_eq!(names(PatchOperation::Merge), ["a", "b"]);
        assert_eq!(names(PatchOperation::MergeAndReplaceList), ["b"]);
    }

    #[test]
    fn merging_a_oneof_replaces_the_other_choice() {
        let mut cluster = Cluster::default();
        cluster.cluster_discovery_type =
            Some(navarch_proto::envoy::config::cluster::v3::cluster::ClusterDiscoveryType::Type(3));
        let json = json!({ "cluster_type": { "name": "x" } });
        merge(
            PatchOperation::Merge,
            &mut cluster,
            &patch::<Cluster>(&json),
        )
        .unwrap();
        let navarch_proto::envoy::config::cluster::v3::cluster::ClusterDiscoveryType::ClusterType(
            custom,
        ) = cluster.cluster_discovery_type.unwrap()
        else {
            panic!("the patch's choice holds")
        };
        assert_eq!(custom.name, "x");
    }

    #[test]
    fn patches_that_envoy_would_reject_are_not_merged() {
        let mut cluster = Cluster {
            name: "a".into(),
            ..Cluster::default()
        };
        let json = json!({ "connect_timeout": "0s" });
        let rejected = merge(
            PatchOperation::Merge,
            &mut cluster,
            &patch::<Cluster>(&json),
        );
        assert!(
            matches!(rejected, Err(MergeError::Rejected(fault)) if fault.path == "connect_timeout")
        );
        assert_eq!(cluster.connect_timeout, None);
    }

    #[test]
    fn checking_a_patch_equals_checking_the_merged_message() {
        let base = [
            json!({ "name": "a", "connect_timeout": "1s", "type": "EDS" }),
            json!({ "name": "b", "circuit_breakers": { "thresholds": [{ "max_requests": 3 }] },
                "common_lb_config": { "healthy_panic_threshold": { "value": 50.0 } } }),
            json!({ "transport_socket": { "name": "tls", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer" } },
                "name": "c", "health_checks": [{ "timeout": "1s", "interval": "1s", "unhealthy_threshold": 1,
                    "healthy_threshold": 1, "tcp_health_check": {} }] }),
        ];

        let patches = [
            json!({ "connect_timeout": "0s" }),
            json!({ "name": "x", "outlier_detection": { "interval": "0s" } }),
            json!({ "circuit_breakers": { "thresholds": [{ "priority": 7 }] } }),
            json!({ "common_lb_config": { "healthy_panic_threshold": { "value": 101.0 } } }),
            json!({ "common_lb_config": { "healthy_panic_threshold": { "value": 10.0 } } }),
            json!({ "health_checks": [{ "timeout": "0s" }] }),
            json!({ "transport_socket": { "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy" } } }),
            json!({ "max_requests_per_connection": 5, "dns_lookup_family": "V4_ONLY" }),
            json!({ "per_connection_buffer_limit_bytes": 0 }),
        ];

        let mut rejected = 0;
        let mut taken = 0;

        for target in base.iter().map(patch::<Cluster>) {
            assert_eq!(constraints::check(&target), Ok(()));

            for patch in patches.iter().map(patch::<Cluster>) {
                for replace in [false, true] {
                    let mut merged = target.clone();
                    merge_message(&mut merged, &patch, replace);
                    let of_all = constraints::check(&merged);
                    assert_eq!(
                        check_merged(&target, &patch, replace, merge_message),
                        of_all,
                        "{patch} into {target}"
                    );
                    if of_all.is_ok() {
                        taken += 1
                    } else {
                        rejected += 1
                    }
                }
            }
        }

        assert!(rejected > 10 && taken > 10, "{rejected} and {taken}");
    }

    #[test]
    fn patches_match_on_previously_patched_values() {
        let mut host = VirtualHost {
            name: "a".into(),
            domains: vec!["a".into()],
            ..VirtualHost::default()
        };
        let mut target = Target::new(&mut host);
        target
            .merge(
                PatchOperation::Merge,
                &patch::<VirtualHost>(&json!({ "domains": ["b"] })),
            )
            .unwrap();

        assert_eq!(target.identity().domains, ["a", "b"]);
        target
            .merge(
                PatchOperation::Merge,
                &patch::<VirtualHost>(&json!({ "request_headers_to_remove": ["x"] })),
            )
            .unwrap();

        let renamed = target.merge(
            PatchOperation::Merge,
            &patch::<VirtualHost>(&json!({ "name": "c" })),
        );
        assert_eq!((renamed, target.identity().name.as_str()), (Ok(()), "c"));
        target
            .merge(
                PatchOperation::Merge,
                &patch::<VirtualHost>(&json!({ "request_headers_to_remove": ["y"] })),
            )
            .unwrap();

        target.finish();
        assert_eq!(
            (host.name.as_str(), host.request_headers_to_remove),
            ("c", vec!["x".to_owned(), "y".to_owned()])
        );
    }

    #[test]
    fn envelopes_hold_one_type() {
        let router = pack(&Router {
            suppress_envoy_headers: true,
            ..Router::default()
        });
        let more = pack(&Router {
            respect_expected_rq_timeout: true,
            ..Router::default()
        });
        let mut both = router.clone();
        merge_any(&mut both, &more).unwrap();
        let merged = Router::decode(both.value.as_slice()).unwrap();
        assert!(merged.suppress_envoy_headers && merged.respect_expected_rq_timeout);
        assert!(matches!(
            merge_any(&mut both, &pack(&Lua::default())),
            Err(MergeError::TwoTypes { .. })
        ));
    }
}

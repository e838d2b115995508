//! Discovery responses that share the bytes of their resources.
//!
//! `prost_types::Any` owns its bytes, so a response made of it copies every resource for every
//! stream. The messages here have the numbers and the bytes of their Envoy namesakes, but hold a
//! resource as [`Bytes`]: a clone is a count. [`aggregated_discovery_service_server`] is the
//! service that answers with them.

use bytes::Bytes;

use crate::envoy::config::core::v3::ControlPlane;

pub use service::{aggregated_discovery_service_client, aggregated_discovery_service_server};

/// The service of `envoy/service/discovery/v3/ads.proto`, generated again with the responses below.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    missing_docs,
    rustdoc::all,
    reason = "generated: its style is tonic's"
)]
mod service {
    include!(concat!(
        env!("OUT_DIR"),
        "/raw/envoy.service.discovery.v3.AggregatedDiscoveryService.rs"
    ));
}

/// `google.protobuf.Any` with shared bytes.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct RawAny {
    /// What the bytes are, such as `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The encoded message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// `envoy.service.discovery.v3.DiscoveryResponse`, without the fields that are not sent: `canary`,
/// `resource_errors`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RawDiscoveryResponse {
    /// The version of the whole set of resources.
    #[prost(string, tag = "1")]
    pub version_info: String,
    /// The resources; for clusters and listeners all that there are, for other types at least the
    /// changed ones.
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<RawAny>,
    /// The type of the resources; told apart from theirs because there may be none.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// What the client's answer quotes.
    #[prost(string, tag = "5")]
    pub nonce: String,
    /// Who answers.
    #[prost(message, optional, tag = "6")]
    pub control_plane: Option<ControlPlane>,
}

/// `envoy.service.discovery.v3.Resource`, without the fields that are not sent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RawResource {
    /// The version of this resource alone.
    #[prost(string, tag = "1")]
    pub version: String,
    /// The resource; absent when only the name is sent.
    #[prost(message, optional, tag = "2")]
    pub resource: Option<RawAny>,
    /// The name by which it was, or could be, subscribed to.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Other names of it, such as the addresses of a workload.
    #[prost(string, repeated, tag = "4")]
    pub aliases: Vec<String>,
}

/// `envoy.service.discovery.v3.DeltaDiscoveryResponse`, without the fields that are not sent:
/// `removed_resource_names`, `resource_errors`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RawDeltaDiscoveryResponse {
    /// The version of the whole set of resources; only for people to read.
    #[prost(string, tag = "1")]
    pub system_version_info: String,
    /// The resources that are new or changed.
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<RawResource>,
    /// The type of the resources; told apart from theirs because there may be none.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// What the client's answer quotes.
    #[prost(string, tag = "5")]
    pub nonce: String,
    /// The names that no longer stand for anything.
    #[prost(string, repeated, tag = "6")]
    pub removed_resources: Vec<String>,
    /// Who answers.
    #[prost(message, optional, tag = "7")]
    pub control_plane: Option<ControlPlane>,
}

#[cfg(test)]
mod tests {
    use super::{RawAny, RawDeltaDiscoveryResponse, RawDiscoveryResponse, RawResource};
    use crate::envoy::config::core::v3::ControlPlane;
    use crate::envoy::service::discovery::v3::{
        DeltaDiscoveryResponse, DiscoveryResponse, Resource,
    };
    use prost::Message;

    const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

    fn any(value: &[u8]) -> prost_types::Any {
        prost_types::Any {
            type_url: CLUSTER.to_owned(),
            value: value.to_vec(),
        }
    }

    fn raw_any(value: &'static [u8]) -> RawAny {
        RawAny {
            type_url: CLUSTER.to_owned(),
            value: value.into(),
        }
    }

    fn who() -> Option<ControlPlane> {
        Some(ControlPlane {
            identifier: "navarch".to_owned(),
        })
    }

    #[test]
    fn a_response_has_the_bytes_of_its_namesake() {
        let raw = RawDiscoveryResponse {
            version_info: "v1".to_owned(),
            resources: vec![raw_any(b"\x0a\x01a"), raw_any(b"")],
            type_url: CLUSTER.to_owned(),
            nonce: "n1".to_owned(),
            control_plane: who(),
        };

        let full = DiscoveryResponse {
            version_info: "v1".to_owned(),
            resources: vec![any(b"\x0a\x01a"), any(b"")],
            canary: false,
            type_url: CLUSTER.to_owned(),
            nonce: "n1".to_owned(),
            control_plane: who(),
            resource_errors: vec![],
        };

        assert_eq!(raw.encode_to_vec(), full.encode_to_vec());
        assert_eq!(
            RawDiscoveryResponse::decode(full.encode_to_vec().as_slice()).unwrap(),
            raw
        );
    }

    #[test]
    fn a_delta_response_has_the_bytes_of_its_namesake() {
        let raw = RawDeltaDiscoveryResponse {
            system_version_info: "v1".to_owned(),
            resources: vec![RawResource {
                version: "r1".to_owned(),
                resource: Some(raw_any(b"\x0a\x01a")),
                name: "a".to_owned(),
                aliases: vec!["b".to_owned()],
            }],
            type_url: CLUSTER.to_owned(),
            nonce: "n1".to_owned(),
            removed_resources: vec!["c".to_owned()],
            control_plane: who(),
        };

        let full = DeltaDiscoveryResponse {
            system_version_info: "v1".to_owned(),
            resources: vec![Resource {
                version: "r1".to_owned(),
                resource: Some(any(b"\x0a\x01a")),
                name: "a".to_owned(),
                aliases: vec!["b".to_owned()],
                ..Resource::default()
            }],
            type_url: CLUSTER.to_owned(),
            nonce: "n1".to_owned(),
            removed_resources: vec!["c".to_owned()],
            control_plane: who(),
            ..DeltaDiscoveryResponse::default()
        };

        assert_eq!(raw.encode_to_vec(), full.encode_to_vec());
        assert_eq!(
            RawDeltaDiscoveryResponse::decode(full.encode_to_vec().as_slice()).unwrap(),
            raw
        );
    }

    #[test]
    fn a_decoded_resource_is_a_slice_of_what_arrived() {
        let bytes = bytes::Bytes::from(raw_any(b"abc").encode_to_vec());
        let raw = RawAny::decode(bytes.clone()).unwrap();
        assert!(bytes.as_ptr_range().contains(&raw.value.as_ptr()));
    }
}

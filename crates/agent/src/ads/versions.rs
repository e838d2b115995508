//! Versions of resources that the control plane leaves to the agent
//! ([`navarch_base::resource_version`]).

use bytes::{BufMut as _, Bytes, BytesMut};
use navarch_base::blocking;
use navarch_base::resource_version::{OMIT_VERSIONS, OMIT_VERSIONS_VALUE, Version};
use prost::DecodeError;
use prost::encoding::{self, WireType};
use tonic::Status;
use tonic::metadata::{MetadataMap, MetadataValue};

use super::{Protocol, peek};

/// The field number of a resource's version.
const VERSION: u32 = 1;

/// Size in bytes from which a response is completed on another thread: its digests take a
/// millisecond and more on processors without instructions for them.
const BLOCKING_BYTES: usize = 256 << 10;

/// Asks for resources without versions, in the protocol that has them.
pub(super) fn omit(protocol: Protocol, headers: &mut MetadataMap) {
    if protocol == Protocol::Delta {
        let value = MetadataValue::from_static(OMIT_VERSIONS_VALUE);
        headers.insert(OMIT_VERSIONS, value);
    }
}

/// Whether the control plane omits versions, by the headers of its response.
pub(super) fn are_omitted(headers: &MetadataMap) -> bool {
    headers
        .get(OMIT_VERSIONS)
        .is_some_and(|value| value == OMIT_VERSIONS_VALUE)
}

/// A response cannot be completed.
#[derive(Debug, PartialEq, thiserror::Error)]
enum CompleteError {
    #[error("failed to decode the control plane's response as protobuf")]
    Decode(#[from] DecodeError),
    #[error(
        "the control plane's response has more than {0} bytes with the versions of its resources"
    )]
    TooLarge(usize),
}

/// The response with the version of each resource, at most `max_bytes` long.
///
/// # Errors
/// If it is not a delta response, or gets too long.
pub(super) async fn completed(response: Bytes, max_bytes: usize) -> Result<Bytes, Status> {
    let completed = if response.len() < BLOCKING_BYTES {
        complete(&response, max_bytes)
    } else {
        blocking::run(move || complete(&response, max_bytes))
            .await
            .map_err(|error| Status::internal(error.to_string()))?
    };

    completed.map_err(|error| match error {
        CompleteError::Decode(_) => Status::internal(error.to_string()),
        CompleteError::TooLarge(_) => Status::resource_exhausted(error.to_string()),
    })
}

/// Adds the versions that are missing. All else is copied, also what this agent does not know. The
/// length has a bound because a version can be longer than its resource.
fn complete(response: &[u8], max_bytes: usize) -> Result<Bytes, CompleteError> {
    let mut completed = BytesMut::with_capacity(response.len() + response.len() / 16);
    let mut rest = response;

    while !rest.is_empty() {
        let before = rest;
        let field = peek::take_field(&mut rest)?;
        let encoded = before.get(..before.len() - rest.len()).unwrap_or_default();

        match field {
            Some((peek::RESOURCES, resource)) => match missing_version(resource)? {
                Some(version) => put_resource(&mut completed, resource, &version),
                None => completed.put_slice(encoded),
            },
            _ => completed.put_slice(encoded),
        }

        if completed.len() > max_bytes {
            return Err(CompleteError::TooLarge(max_bytes));
        }
    }

    Ok(completed.freeze())
}

/// The version of a resource that is sent without. A resource without a body, of which only the name
/// is sent, has none.
fn missing_version(resource: &[u8]) -> Result<Option<String>, DecodeError> {
    let has_version = peek::bytes(resource, VERSION)?.is_some();
    let any = peek::bytes(resource, peek::RESOURCE)?;
    match any {
        Some(any) if !has_version => {
            let body = peek::bytes(any, peek::ANY_VALUE)?.unwrap_or_default();
            Ok(Some(Version::of(body).to_string()))
        }
        _ => Ok(None),
    }
}

/// Appends a resource with this version as its last field: protobuf has no order of fields.
fn put_resource(response: &mut BytesMut, resource: &[u8], version: &String) {
    let length = resource.len() + encoding::string::encoded_len(VERSION, version);

    encoding::encode_key(peek::RESOURCES, WireType::LengthDelimited, response);
    encoding::encode_varint(length as u64, response);
    response.put_slice(resource);
    encoding::string::encode(VERSION, version, response);
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::service::discovery::v3::{
        DeltaDiscoveryResponse, Resource, ResourceError,
    };
    use prost::Message as _;
    use prost_types::Any;

    use super::*;
    use crate::ads::MAX_RESPONSE_BYTES;

    fn resource(name: &str, body: &[u8]) -> Resource {
        Resource {
            name: name.to_owned(),
            resource: Some(Any {
                type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
                value: body.to_vec(),
            }),
            ..Resource::default()
        }
    }

    #[test]
    fn resources_get_the_versions_that_the_control_plane_computes() {
        let named = Resource {
            version: "of-another-server".to_owned(),
            ..resource("b", b"2")
        };
        let bodiless = Resource {
            name: "c".to_owned(),
            ..Resource::default()
        };
        let mut response = DeltaDiscoveryResponse {
            system_version_info: "7".to_owned(),
            resources: vec![resource("a", b"abc"), named, bodiless, resource("d", b"")],
            removed_resources: vec!["e".to_owned()],
            resource_errors: vec![ResourceError::default()],
            nonce: "n".to_owned(),
            ..DeltaDiscoveryResponse::default()
        };

        let completed = complete(&response.encode_to_vec(), MAX_RESPONSE_BYTES).unwrap();

        for (resource, body) in response.resources.iter_mut().zip(["abc", "", "", ""]) {
            if resource.version.is_empty() && resource.resource.is_some() {
                resource.version = Version::of(body.as_bytes()).to_string();
            }
        }
        let decoded = DeltaDiscoveryResponse::decode(completed).unwrap();
        assert_eq!(decoded, response);
    }

    #[test]
    fn a_truncated_response_is_an_error() {
        let response = DeltaDiscoveryResponse {
            resources: vec![resource("a", &[7; 300])],
            ..DeltaDiscoveryResponse::default()
        };
        let bytes = response.encode_to_vec();

        for length in [1, 5, bytes.len() - 1] {
            let completed = complete(&bytes[..length], MAX_RESPONSE_BYTES);
            assert!(completed.is_err(), "{length}");
        }
    }

    #[test]
    fn versions_do_not_make_a_response_longer_than_its_bound() {
        let response = DeltaDiscoveryResponse {
            resources: vec![resource("a", b""); 1000],
            ..DeltaDiscoveryResponse::default()
        };
        let bytes = response.encode_to_vec();

        let bound = bytes.len() + bytes.len() / 4;
        let completed = complete(&bytes, bound);
        assert_eq!(completed, Err(CompleteError::TooLarge(bound)));
    }
}

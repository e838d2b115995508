//! Versions of resources that the control plane leaves to the agent
//! ([`navarch_base::resource_version`]).

use bytes::{BufMut as _, Bytes, BytesMut};
use navarch_base::resource_version::{
    OMIT_VERSIONS, OMIT_VERSIONS_VALUE, VERSION_TEXT_BYTES, Version,
};
use prost::DecodeError;
use prost::encoding::{self, WireType};
use tonic::Status;
use tonic::metadata::{MetadataMap, MetadataValue};

use super::{Protocol, peek};

/// The field number of a resource's version.
const VERSION: u32 = 1;

/// Bytes of a response that are completed before other tasks run: their digests take a millisecond
/// on processors without instructions for them. Threads for blocking work are not used, as a few
/// lookups of names that hang occupy all of the agent's.
const TURN_BYTES: usize = 256 << 10;

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

/// A field of a response.
struct ResponseField<'a> {
    /// All of it, as it is on the wire.
    encoded: &'a [u8],
    /// The resource in it, if that lacks a version.
    unversioned: Option<Unversioned<'a>>,
}

/// A resource that is sent without its version.
struct Unversioned<'a> {
    encoded: &'a [u8],
    /// The version is the digest of this.
    body: &'a [u8],
}

/// The response with the version of each resource, at most `max_bytes` long.
///
/// # Errors
/// If it is not a delta response, or gets too long.
pub(super) async fn completed(response: Bytes, max_bytes: usize) -> Result<Bytes, Status> {
    let completed = complete(&response, max_bytes).await;

    completed.map_err(|error| match error {
        CompleteError::Decode(_) => Status::internal(error.to_string()),
        CompleteError::TooLarge(_) => Status::resource_exhausted(error.to_string()),
    })
}

/// Adds the versions that are missing. All else is copied, also what this agent does not know. The
/// length has a bound because a version can be longer than its resource.
async fn complete(response: &[u8], max_bytes: usize) -> Result<Bytes, CompleteError> {
    let length = completed_length(response)?;
    if length > max_bytes {
        return Err(CompleteError::TooLarge(max_bytes));
    }

    let mut completed = BytesMut::with_capacity(length);
    let mut rest = response;
    let mut turn = 0;

    while !rest.is_empty() {
        let field = take_field(&mut rest)?;
        match &field.unversioned {
            Some(resource) => put_resource(&mut completed, resource),
            None => completed.put_slice(field.encoded),
        }

        turn += field.encoded.len();
        if turn >= TURN_BYTES {
            turn = 0;
            tokio::task::yield_now().await;
        }
    }

    Ok(completed.freeze())
}

/// The length in bytes of a response with all versions.
fn completed_length(response: &[u8]) -> Result<usize, DecodeError> {
    let mut rest = response;
    let mut length = 0;

    while !rest.is_empty() {
        let field = take_field(&mut rest)?;
        length += match &field.unversioned {
            Some(resource) => {
                let resource = length_with_version(resource);
                let prefix = encoding::key_len(peek::RESOURCES)
                    + encoding::encoded_len_varint(resource as u64);
                prefix + resource
            }
            None => field.encoded.len(),
        };
    }

    Ok(length)
}

/// Takes the first field of the rest of a response.
fn take_field<'a>(rest: &mut &'a [u8]) -> Result<ResponseField<'a>, DecodeError> {
    let before = *rest;
    let field = peek::take_field(rest)?;
    let encoded = before.get(..before.len() - rest.len()).unwrap_or_default();

    let unversioned = match field {
        Some((peek::RESOURCES, resource)) => unversioned(resource)?,
        _ => None,
    };
    Ok(ResponseField {
        encoded,
        unversioned,
    })
}

/// The resource, if it lacks a version. A resource without a body, of which only the name is sent,
/// has none.
fn unversioned(resource: &[u8]) -> Result<Option<Unversioned<'_>>, DecodeError> {
    let has_version = peek::bytes(resource, VERSION)?.is_some();
    let any = peek::bytes(resource, peek::RESOURCE)?;
    match any {
        Some(any) if !has_version => {
            let body = peek::bytes(any, peek::ANY_VALUE)?.unwrap_or_default();
            Ok(Some(Unversioned {
                encoded: resource,
                body,
            }))
        }
        _ => Ok(None),
    }
}

/// The length in bytes of a resource once it has its version.
fn length_with_version(resource: &Unversioned<'_>) -> usize {
    let version = encoding::key_len(VERSION)
        + encoding::encoded_len_varint(VERSION_TEXT_BYTES as u64)
        + VERSION_TEXT_BYTES;
    resource.encoded.len() + version
}

/// Appends a resource with its version as the last field: protobuf has no order of fields.
fn put_resource(response: &mut BytesMut, resource: &Unversioned<'_>) {
    let version = Version::of(resource.body).to_string();

    encoding::encode_key(peek::RESOURCES, WireType::LengthDelimited, response);
    encoding::encode_varint(length_with_version(resource) as u64, response);
    response.put_slice(resource.encoded);
    encoding::string::encode(VERSION, &version, response);
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
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

    #[tokio::test]
    async fn resources_get_the_versions_that_the_control_plane_computes() {
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

        let encoded = response.encode_to_vec();
        let completed = complete(&encoded, MAX_RESPONSE_BYTES).await.unwrap();
        assert_eq!(completed.len(), completed_length(&encoded).unwrap());

        for (resource, body) in response.resources.iter_mut().zip(["abc", "", "", ""]) {
            if resource.version.is_empty() && resource.resource.is_some() {
                resource.version = Version::of(body.as_bytes()).to_string();
            }
        }
        let decoded = DeltaDiscoveryResponse::decode(completed).unwrap();
        assert_eq!(decoded, response);
    }

    #[tokio::test]
    async fn other_tasks_run_while_a_large_response_is_completed() {
        let response = DeltaDiscoveryResponse {
            resources: vec![resource("a", &[7; TURN_BYTES]); 3],
            ..DeltaDiscoveryResponse::default()
        };
        let bytes = response.encode_to_vec();

        let mut completed = std::pin::pin!(complete(&bytes, MAX_RESPONSE_BYTES));
        assert!(completed.as_mut().now_or_never().is_none());
        assert!(completed.await.is_ok());
    }

    #[tokio::test]
    async fn a_truncated_response_is_an_error() {
        let response = DeltaDiscoveryResponse {
            resources: vec![resource("a", &[7; 300])],
            ..DeltaDiscoveryResponse::default()
        };
        let bytes = response.encode_to_vec();

        for length in [1, 5, bytes.len() - 1] {
            let completed = complete(&bytes[..length], MAX_RESPONSE_BYTES).await;
            assert!(completed.is_err(), "{length}");
        }
    }

    #[tokio::test]
    async fn versions_do_not_make_a_response_longer_than_its_bound() {
        let response = DeltaDiscoveryResponse {
            resources: vec![resource("a", b""); 1000],
            ..DeltaDiscoveryResponse::default()
        };
        let bytes = response.encode_to_vec();

        let bound = bytes.len() + bytes.len() / 4;
        let completed = complete(&bytes, bound).await;
        assert_eq!(completed, Err(CompleteError::TooLarge(bound)));
    }
}

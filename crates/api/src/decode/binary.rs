//! Objects in Kubernetes' protobuf form (`application/vnd.kubernetes.protobuf`): a fraction of the
//! bytes of JSON, and of the work, on both sides. Only Kubernetes' own kinds have it, and only
//! kinds with many objects are read in it.
//!
//! ```text
//! frame ─▶ WatchEvent ─▶ "k8s\0" ─▶ Unknown ─┬▶ what is as it should be ─▶ our own objects
//!                                             └▶ message ─▶ the form that JSON is read into ─▶ our own objects
//! ```
//!
//! Field numbers are those of `generated.proto` in k8s.io/api and k8s.io/apimachinery. Only used
//! fields are listed; the decoder skips the others.

mod config_map;
mod direct;
mod endpoint_slice;
mod envelope;
mod fields;
mod metadata;
mod node;
mod pod;
mod secret;
mod service;
mod status;

use prost::Message;

use super::stored::{Header, ServerStatus, StoredObject, WatchEvent, stored};
use super::{Outcome, Subject};
use crate::any_object::AnyObject;
use crate::field_error::FieldError;
use crate::kubernetes;
use crate::object::{Kind, Object};
use crate::shared_texts::{HasTexts, SharedTexts};

/// Errors of decoding a frame.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// It lacks the magic prefix, or contains another type.
    #[error("is not a Kubernetes protobuf message")]
    Foreign,
    /// It is malformed.
    #[error(transparent)]
    Broken(#[from] prost::DecodeError),
}

/// Whether objects of a kind are read in protobuf form.
#[must_use]
pub fn has_binary_form(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Pod
            | Kind::Service
            | Kind::EndpointSlice
            | Kind::Node
            | Kind::Secret
            | Kind::ConfigMap
    )
}

/// Decodes one frame of a watch over objects of a kind. Repeated texts are interned.
///
/// # Errors
/// When the frame is not a watch event.
pub fn decode_binary_event(
    kind: Kind,
    frame: &[u8],
    texts: &mut SharedTexts,
) -> Result<WatchEvent, BinaryError> {
    if let Some(event) = direct::event(kind, frame, texts) {
        return Ok(event);
    }
    let mut event = decode_slowly(kind, frame)?;
    event.share(texts);
    Ok(event)
}

/// Decodes one frame with prost.
fn decode_slowly(kind: Kind, frame: &[u8]) -> Result<WatchEvent, BinaryError> {
    // The events of a stream are not wrapped themselves.
    let event = envelope::WatchEvent::decode(frame)?;
    let object = event.object.map(|object| object.raw).unwrap_or_default();
    let content = envelope::content(&object)?;
    let header = || {
        envelope::Bare::decode(content).map(|bare| Header {
            metadata: metadata::metadata(bare.metadata),
        })
    };

    match event.kind.as_str() {
        "ADDED" | "MODIFIED" => match decode_object(kind, content)? {
            Ok(object) => Ok(WatchEvent::Put(stored(object))),
            Err(error) => Ok(WatchEvent::Put(rejected(kind, header()?, error))),
        },
        "DELETED" => Ok(header()?.deleted()),
        "BOOKMARK" => Ok(header()?.bookmark()),
        "ERROR" => Ok(WatchEvent::Failed(status::Status::decode(content)?.into())),
        _ => Err(BinaryError::Foreign),
    }
}

/// Decodes a `metav1.Status`; `None` if the body is not in protobuf form.
#[must_use]
pub(super) fn decode_status(body: &[u8]) -> Option<ServerStatus> {
    let status = status::Status::decode(envelope::content(body).ok()?).ok()?;
    Some(status.into())
}

/// Decodes an object, or returns the rule of its kind that it violates.
#[expect(clippy::wildcard_enum_match_arm, reason = "see has_binary_form")]
fn decode_object(kind: Kind, content: &[u8]) -> Result<Result<AnyObject, FieldError>, BinaryError> {
    Ok(match kind {
        Kind::Pod => object::<kubernetes::Pod, _>(pod::Pod::decode(content)?),
        Kind::Service => object::<kubernetes::Service, _>(service::Service::decode(content)?),
        Kind::EndpointSlice => {
            object::<kubernetes::EndpointSlice, _>(endpoint_slice::EndpointSlice::decode(content)?)
        }
        Kind::Node => object::<kubernetes::Node, _>(node::Node::decode(content)?),
        Kind::Secret => object::<kubernetes::Secret, _>(secret::Secret::decode(content)?),
        Kind::ConfigMap => {
            object::<kubernetes::ConfigMap, _>(config_map::ConfigMap::decode(content)?)
        }
        _ => return Err(BinaryError::Foreign),
    })
}

/// Converts a message to an object.
fn object<T, M>(message: M) -> Result<AnyObject, FieldError>
where
    Object<T>: TryFrom<M, Error = FieldError>,
    AnyObject: From<Object<T>>,
{
    Object::<T>::try_from(message).map(AnyObject::from)
}

/// An object that violates a rule.
fn rejected(kind: Kind, header: Header, error: FieldError) -> StoredObject {
    let text = |text: Option<String>| text.unwrap_or_default();
    let subject = Subject {
        api_version: kind.group().to_owned(),
        kind: kind.as_str().to_owned(),
        namespace: text(header.metadata.namespace),
        name: text(header.metadata.name),
    };
    StoredObject {
        version: text(header.metadata.resource_version),
        subject,
        outcome: Outcome::Rejected(error),
    }
}

/// A non-empty text; Kubernetes encodes empty texts.
fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// A non-empty list.
fn listed<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}

#[cfg(test)]
mod tests;

//! The envelope of every message.

use prost::Message;

use super::BinaryError;
use super::metadata::ObjectMeta;

/// The magic prefix of every message.
const MAGIC: &[u8] = b"k8s\0";

/// `metav1.WatchEvent`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchEvent {
    /// `type`.
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(message, optional, tag = "2")]
    pub(super) object: Option<RawExtension>,
}

/// `runtime.RawExtension`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) raw: bytes::Bytes,
}

/// An object of any kind, of which only the metadata is used.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Bare {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
}

/// The content of a wrapped message (`runtime.Unknown`, of which field 2 is `raw`).
pub(super) fn content(message: &[u8]) -> Result<&[u8], BinaryError> {
    let mut rest = message.strip_prefix(MAGIC).ok_or(BinaryError::Foreign)?;
    // Decoded by hand, since prost would copy large contents.
    while !rest.is_empty() {
        let key = prost::encoding::decode_varint(&mut rest)?;
        if key & 7 != 2 {
            return Err(BinaryError::Foreign);
        }
        let length = prost::encoding::decode_varint(&mut rest)?;
        let length = usize::try_from(length).map_err(|_| BinaryError::Foreign)?;
        let (field, after) = rest.split_at_checked(length).ok_or(BinaryError::Foreign)?;
        if key >> 3 == 2 {
            return Ok(field);
        }
        rest = after;
    }
    Ok(&[])
}

/// A message wrapped as by Kubernetes.
#[cfg(test)]
pub(super) fn wrapped(message: &impl Message) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    prost::encoding::bytes::encode(2, &message.encode_to_vec(), &mut bytes);
    bytes
}

//! Proto3 JSON of any message of this crate, with the messages inside of `Any` written out.
//!
//! ```text
//!   bytes ──decode──▶ DynamicMessage ──writer──▶ JSON
//!   bytes ◀─encode─── DynamicMessage ◀─reader─── JSON
//! ```
//!
//! `prost-reflect` reads and writes the well-known types here. Its own JSON of other messages is
//! not used: it rejects an empty `Any`, which Istio sends, and its errors lack the field.

mod reader;
mod writer;

use bytes::Bytes;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::Value;

use crate::DESCRIPTORS;
use crate::canonical;

/// The full name of the message that can hold any other.
const ANY: &str = "google.protobuf.Any";

/// The messages whose JSON is not an object of their fields, `Any` apart.
const WELL_KNOWN: [&str; 16] = [
    "google.protobuf.BoolValue",
    "google.protobuf.BytesValue",
    "google.protobuf.DoubleValue",
    "google.protobuf.Duration",
    "google.protobuf.Empty",
    "google.protobuf.FieldMask",
    "google.protobuf.FloatValue",
    "google.protobuf.Int32Value",
    "google.protobuf.Int64Value",
    "google.protobuf.ListValue",
    "google.protobuf.StringValue",
    "google.protobuf.Struct",
    "google.protobuf.Timestamp",
    "google.protobuf.UInt32Value",
    "google.protobuf.UInt64Value",
    "google.protobuf.Value",
];

/// What is done with a JSON field that the message does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownFields {
    /// The whole text is rejected.
    Reject,
    /// The field is left out.
    Skip,
}

/// Why a message could not be turned into JSON, or back.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The type is none of those that this crate holds.
    #[error("{type_url} is not a known type")]
    UnknownType {
        /// The type as it was given.
        type_url: String,
    },
    /// The bytes are not a message of the type.
    #[error("not an encoded {type_url}")]
    Bytes {
        /// The type that they should have been.
        type_url: String,
        /// What is wrong with them.
        #[source]
        source: prost::DecodeError,
    },
    /// A field has no value that can be written, or was given one that it cannot have.
    #[error("{path}: {reason}")]
    Field {
        /// Where it is, such as `virtualHosts[0].routes[2].match`; empty for the message as a
        /// whole.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl JsonError {
    /// The same error of a message that is found at `step` of another.
    fn under(self, step: &str) -> Self {
        match self {
            Self::Field { path, reason } => {
                let separator = if path.is_empty() || path.starts_with('[') {
                    ""
                } else {
                    "."
                };
                Self::Field {
                    path: format!("{step}{separator}{path}"),
                    reason,
                }
            }
            Self::UnknownType { .. } | Self::Bytes { .. } => Self::Field {
                path: step.to_owned(),
                reason: self.to_string(),
            },
        }
    }

    /// An error of the value at hand.
    fn here(reason: impl std::fmt::Display) -> Self {
        Self::Field {
            path: String::new(),
            reason: reason.to_string(),
        }
    }
}

/// The descriptors of all messages, which conversions between bytes and JSON need. Building it
/// takes up to half a second without optimizations; cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Codec {
    /// Every message of this crate.
    pool: DescriptorPool,
}

impl Default for Codec {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec {
    /// Reads the descriptors that are part of this crate.
    pub fn new() -> Self {
        let pool = DescriptorPool::decode(DESCRIPTORS)
            .expect("protoc wrote the descriptors, with all that they import");
        Self { pool }
    }

    /// The descriptors, for those who change messages by field name.
    pub fn pool(&self) -> &DescriptorPool {
        &self.pool
    }

    /// The message of the type that `type_url` names; what stands before its last slash is of no
    /// meaning.
    ///
    /// # Errors
    /// [`JsonError::UnknownType`].
    pub fn descriptor(&self, type_url: &str) -> Result<MessageDescriptor, JsonError> {
        descriptor(&self.pool, type_url)
    }

    /// Decodes `value`, to be looked at or changed by field name.
    ///
    /// # Errors
    /// The type is not known, or the bytes are not of it.
    pub fn decode(&self, type_url: &str, value: &[u8]) -> Result<DynamicMessage, JsonError> {
        decode(&self.pool, type_url, Bytes::copy_from_slice(value))
    }

    /// Encodes `message`; equal messages give equal bytes, those of the generated type.
    pub fn encode(&self, message: &DynamicMessage) -> Vec<u8> {
        canonical::encode(message)
    }

    /// The JSON of an encoded message: names in camel case, fields at their default left out,
    /// 64-bit numbers as text, as Go's `protojson` has it. The message's own type is not part of
    /// it; see [`Codec::any_to_json`].
    ///
    /// # Errors
    /// A type is not known, be it of a message inside, or bytes are not of their type.
    pub fn to_json(&self, type_url: &str, value: &[u8]) -> Result<Value, JsonError> {
        writer::message(&self.decode(type_url, value)?)
    }

    /// Encodes the message in `json`. Names may be in camel case or as in the `.proto` file.
    ///
    /// # Errors
    /// A type is not known, or the JSON is not of it, or has fields that it does not know.
    pub fn from_json(&self, type_url: &str, json: &Value) -> Result<Vec<u8>, JsonError> {
        Ok(self.encode(&self.message_from_json(type_url, json, UnknownFields::Reject)?))
    }

    /// Reads the message in `json`.
    ///
    /// # Errors
    /// As [`Codec::from_json`], but for unknown fields as `unknown` has it.
    pub fn message_from_json(
        &self,
        type_url: &str,
        json: &Value,
        unknown: UnknownFields,
    ) -> Result<DynamicMessage, JsonError> {
        reader::message(&self.descriptor(type_url)?, json, unknown)
    }

    /// The JSON of a message in its envelope: as [`Codec::to_json`], with the type as `@type`.
    ///
    /// # Errors
    /// As [`Codec::to_json`].
    pub fn any_to_json(&self, type_url: &str, value: &[u8]) -> Result<Value, JsonError> {
        writer::any(&self.pool, type_url, Bytes::copy_from_slice(value))
    }

    /// Reads the `Any` in `json`, which must have a `@type`.
    ///
    /// # Errors
    /// As [`Codec::from_json`].
    pub fn any_from_json(&self, json: &Value) -> Result<prost_types::Any, JsonError> {
        reader::any(&self.pool, json, UnknownFields::Reject)
    }
}

/// The message of `pool` that `type_url` names.
fn descriptor(pool: &DescriptorPool, type_url: &str) -> Result<MessageDescriptor, JsonError> {
    let name = type_url.rsplit_once('/').map_or(type_url, |(_, name)| name);
    pool.get_message_by_name(name)
        .ok_or_else(|| JsonError::UnknownType {
            type_url: type_url.to_owned(),
        })
}

/// Decodes a message of a type in `pool`.
fn decode(
    pool: &DescriptorPool,
    type_url: &str,
    value: Bytes,
) -> Result<DynamicMessage, JsonError> {
    DynamicMessage::decode(descriptor(pool, type_url)?, value).map_err(|source| JsonError::Bytes {
        type_url: type_url.to_owned(),
        source,
    })
}

/// Whether the JSON of the message is something else than an object of its fields.
fn is_well_known(message: &MessageDescriptor) -> bool {
    WELL_KNOWN.binary_search(&message.full_name()).is_ok()
}

#[cfg(test)]
mod tests;

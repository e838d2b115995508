//! ADS on the wire, decoded no further than names: what the server's bytes cost this side must be next to nothing.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// A resource of a response, with its content left encoded.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resource {
    /// Its version.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) version: Bytes,
    /// Its content.
    #[prost(message, optional, tag = "2")]
    pub(crate) content: Option<Content>,
    /// Its name.
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) name: Bytes,
}

/// `google.protobuf.Any`, undecoded.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Content {
    /// The type; not read.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) type_url: Bytes,
    /// The message.
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
}

/// `DeltaDiscoveryResponse`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeltaResponse {
    /// What is there now.
    #[prost(message, repeated, tag = "2")]
    pub(crate) resources: Vec<Resource>,
    /// The type.
    #[prost(string, tag = "4")]
    pub(crate) type_url: String,
    /// What an answer must name.
    #[prost(string, tag = "5")]
    pub(crate) nonce: String,
    /// What is gone.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub(crate) removed: Vec<Bytes>,
}

/// `DiscoveryResponse`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StateResponse {
    /// The version of the whole.
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    /// All that is there.
    #[prost(message, repeated, tag = "2")]
    pub(crate) resources: Vec<Content>,
    /// The type.
    #[prost(string, tag = "4")]
    pub(crate) type_url: String,
    /// What an answer must name.
    #[prost(string, tag = "5")]
    pub(crate) nonce: String,
}

/// Sends requests encoded beforehand, and gives responses as the bytes that came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

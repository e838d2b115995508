//! A response, decoded only as far as counting needs: the content of resources is skipped, as a
//! hundred clients would otherwise take the CPU that is measured.

use bytes::{Buf as _, BufMut as _, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// `envoy.service.discovery.v3.DeltaDiscoveryResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Response {
    #[prost(message, repeated, tag = "2")]
    pub(crate) resources: Vec<Resource>,
    #[prost(string, tag = "4")]
    pub(crate) type_url: String,
    #[prost(string, tag = "5")]
    pub(crate) nonce: String,
    #[prost(string, repeated, tag = "6")]
    pub(crate) removed: Vec<String>,
}

/// `envoy.service.discovery.v3.Resource`, without its content.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Resource {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

/// A codec that sends requests that are encoded already, and decodes responses as [`Response`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    /// The size of a message, and the message.
    type Decode = (usize, Response);
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, request: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(request);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = (usize, Response);
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<(usize, Response)>, Status> {
        let bytes = buffer.remaining();
        let response =
            prost::Message::decode(buffer).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Some((bytes, response)))
    }
}

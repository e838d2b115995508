//! Writes the gRPC messages of a stream, whose payload is shared.
//!
//! tonic's codecs copy every message into a buffer of the stream. Here a large message is two
//! chunks: a head that belongs to the stream, and a payload that all streams share; a thousand slow
//! clients hold one copy of it.

use std::future::poll_fn;

use bytes::{BufMut, Bytes, BytesMut};
use h2::SendStream;
use http::HeaderMap;
use navarch_proto::raw::{RawDeltaDiscoveryResponse, RawDiscoveryResponse};
use prost::Message as _;
use tonic::Status;

use crate::session::Response;
use crate::session::diff::Payload;
use crate::session::discovery_request::Protocol;
use crate::transport::grpc_reader::PREFIX;

/// Maximum bytes of a payload that is copied into the head: a second frame would cost more.
const SMALL: usize = 4 << 10;

/// One gRPC message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Prefix, nonce, version…, and the resources if they are small.
    head: Bytes,
    /// The resources that are not in the head.
    payload: Payload,
}

/// A stream's responses.
#[derive(Debug)]
pub(crate) struct Outbox(SendStream<Bytes>);

impl Message {
    /// Encodes a response. Only the head is copied; a large payload is shared.
    ///
    /// # Errors
    /// If it exceeds gRPC's maximum length (4 GiB).
    pub(crate) fn new(protocol: Protocol, response: Response) -> Result<Self, Status> {
        let Response {
            kind: _,
            type_url,
            version,
            nonce,
            removed,
            payload,
            count: _,
        } = response;

        let head = match protocol {
            Protocol::Delta => RawDeltaDiscoveryResponse {
                system_version_info: version.to_string(),
                type_url,
                nonce: nonce.to_string(),
                removed_resources: removed
                    .iter()
                    .map(|name| name.as_str().to_owned())
                    .collect(),
                ..RawDeltaDiscoveryResponse::default()
            }
            .encode_to_vec(),
            Protocol::StateOfTheWorld => RawDiscoveryResponse {
                version_info: version.to_string(),
                type_url,
                nonce: nonce.to_string(),
                ..RawDiscoveryResponse::default()
            }
            .encode_to_vec(),
        };

        let length = u32::try_from(head.len() + payload.0.len())
            .map_err(|_| Status::resource_exhausted("the response exceeds 4 GiB"))?;
        let (near, far) = match payload.0.len() {
            ..=SMALL => (payload, Payload::default()),
            _ => (Payload::default(), payload),
        };
        let mut framed = BytesMut::with_capacity(PREFIX + head.len() + near.0.len());
        framed.put_u8(0);

        framed.put_u32(length);
        framed.put_slice(&head);
        framed.put_slice(&near.0);
        Ok(Self {
            head: framed.freeze(),
            payload: far,
        })
    }

    /// A message with this body.
    ///
    /// # Errors
    /// As [`Message::new`].
    pub(crate) fn whole(bytes: &[u8]) -> Result<Self, Status> {
        let length = u32::try_from(bytes.len())
            .map_err(|_| Status::resource_exhausted("the response exceeds 4 GiB"))?;
        let mut framed = BytesMut::with_capacity(PREFIX + bytes.len());
        framed.put_u8(0);
        framed.put_u32(length);
        framed.put_slice(bytes);
        Ok(Self {
            head: framed.freeze(),
            payload: Payload::default(),
        })
    }

    /// Size on the wire in bytes.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.payload.0.len()
    }
}

impl Outbox {
    /// The response side of a stream whose headers are sent.
    pub(crate) fn new(stream: SendStream<Bytes>) -> Self {
        Self(stream)
    }

    /// Waits until earlier messages are sent and flow control allows more, so that the next message
    /// is composed as late as possible. Returns false if the client has disconnected.
    pub(crate) async fn room(&mut self) -> bool {
        room(&mut self.0).await
    }

    /// Sends a message. It is buffered if flow control does not allow it, so call [`Outbox::room`]
    /// first.
    pub(crate) fn send(&mut self, message: Message) {
        // A client that has disconnected is detected by `room`.
        let sent = self.0.send_data(message.head, false);
        if sent.is_ok() && !message.payload.0.is_empty() {
            let _ = self.0.send_data(message.payload.0, false);
        }
    }

    /// Ends the stream with trailers after the sent messages.
    pub(crate) fn end(mut self, status: &Status) {
        let mut trailers = HeaderMap::new();
        // This fails if the client has disconnected.
        if status.add_header(&mut trailers).is_ok() {
            let _ = self.0.send_trailers(trailers);
        }
    }
}

/// Waits until the sent data has left the stream and flow control allows more. Returns false if the
/// client has disconnected.
pub(crate) async fn room(stream: &mut SendStream<Bytes>) -> bool {
    stream.reserve_capacity(1);
    while stream.capacity() == 0 {
        if !matches!(
            poll_fn(|context| stream.poll_capacity(context)).await,
            Some(Ok(_))
        ) {
            return false;
        }
    }
    true
}

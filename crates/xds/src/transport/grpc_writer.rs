//! Writes the gRPC messages of a stream, whose payload is shared.
//!
//! tonic's codecs copy every message into a buffer of the stream. Here a large message is two
//! chunks: a head that belongs to the stream, and a payload that all streams share; a thousand slow
//! clients hold one copy of it. A compressed message shares its payload in the same way.

use std::fmt;
use std::future::poll_fn;

use bytes::{BufMut, Bytes, BytesMut};
use h2::SendStream;
use http::HeaderMap;
use navarch_proto::raw::{RawDeltaDiscoveryResponse, RawDiscoveryResponse};
use prost::Message as _;
use tonic::Status;

use crate::compression::{CompressedMessage, CompressedPayload, Encoding};
use crate::session::Response;
use crate::session::discovery_request::Protocol;
use crate::transport::grpc_reader::PREFIX;

/// Maximum bytes of a payload that is copied into the head: a second frame would cost more.
const SMALL: usize = 4 << 10;

/// One gRPC message.
#[derive(Clone)]
pub(crate) struct Message {
    /// Prefix, nonce, version…, and the resources if they are small.
    head: Bytes,
    /// The resources that are not in the head.
    payload: Bytes,
    /// The end of a compressed message.
    tail: Bytes,
    /// The encoding, if it is compressed.
    encoding: Option<Encoding>,
    /// Size of the message before compression, in bytes.
    plain_length: usize,
}

/// A stream's responses.
#[derive(Debug)]
pub(crate) struct Outbox {
    stream: SendStream<Bytes>,
    /// The encoding in the response headers, with which messages may be compressed.
    encoding: Option<Encoding>,
}

/// The payload may contain keys, so this shows only sizes.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("bytes", &self.len())
            .field("encoding", &self.encoding)
            .field("plain_length", &self.plain_length)
            .finish_non_exhaustive()
    }
}

impl Message {
    /// Encodes a response. Only the head is copied; a large payload is shared. `compressed` is the
    /// compressed form of the payload, if it is sent so.
    ///
    /// # Errors
    /// If it exceeds gRPC's maximum length (4 GiB).
    pub(crate) fn new(
        protocol: Protocol,
        response: Response,
        compressed: Option<&CompressedPayload>,
    ) -> Result<Self, Status> {
        let payload = response.payload.clone().into_plain();
        let head = encode_head(protocol, response);
        let plain_length = head.len() + payload.len();

        let message = compressed.and_then(|form| {
            let message = form.message(&head, payload.len())?;
            Some((form.encoding(), message))
        });
        match message {
            Some((encoding, message)) => Self::compressed(encoding, message, plain_length),
            None => Self::plain(&head, payload),
        }
    }

    /// A message that is not compressed.
    fn plain(head: &[u8], payload: Bytes) -> Result<Self, Status> {
        let plain_length = head.len() + payload.len();
        let parts = Parts {
            flag: 0,
            front: head,
            payload,
            back: Bytes::new(),
        };
        let framed = parts.frame()?;
        Ok(Self {
            plain_length,
            ..framed
        })
    }

    /// A message that is compressed.
    fn compressed(
        encoding: Encoding,
        message: CompressedMessage,
        plain_length: usize,
    ) -> Result<Self, Status> {
        let parts = Parts {
            flag: 1,
            front: &message.front,
            payload: message.payload,
            back: message.back,
        };
        let framed = parts.frame()?;
        Ok(Self {
            encoding: Some(encoding),
            plain_length,
            ..framed
        })
    }

    /// A message with this body.
    ///
    /// # Errors
    /// As [`Message::new`].
    pub(crate) fn whole(bytes: &[u8]) -> Result<Self, Status> {
        Self::plain(bytes, Bytes::new())
    }

    /// Size on the wire in bytes.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.payload.len() + self.tail.len()
    }

    /// Size in bytes before compression, without gRPC's prefix.
    pub(crate) fn plain_length(&self) -> usize {
        self.plain_length
    }

    /// The encoding, if it is compressed.
    pub(crate) fn encoding(&self) -> Option<Encoding> {
        self.encoding
    }
}

/// The parts of a message, to be framed.
struct Parts<'a> {
    /// gRPC's compressed-flag.
    flag: u8,
    front: &'a [u8],
    /// The part that streams share.
    payload: Bytes,
    back: Bytes,
}

impl Parts<'_> {
    /// Adds gRPC's prefix. A small payload is copied into the head.
    fn frame(self) -> Result<Message, Status> {
        let Self {
            flag,
            front,
            payload,
            back,
        } = self;
        let length = u32::try_from(front.len() + payload.len() + back.len())
            .map_err(|_| Status::resource_exhausted("the response exceeds 4 GiB"))?;

        let is_small = payload.len() <= SMALL;
        let copied = if is_small {
            payload.len() + back.len()
        } else {
            0
        };
        let mut head = BytesMut::with_capacity(PREFIX + front.len() + copied);
        head.put_u8(flag);
        head.put_u32(length);
        head.put_slice(front);

        let (payload, tail) = if is_small {
            head.put_slice(&payload);
            head.put_slice(&back);
            (Bytes::new(), Bytes::new())
        } else {
            (payload, back)
        };
        Ok(Message {
            head: head.freeze(),
            payload,
            tail,
            encoding: None,
            plain_length: 0,
        })
    }
}

/// Encodes all fields of a response but its resources.
fn encode_head(protocol: Protocol, response: Response) -> Vec<u8> {
    let Response {
        resource_type: _,
        type_url,
        version,
        nonce,
        removed,
        payload: _,
        count: _,
    } = response;

    match protocol {
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
    }
}

impl Outbox {
    /// The response side of a stream whose headers are sent, with this encoding in them.
    pub(crate) fn new(stream: SendStream<Bytes>, encoding: Option<Encoding>) -> Self {
        Self { stream, encoding }
    }

    /// The encoding that messages may be compressed with.
    pub(crate) fn encoding(&self) -> Option<Encoding> {
        self.encoding
    }

    /// Waits until earlier messages are sent and flow control allows more, so that the next message
    /// is composed as late as possible. Returns false if the client has disconnected.
    pub(crate) async fn room(&mut self) -> bool {
        room(&mut self.stream).await
    }

    /// Waits until the client has ended the stream or disconnected.
    pub(crate) async fn reset(&mut self) {
        let _ = poll_fn(|context| self.stream.poll_reset(context)).await;
    }

    /// Sends a message. It is buffered if flow control does not allow it, so call [`Outbox::room`]
    /// first.
    pub(crate) fn send(&mut self, message: Message) {
        let further = [message.payload, message.tail];
        let mut sent = self.stream.send_data(message.head, false);

        for part in further.into_iter().filter(|part| !part.is_empty()) {
            if sent.is_ok() {
                sent = self.stream.send_data(part, false);
            }
        }
        // A client that has disconnected is detected by `room`.
        drop(sent);
    }

    /// Ends the stream with trailers after the sent messages.
    pub(crate) fn end(mut self, status: &Status) {
        let mut trailers = HeaderMap::new();
        // This fails if the client has disconnected.
        if status.add_header(&mut trailers).is_ok() {
            let _ = self.stream.send_trailers(trailers);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use navarch_proto::raw::{RawAny, RawResource};
    use navarch_push::resource::ResourceType;

    use super::*;
    use crate::session::payload::Payload;
    use crate::session::{Marks, Response};

    #[test]
    fn a_message_has_nothing_but_its_resources_type_version_and_a_short_nonce() {
        let type_url = ResourceType::Endpoint.type_url();
        let resources = RawDeltaDiscoveryResponse {
            resources: vec![RawResource {
                version: "0".repeat(32),
                name: "outbound|80||reviews.shop.svc.cluster.local".to_owned(),
                resource: Some(RawAny {
                    type_url: type_url.to_owned(),
                    value: vec![7; 500].into(),
                }),
                aliases: Vec::new(),
            }],
            ..RawDeltaDiscoveryResponse::default()
        };

        let mut marks = Marks {
            started: Arc::from("2026-11-30T12:00:00Z"),
            stream: 100_000,
            count: 99_999,
        };
        let sent = marks.next(123_456, std::time::Duration::ZERO);
        assert_eq!(&*sent.nonce, "100000.100000");
        assert_eq!(&*sent.version, "2026-11-30T12:00:00Z/123456");

        let response = Response {
            resource_type: Some(ResourceType::Endpoint),
            type_url: type_url.to_owned(),
            version: sent.version.clone(),
            nonce: sent.nonce.clone(),
            removed: Vec::new(),
            payload: Payload::new(
                Some(ResourceType::Endpoint),
                resources.encode_to_vec().into(),
            ),
            count: 1,
        };
        let message = Message::new(Protocol::Delta, response, None).unwrap();

        let whole = RawDeltaDiscoveryResponse {
            system_version_info: sent.version.to_string(),
            nonce: sent.nonce.to_string(),
            type_url: type_url.to_owned(),
            ..resources
        };
        assert_eq!(message.len(), PREFIX + whole.encoded_len());
    }
}

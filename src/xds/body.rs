//! The response side of a stream on the wire: gRPC messages whose payload is shared.
//!
//! tonic's codecs copy every message into a buffer of its stream. Here a message is two chunks: a head of the stream's own,
//! and the payload that all streams share; a thousand slow readers hold one copy of it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;
use navarch_proto::raw::{RawDeltaDiscoveryResponse, RawDiscoveryResponse};
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use super::changes::Payload;
use super::request::Protocol;
use super::session::Response;

/// Messages that wait between a stream's task and the wire: one, so that what is sent is decided as late as can be.
const WAITING: usize = 1;
/// Before every gRPC message: a byte that tells it is not compressed, and its length.
const PREFIX: usize = 5;

/// One gRPC message.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Prefix, nonce, version…
    head: Bytes,
    /// The resources.
    payload: Payload,
}

/// The task's end of a stream's responses.
#[derive(Debug)]
pub(super) struct Outbox {
    /// The messages.
    messages: mpsc::Sender<Message>,
    /// How the stream ended, told after the last message.
    end: oneshot::Sender<Status>,
}

/// The wire's end.
#[derive(Debug)]
pub(super) struct FrameBody {
    /// The messages.
    messages: mpsc::Receiver<Message>,
    /// The second half of a message whose head is out.
    payload: Option<Payload>,
    /// How the stream ended; `None` once that was said.
    end: Option<oneshot::Receiver<Status>>,
}

/// The two ends of a stream's responses.
pub(super) fn channel() -> (Outbox, FrameBody) {
    let (sender, messages) = mpsc::channel(WAITING);
    let (end, ended) = oneshot::channel();
    (Outbox { messages: sender, end }, FrameBody { messages, payload: None, end: Some(ended) })
}

impl Message {
    /// The message of a response. Costs its head; the payload is shared.
    ///
    /// # Errors
    /// When it is larger than gRPC can say (4 GiB).
    pub(super) fn new(protocol: Protocol, response: Response) -> Result<Self, Status> {
        let Response { kind: _, type_url, version, nonce, removed, payload, count: _ } = response;
        let head = match protocol {
            Protocol::Delta => RawDeltaDiscoveryResponse {
                system_version_info: version.to_string(),
                type_url,
                nonce: nonce.to_string(),
                removed_resources: removed.iter().map(|name| name.as_str().to_owned()).collect(),
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
            .map_err(|_| Status::resource_exhausted("a response of more than 4 GiB"))?;
        let mut framed = BytesMut::with_capacity(PREFIX + head.len());
        framed.put_u8(0);
        framed.put_u32(length);
        framed.put_slice(&head);
        Ok(Self { head: framed.freeze(), payload })
    }

    /// Bytes on the wire.
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.payload.0.len()
    }
}

impl Outbox {
    /// Waits until there is room for a message. `None` when the client is gone.
    pub(super) async fn room(&self) -> Option<mpsc::Permit<'_, Message>> {
        self.messages.reserve().await.ok()
    }

    /// Ends the stream, after what was sent.
    pub(super) fn end(self, status: Status) {
        // Nobody listens when the client is gone.
        let _ = self.end.send(status);
    }
}

impl http_body::Body for FrameBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(payload) = self.payload.take() {
            return Poll::Ready(Some(Ok(Frame::data(payload.0))));
        }
        if let Some(message) = ready!(self.messages.poll_recv(context)) {
            self.payload = Some(message.payload).filter(|payload| !payload.0.is_empty());
            return Poll::Ready(Some(Ok(Frame::data(message.head))));
        }
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        let status = ready!(Pin::new(end).poll(context)).unwrap_or_else(|_| Status::internal("the stream's task died"));
        self.end = None;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }
}

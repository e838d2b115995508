//! gRPC messages as bytes, which are forwarded without decoding or copying.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Capacity of the channel to Envoy: one message, so that a slow Envoy slows down the control
/// plane.
const WAITING: usize = 1;
/// The prefix of every gRPC message: a zero byte for uncompressed, and the length.
const PREFIX: usize = 5;

/// A codec for messages that are not decoded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Opaque;

impl Codec for Opaque {
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

impl Encoder for Opaque {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.len());
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Opaque {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        // Splits the buffer off; nothing is copied.
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// The sending end of the channel to Envoy.
#[derive(Debug)]
pub(super) struct Outbox {
    messages: mpsc::Sender<Bytes>,
    /// The status of the stream, sent after the last message.
    end: oneshot::Sender<Status>,
}

/// The receiving end of the channel to Envoy.
#[derive(Debug)]
pub(super) struct Responses {
    messages: mpsc::Receiver<Bytes>,
    /// The message whose prefix was sent.
    message: Option<Bytes>,
    /// The status of the stream; `None` once it was sent.
    end: Option<oneshot::Receiver<Status>>,
}

/// Both ends of a channel to Envoy.
pub(super) fn channel() -> (Outbox, Responses) {
    let (sender, messages) = mpsc::channel(WAITING);
    let (end, ended) = oneshot::channel();
    (
        Outbox {
            messages: sender,
            end,
        },
        Responses {
            messages,
            message: None,
            end: Some(ended),
        },
    )
}

impl Outbox {
    /// Waits until the channel has capacity, and sends a message to Envoy.
    ///
    /// # Errors
    /// If Envoy has disconnected.
    pub(super) async fn send(&self, message: Bytes) -> Result<(), Status> {
        self.messages
            .send(message)
            .await
            .map_err(|_| Status::cancelled("Envoy disconnected"))
    }

    /// Waits until Envoy has disconnected.
    pub(super) async fn closed(&self) {
        self.messages.closed().await;
    }

    /// Ends the stream after the sent messages.
    pub(super) fn end(self, status: Status) {
        // This fails if Envoy has disconnected.
        let _ = self.end.send(status);
    }
}

impl http_body::Body for Responses {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }

        if let Some(message) = ready!(self.messages.poll_recv(context)) {
            let Ok(length) = u32::try_from(message.len()) else {
                return Poll::Ready(Some(Err(Status::resource_exhausted(
                    "the response exceeds 4 GiB",
                ))));
            };
            let mut prefix = BytesMut::with_capacity(PREFIX);
            prefix.put_u8(0);
            prefix.put_u32(length);
            self.message = Some(message).filter(|message| !message.is_empty());
            return Poll::Ready(Some(Ok(Frame::data(prefix.freeze()))));
        }

        let Some(end) = &mut self.end else {
            return Poll::Ready(None);
        };

        let status = ready!(Pin::new(end).poll(context))
            .unwrap_or_else(|_| Status::internal("the task of the stream panicked"));
        self.end = None;
        let mut trailers = HeaderMap::new();

        Poll::Ready(Some(
            status
                .add_header(&mut trailers)
                .map(|()| Frame::trailers(trailers)),
        ))
    }
}

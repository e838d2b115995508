//! Reads the gRPC messages of a stream without keeping a buffer.
//!
//! tonic keeps a buffer as large as the largest request while the stream lives. For an Envoy that
//! subscribes to the endpoints of a thousand clusters that is some 60 kB, for each of many Envoys.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use navarch_proto::envoy::service::discovery::v3::DiscoveryRequest;
use prost::Message;
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::client::{Client, Memory};
use crate::large::{LargeWork, is_large};
use crate::session::discovery_request::Protocol;
use crate::session::initial_resource_versions::DeltaDiscoveryRequest;
use navarch_net::budget::{Budget, Charge};
use navarch_net::rejections::Rejections;

/// The prefix of every gRPC message: a byte for the compression flag, and the length.
pub(crate) const PREFIX: usize = 5;

/// The requests of a stream.
pub(crate) struct Requests<M> {
    /// The request body of the call.
    body: Body,
    /// The last received data, until it is parsed. It is kept after that: while a part of its
    /// buffer is referenced, h2 allocates a new buffer of 8 KiB when that one is full. Otherwise h2
    /// would keep the buffer, which is as large as the largest frame.
    chunk: Bytes,
    /// The first part of an incomplete request.
    begun: BytesMut,
    /// The memory charge of the incomplete request: the budget of all clients bounds these.
    paid: Option<Charge>,
    /// When the rest of the incomplete request must have arrived.
    deadline: Option<Instant>,
    client: Client,
    limits: RequestLimits,
    /// The large request that is being decoded on a thread of its own.
    reading: Option<LargeWork<Result<Box<M>, Status>>>,
    /// Size of the last request in bytes.
    length: usize,
}

enum NextRequest<M> {
    Request(Box<M>),
    /// A large message of this many bytes.
    Large(usize),
    Part,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    pub(crate) bytes: usize,
    /// Timeout for the rest of it after its first bytes.
    pub(crate) rest: Duration,
}

impl<M> fmt::Debug for Requests<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests")
            .field("waiting", &(self.begun.len() + self.chunk.len()))
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl<M: Message + Default + 'static> Requests<M> {
    /// Reads the requests from a call's body.
    pub(crate) fn new(body: Body, limits: RequestLimits, client: Client) -> Self {
        let chunk = Bytes::new();
        let begun = BytesMut::new();
        Self {
            body,
            chunk,
            begun,
            paid: None,
            deadline: None,
            client,
            limits,
            reading: None,
            length: 0,
        }
    }

    /// The next request; `None` if the client has closed the stream or disconnected. Cancel safe.
    ///
    /// # Errors
    /// If a request is too large, compressed, truncated or cannot be decoded, if its rest does not
    /// arrive in time, or if the memory budget of clients is exhausted.
    pub(crate) async fn message(&mut self) -> Result<Option<Box<M>>, Status> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = reading.await;
                self.reading = None;
                self.release();
                let read =
                    read.map_err(|_| Status::internal("panic while reading a large request"))?;
                return read.map(Some);
            }

            match self.take()? {
                NextRequest::Request(request) => return Ok(Some(request)),
                NextRequest::Large(bytes) => {
                    let turn = self.client.acquire_large(bytes).await;
                    let body = self.split_off(bytes);
                    self.reading = Some(turn.spawn(move || decode(&body))?);
                    continue;
                }
                NextRequest::Part => {}
            }

            let frame = match self.deadline {
                None => self.body.frame().await,
                Some(deadline) => timeout_at(deadline, self.body.frame()).await.map_err(|_| {
                    self.client.count_rejection("request_timeout");
                    Status::deadline_exceeded("timed out receiving the rest of a request")
                })?,
            };

            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.chunk = data;
                    }
                }
                // A client that disconnects sends no more requests.
                Some(Err(status)) if status.code() == Code::Cancelled => return Ok(None),
                Some(Err(status)) => return Err(status),
                None if self.begun.is_empty() => return Ok(None),
                None => return Err(Status::data_loss("the stream ended within a request")),
            }
        }
    }

    /// Size of the last returned request in bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Removes the body of a complete request of this many bytes.
    fn split_off(&mut self, bytes: usize) -> Bytes {
        self.length = bytes;
        let mut body = match self.begun.is_empty() {
            true => self.chunk.split_to(PREFIX + bytes),
            false => {
                self.deadline = None;
                self.begun.split_to(PREFIX + bytes).freeze()
            }
        };
        body.advance(PREFIX);
        body
    }

    /// Frees the buffer and its memory charge if it is empty.
    fn release(&mut self) {
        if self.begun.is_empty() {
            self.begun = BytesMut::new();
            self.paid = None;
        }
    }

    /// Takes a request out of the received data, if it is complete and not large.
    fn take(&mut self) -> Result<NextRequest<M>, Status> {
        // Most requests arrive in one piece; only the others are copied.
        if self.begun.is_empty()
            && let Some(body) = first(&self.chunk, self.limits.bytes)?
        {
            if is_large(body.len()) {
                return Ok(NextRequest::Large(body.len()));
            }
            let message = decode(body)?;
            self.length = body.len();
            self.chunk.advance(PREFIX + self.length);
            return Ok(NextRequest::Request(message));
        }

        self.keep_chunk()?;
        let Some(body) = first(&self.begun, self.limits.bytes)? else {
            if !self.begun.is_empty() && self.deadline.is_none() {
                self.deadline = Some(Instant::now() + self.limits.rest);
            }
            return Ok(NextRequest::Part);
        };

        if is_large(body.len()) {
            return Ok(NextRequest::Large(body.len()));
        }

        let message = decode(body)?;
        self.length = body.len();
        self.begun.advance(PREFIX + self.length);
        self.deadline = None;
        self.release();

        Ok(NextRequest::Request(message))
    }

    /// Appends the received data to the incomplete request.
    fn keep_chunk(&mut self) -> Result<(), Status> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let mut paid = match self.paid.take() {
            Some(paid) => paid,
            None => self.client.nothing()?,
        };
        // The buffer doubles its capacity when it grows.
        self.client.charge(&mut paid, 2 * self.chunk.len())?;
        self.paid = Some(paid);
        self.begun.extend_from_slice(&self.chunk);
        self.chunk.advance(self.chunk.len());
        Ok(())
    }
}

/// Reads a stream of these pieces. Returns the number of requests and the result, for tests with
/// arbitrary input.
pub async fn read_pieces(
    protocol: Protocol,
    pieces: Vec<Bytes>,
    limit: usize,
) -> (usize, Result<(), Status>) {
    match protocol {
        Protocol::StateOfTheWorld => read_all::<DiscoveryRequest>(pieces, limit).await,
        Protocol::Delta => read_all::<DeltaDiscoveryRequest>(pieces, limit).await,
    }
}

/// Reads requests until the stream ends.
async fn read_all<M: Message + Default + 'static>(
    pieces: Vec<Bytes>,
    limit: usize,
) -> (usize, Result<(), Status>) {
    let frames = pieces
        .into_iter()
        .map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    let body = Body::new(StreamBody::new(tokio_stream::iter(frames)));
    let memory = Memory::new(Budget::new(16 * limit), Rejections::default());
    let limits = RequestLimits {
        bytes: limit,
        rest: Duration::from_secs(30),
    };
    let mut requests = Requests::<M>::new(body, limits, memory.client("grpc", None));
    let mut count = 0;

    loop {
        match requests.message().await {
            Ok(Some(_)) => count += 1,
            Ok(None) => return (count, Ok(())),
            Err(status) => return (count, Err(status)),
        }
    }
}

/// The body of the first message, if it is complete.
fn first(bytes: &[u8], limit: usize) -> Result<Option<&[u8]>, Status> {
    let Some(([compressed, length @ ..], rest)) = bytes.split_first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    if *compressed != 0 {
        return Err(Status::unimplemented(
            "compressed requests are not supported",
        ));
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > limit {
        return Err(Status::out_of_range(format!(
            "a request of {length} bytes exceeds the limit of {limit} bytes"
        )));
    }
    Ok(rest.get(..length))
}

/// Decodes a message. It is boxed to keep futures that hold it across an await small.
fn decode<M: Message + Default>(body: &[u8]) -> Result<Box<M>, Status> {
    Box::<M>::decode(body)
        .map_err(|error| Status::internal(format!("failed to decode the request: {error}")))
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
    use tokio_stream::StreamExt as _;

    use super::*;

    const LIMITS: RequestLimits = RequestLimits {
        bytes: 1000,
        rest: Duration::from_secs(30),
    };

    /// Requests from a body that comes in pieces of a size.
    fn in_pieces(bytes: &[u8], size: usize) -> Requests<DeltaDiscoveryRequest> {
        let pieces: Vec<Result<Frame<Bytes>, Infallible>> = bytes
            .chunks(size)
            .map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        Requests::new(
            Body::new(StreamBody::new(tokio_stream::iter(pieces))),
            LIMITS,
            Client::with_budget(1 << 20),
        )
    }

    fn framed(request: &DeltaDiscoveryRequest) -> Vec<u8> {
        let body = request.encode_to_vec();
        let mut bytes = vec![0];
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    fn request(nonce: &str) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            response_nonce: nonce.to_owned(),
            ..DeltaDiscoveryRequest::default()
        }
    }

    #[tokio::test]
    async fn requests_are_reassembled_from_any_frames() {
        let sent = [request("one"), request(""), request(&"x".repeat(900))];
        let bytes: Vec<u8> = sent.iter().flat_map(framed).collect();
        for size in [1, 4, 7, 100, bytes.len()] {
            let mut requests = in_pieces(&bytes, size);
            for expected in &sent {
                assert_eq!(requests.message().await.unwrap().as_deref(), Some(expected));
            }
            assert!(requests.message().await.unwrap().is_none());
            assert_eq!((requests.begun.capacity(), requests.client.held()), (0, 0));
        }
    }

    /// What comes before the body falls silent.
    fn and_then_nothing(
        bytes: &[u8],
        rest: Duration,
        client: &Client,
    ) -> Requests<DeltaDiscoveryRequest> {
        let pieces = bytes
            .chunks(100)
            .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(piece))));
        let pieces = tokio_stream::iter(pieces.collect::<Vec<_>>()).chain(tokio_stream::pending());
        Requests::new(
            Body::new(StreamBody::new(pieces)),
            RequestLimits { rest, ..LIMITS },
            client.clone(),
        )
    }

    #[tokio::test]
    async fn a_started_request_times_out_and_idle_streams_do_not() {
        let client = Client::with_budget(1 << 20);
        let rest = Duration::from_millis(20);
        let whole = framed(&request(&"x".repeat(500)));
        let mut requests = and_then_nothing(&[&whole[..], &whole[..300]].concat(), rest, &client);
        assert!(requests.message().await.unwrap().is_some());
        assert_eq!(
            requests.message().await.unwrap_err().code(),
            Code::DeadlineExceeded
        );
        assert_eq!(client.counted("request_timeout"), 1);
        let mut requests = and_then_nothing(&whole, rest, &client);
        assert!(requests.message().await.unwrap().is_some());
        let waited = tokio::time::timeout(20 * rest, requests.message()).await;
        assert!(waited.is_err(), "silence between requests is no fault");
    }

    #[tokio::test]
    async fn partial_requests_count_against_the_memory_limit() {
        let client = Client::with_budget(2000);
        let half = &framed(&request(&"x".repeat(900)))[..800];
        let mut first = and_then_nothing(half, LIMITS.rest, &client);
        let rest = tokio::time::timeout(Duration::from_millis(20), first.message()).await;
        assert!(rest.is_err() && client.held() >= half.len());
        let refused = and_then_nothing(half, LIMITS.rest, &client)
            .message()
            .await
            .unwrap_err();
        assert_eq!(
            (refused.code(), client.counted("memory")),
            (Code::ResourceExhausted, 1)
        );
        drop(first);
        assert_eq!(client.held(), 0);
    }

    #[tokio::test]
    async fn invalid_requests_are_rejected() {
        let whole = framed(&request("one"));
        let compressed = [&[1], &whole[1..]].concat();
        for (bytes, code) in [
            (framed(&request(&"x".repeat(1000))), Code::OutOfRange),
            (compressed, Code::Unimplemented),
            (whole[..whole.len() - 1].to_vec(), Code::DataLoss),
            (vec![0, 0, 0, 0, 1, 0xff], Code::Internal),
        ] {
            assert_eq!(
                in_pieces(&bytes, 3).message().await.unwrap_err().code(),
                code
            );
        }
    }
}

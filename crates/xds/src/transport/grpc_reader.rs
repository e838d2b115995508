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
use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, Status};

use crate::client::{Client, Memory};
use crate::compression::{
    ACCEPTED, DecompressError, Encoding, GRPC_ACCEPT_ENCODING, RequestEncoding,
};
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
    /// How the client compresses its requests.
    encoding: RequestEncoding,
    /// The large or compressed request that is being decoded on a thread of its own.
    reading: Option<LargeWork<Result<ReadRequest<M>, Status>>>,
    /// Size of the last request in bytes, decompressed.
    length: usize,
}

enum NextRequest<M> {
    Request(Box<M>),
    /// A large message of this many bytes.
    Large(usize),
    /// A compressed message of this many bytes.
    Compressed(usize),
    Part,
}

/// A request that was decoded.
struct ReadRequest<M> {
    message: Box<M>,
    /// Its size in bytes, decompressed.
    length: usize,
}

/// The first message in the received data.
#[derive(Clone, Copy)]
struct FirstMessage<'a> {
    body: &'a [u8],
    is_compressed: bool,
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
    /// Reads the requests from a call's body. `encoding` is that of compressed requests.
    pub(crate) fn new(
        body: Body,
        limits: RequestLimits,
        encoding: RequestEncoding,
        client: Client,
    ) -> Self {
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
            encoding,
            reading: None,
            length: 0,
        }
    }

    /// The next request; `None` if the client has closed the stream or disconnected. Cancel safe.
    ///
    /// # Errors
    /// If a request is too large, truncated, compressed in an unknown way or cannot be decoded, if
    /// its rest does not arrive in time, or if the memory budget of clients is exhausted.
    pub(crate) async fn message(&mut self) -> Result<Option<Box<M>>, Status> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = reading.await;
                self.reading = None;
                self.release();
                let read =
                    read.map_err(|_| Status::internal("panic while reading a large request"))??;
                self.length = read.length;
                return Ok(Some(read.message));
            }

            match self.take()? {
                NextRequest::Request(request) => return Ok(Some(request)),
                NextRequest::Large(bytes) => {
                    let turn = self.client.acquire_large(bytes).await;
                    let body = self.split_off(bytes);
                    self.reading = Some(turn.spawn(move || {
                        let message = decode(&body)?;
                        let length = body.len();
                        Ok(ReadRequest { message, length })
                    })?);
                    continue;
                }
                NextRequest::Compressed(bytes) => {
                    let encoding = known_encoding(self.encoding)?;
                    let limit = self.limits.bytes;
                    // Its length is unknown until it is decompressed.
                    let turn = self.client.acquire_large(limit).await;
                    let body = self.split_off(bytes);
                    self.reading = Some(turn.spawn(move || decompress(encoding, &body, limit))?);
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
            && let Some(first) = first(&self.chunk, self.limits.bytes)?
        {
            if let Some(next) = first.for_a_thread() {
                return Ok(next);
            }
            let body = first.body;
            let message = decode(body)?;
            self.length = body.len();
            self.chunk.advance(PREFIX + self.length);
            return Ok(NextRequest::Request(message));
        }

        self.keep_chunk()?;
        let Some(first) = first(&self.begun, self.limits.bytes)? else {
            if !self.begun.is_empty() && self.deadline.is_none() {
                self.deadline = Some(Instant::now() + self.limits.rest);
            }
            return Ok(NextRequest::Part);
        };

        if let Some(next) = first.for_a_thread() {
            return Ok(next);
        }

        let body = first.body;
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

/// Reads a stream of these pieces, whose compressed requests have the encoding of this name.
/// Returns the number of requests and the result, for tests with arbitrary input.
pub async fn read_pieces(
    protocol: Protocol,
    encoding: &str,
    pieces: Vec<Bytes>,
    limit: usize,
) -> (usize, Result<(), Status>) {
    let encoding = RequestEncoding::of_name(encoding);
    match protocol {
        Protocol::StateOfTheWorld => read_all::<DiscoveryRequest>(encoding, pieces, limit).await,
        Protocol::Delta => read_all::<DeltaDiscoveryRequest>(encoding, pieces, limit).await,
    }
}

/// Reads requests until the stream ends.
async fn read_all<M: Message + Default + 'static>(
    encoding: RequestEncoding,
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
    let client = memory.client("grpc", None);
    let mut requests = Requests::<M>::new(body, limits, encoding, client);
    let mut count = 0;

    loop {
        match requests.message().await {
            Ok(Some(_)) => count += 1,
            Ok(None) => return (count, Ok(())),
            Err(status) => return (count, Err(status)),
        }
    }
}

impl FirstMessage<'_> {
    /// What is next, if the message is not decoded at once.
    fn for_a_thread<M>(self) -> Option<NextRequest<M>> {
        let bytes = self.body.len();
        if self.is_compressed {
            Some(NextRequest::Compressed(bytes))
        } else if is_large(bytes) {
            Some(NextRequest::Large(bytes))
        } else {
            None
        }
    }
}

/// The first message, if it is complete.
fn first(bytes: &[u8], limit: usize) -> Result<Option<FirstMessage<'_>>, Status> {
    let Some(([flag, length @ ..], rest)) = bytes.split_first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    let is_compressed = match flag {
        0 => false,
        1 => true,
        other => {
            return Err(Status::internal(format!(
                "the compressed-flag of a request is {other}"
            )));
        }
    };

    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > limit {
        return Err(Status::out_of_range(format!(
            "a request of {length} bytes exceeds the limit of {limit} bytes"
        )));
    }

    let body = rest.get(..length);
    Ok(body.map(|body| FirstMessage {
        body,
        is_compressed,
    }))
}

/// The encoding of a compressed request.
///
/// # Errors
/// As gRPC's specification of compression demands: `INTERNAL` if the client names no encoding, and
/// `UNIMPLEMENTED` with all known ones if it names another one.
fn known_encoding(encoding: RequestEncoding) -> Result<Encoding, Status> {
    match encoding {
        RequestEncoding::Known(encoding) => Ok(encoding),
        RequestEncoding::Identity => Err(Status::internal(
            "the compressed-flag of a request is 1, but grpc-encoding names no compression",
        )),
        RequestEncoding::Unknown => {
            let mut status = Status::unimplemented(format!(
                "a request is compressed, but grpc-encoding names none of {ACCEPTED}"
            ));
            let accepted = AsciiMetadataValue::from_static(ACCEPTED);
            status.metadata_mut().insert(GRPC_ACCEPT_ENCODING, accepted);
            Err(status)
        }
    }
}

/// Decompresses and decodes a message.
fn decompress<M: Message + Default>(
    encoding: Encoding,
    body: &[u8],
    limit: usize,
) -> Result<ReadRequest<M>, Status> {
    let plain = encoding
        .decompress(body, limit)
        .map_err(|error| decompress_status(&error))?;
    let message = decode(&plain)?;
    Ok(ReadRequest {
        message,
        length: plain.len(),
    })
}

fn decompress_status(error: &DecompressError) -> Status {
    match error {
        DecompressError::TooLong(_) => {
            Status::out_of_range(format!("a compressed request: {error}"))
        }
        DecompressError::Invalid(reason) => {
            Status::internal(format!("failed to decompress a request: {reason}"))
        }
    }
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
            RequestEncoding::Known(Encoding::Zstd),
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
            RequestEncoding::Identity,
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
        let rejected = and_then_nothing(half, LIMITS.rest, &client)
            .message()
            .await
            .unwrap_err();
        assert_eq!(
            (rejected.code(), client.counted("memory")),
            (Code::ResourceExhausted, 1)
        );
        drop(first);
        assert_eq!(client.held(), 0);
    }

    /// The message of a request that is compressed with zstd.
    fn compressed(request: &DeltaDiscoveryRequest) -> Vec<u8> {
        let body = request.encode_to_vec();
        let payload = Encoding::Zstd.compress(&body).unwrap();
        let message = payload.message(b"", body.len()).unwrap();
        let whole = [message.front, message.payload].concat();

        let mut bytes = vec![1];
        bytes.extend_from_slice(&u32::try_from(whole.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(&whole);
        bytes
    }

    #[tokio::test]
    async fn compressed_and_other_requests_may_alternate() {
        let sent = [request(&"x".repeat(900)), request("two"), request("three")];
        let bytes = [compressed(&sent[0]), framed(&sent[1]), compressed(&sent[2])].concat();
        for size in [1, 7, bytes.len()] {
            let mut requests = in_pieces(&bytes, size);
            for expected in &sent {
                assert_eq!(requests.message().await.unwrap().as_deref(), Some(expected));
                assert_eq!(requests.length(), expected.encoded_len());
            }
            assert!(requests.message().await.unwrap().is_none());
        }
    }

    /// The status of a compressed request whose stream names this encoding.
    async fn rejected(encoding: RequestEncoding) -> Status {
        let bytes = Bytes::from(compressed(&request("")));
        let body = Body::new(http_body_util::Full::new(bytes));
        let client = Client::with_budget(1 << 20);
        let mut requests = Requests::<DeltaDiscoveryRequest>::new(body, LIMITS, encoding, client);
        requests.message().await.unwrap_err()
    }

    #[tokio::test]
    async fn a_compressed_request_of_an_unknown_encoding_is_told_the_known_ones() {
        let status = rejected(RequestEncoding::Unknown).await;
        assert_eq!(status.code(), Code::Unimplemented);
        let accepted = status.metadata().get("grpc-accept-encoding").unwrap();
        assert_eq!(accepted, "identity,gzip,zstd");
    }

    #[tokio::test]
    async fn a_compressed_request_without_an_encoding_is_an_internal_error() {
        let status = rejected(RequestEncoding::Identity).await;
        assert_eq!(status.code(), Code::Internal);
        assert!(status.message().contains("compressed-flag"), "{status}");
    }

    #[tokio::test]
    async fn pieces_are_read_in_the_encoding_of_their_stream() {
        let sent = compressed(&request("one"));
        for (encoding, read) in [("zstd", 1), ("gzip", 0), ("identity", 0), ("snappy", 0)] {
            let pieces = vec![Bytes::from(sent.clone())];
            let (count, end) = read_pieces(Protocol::Delta, encoding, pieces, 1000).await;
            assert_eq!((count, end.is_ok()), (read, read == 1), "{encoding}");
        }
    }

    #[tokio::test]
    async fn invalid_requests_are_rejected() {
        let whole = framed(&request("one"));
        let not_compressed = [&[1], &whole[1..]].concat();
        let other_flag = [&[2], &whole[1..]].concat();
        for (bytes, code) in [
            (framed(&request(&"x".repeat(1000))), Code::OutOfRange),
            (compressed(&request(&"x".repeat(1000))), Code::OutOfRange),
            (not_compressed, Code::Internal),
            (other_flag, Code::Internal),
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

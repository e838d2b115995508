//! The request side of a stream on the wire: gRPC messages one after the other, which leave nothing behind.
//!
//! tonic's own keeps a buffer as large as the largest request for as long as the stream lives; that in which an Envoy asks for
//! the endpoints of a thousand clusters is some 60 kB, and Envoys are many.

use std::fmt;
use std::marker::PhantomData;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use prost::Message;
use tonic::body::Body;
use tonic::{Code, Status};

/// Before every gRPC message: a byte that tells whether it is compressed, and its length.
pub(super) const PREFIX: usize = 5;

/// The requests of a stream.
pub(super) struct Requests<M> {
    /// Where they come from.
    body: Body,
    /// What came last and is not taken yet. Kept when it is: while somebody holds a part of it, h2 goes on to a new buffer
    /// of 8 KiB when the one that it came in is full; else it would keep that, which is as large as the largest frame.
    chunk: Bytes,
    /// The begin of a request of which more must come.
    begun: BytesMut,
    /// Bytes that one may have.
    limit: usize,
    /// Bytes that the last one had.
    length: usize,
    /// What they are.
    kind: PhantomData<fn() -> M>,
}

impl<M> fmt::Debug for Requests<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests")
            .field("waiting", &(self.begun.len() + self.chunk.len()))
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl<M: Message + Default> Requests<M> {
    /// Those of a call's body, each of at most `limit` bytes.
    pub(super) fn new(body: Body, limit: usize) -> Self {
        Self { body, chunk: Bytes::new(), begun: BytesMut::new(), limit, length: 0, kind: PhantomData }
    }

    /// The next one; `None` when the client is done or gone. Nothing is lost when the wait is given up.
    ///
    /// # Errors
    /// When a request is too large, compressed, cut off or no message of its type.
    pub(super) async fn message(&mut self) -> Result<Option<Box<M>>, Status> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.chunk = data;
                    }
                }
                // A client that goes away without a word has no more to say.
                Some(Err(status)) if status.code() == Code::Cancelled => return Ok(None),
                Some(Err(status)) => return Err(status),
                None if self.begun.is_empty() => return Ok(None),
                None => return Err(Status::data_loss("the stream ended within a request")),
            }
        }
    }

    /// Bytes of the request that was given last.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Takes a request out of what came, if all of it is there.
    fn take(&mut self) -> Result<Option<Box<M>>, Status> {
        // Most come whole; only others are copied.
        if self.begun.is_empty()
            && let Some(body) = first(&self.chunk, self.limit)?
        {
            let message = decode(body)?;
            self.length = body.len();
            self.chunk.advance(PREFIX + self.length);
            return Ok(Some(message));
        }
        self.begun.extend_from_slice(&self.chunk);
        self.chunk.advance(self.chunk.len());
        let Some(body) = first(&self.begun, self.limit)? else { return Ok(None) };
        let message = decode(body)?;
        self.length = body.len();
        self.begun.advance(PREFIX + self.length);
        if self.begun.is_empty() {
            self.begun = BytesMut::new();
        }
        Ok(Some(message))
    }
}

/// The body of the first message, if all of it is there.
fn first(bytes: &[u8], limit: usize) -> Result<Option<&[u8]>, Status> {
    let Some(([compressed, length @ ..], rest)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(None) };
    if *compressed != 0 {
        return Err(Status::unimplemented("compressed requests are not taken"));
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > limit {
        return Err(Status::out_of_range(format!("a request of {length} bytes, where {limit} are the limit")));
    }
    Ok(rest.get(..length))
}

/// A message from its bytes. Boxed: whoever waits with one in hand holds so much less.
fn decode<M: Message + Default>(body: &[u8]) -> Result<Box<M>, Status> {
    Box::<M>::decode(body).map_err(|error| Status::internal(format!("a request that cannot be decoded: {error}")))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body::Frame;
    use http_body_util::StreamBody;
    use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;

    use super::*;

    /// Requests from a body that comes in pieces of a size.
    fn in_pieces(bytes: &[u8], size: usize) -> Requests<DeltaDiscoveryRequest> {
        let pieces: Vec<Result<Frame<Bytes>, Infallible>> =
            bytes.chunks(size).map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece)))).collect();
        Requests::new(Body::new(StreamBody::new(tokio_stream::iter(pieces))), 1000)
    }

    fn framed(request: &DeltaDiscoveryRequest) -> Vec<u8> {
        let body = request.encode_to_vec();
        let mut bytes = vec![0];
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    fn request(nonce: &str) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest { response_nonce: nonce.to_owned(), ..DeltaDiscoveryRequest::default() }
    }

    #[tokio::test]
    async fn requests_come_whole_however_they_are_cut_and_leave_nothing_behind() {
        let sent = [request("one"), request(""), request(&"x".repeat(900))];
        let bytes: Vec<u8> = sent.iter().flat_map(framed).collect();
        for size in [1, 4, 7, 100, bytes.len()] {
            let mut requests = in_pieces(&bytes, size);
            for expected in &sent {
                assert_eq!(requests.message().await.unwrap().as_deref(), Some(expected));
            }
            assert!(requests.message().await.unwrap().is_none());
            assert_eq!(requests.begun.capacity(), 0);
        }
    }

    #[tokio::test]
    async fn what_is_no_request_is_refused() {
        let whole = framed(&request("one"));
        let compressed = [&[1], &whole[1..]].concat();
        for (bytes, code) in [
            (framed(&request(&"x".repeat(1000))), Code::OutOfRange),
            (compressed, Code::Unimplemented),
            (whole[..whole.len() - 1].to_vec(), Code::DataLoss),
            (vec![0, 0, 0, 0, 1, 0xff], Code::Internal),
        ] {
            assert_eq!(in_pieces(&bytes, 3).message().await.unwrap_err().code(), code);
        }
    }
}

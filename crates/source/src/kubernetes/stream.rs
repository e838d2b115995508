//! Requests to an API server whose responses are read as they arrive.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::Frame;
use kube::client::Body;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::timeout;

use navarch_api::decode::ServerStatus;
use navarch_base::error_chain::chain;

/// Received data is taken in chunks of about this size, so a batch may contain as much.
const CHUNK: usize = 256 << 10;

/// Room for a gathered chunk with the piece of the body that completes it.
const GATHERING_ROOM: usize = CHUNK + (64 << 10);

/// Maximum size of an event: objects are at most 1.5 MB in etcd, and their text can be larger.
const MAX_EVENT_SIZE: usize = 64 << 20;

/// Maximum size of the body of an error.
const MAX_ERROR_SIZE: usize = 1 << 20;

/// Why a response failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    /// The server returned an error status.
    #[error("{0}")]
    Rejected(ServerStatus),
    /// Connecting failed, or the connection broke.
    #[error("{0}")]
    Broken(String),
    /// No data was received within the idle timeout.
    #[error("no data received for {0:?}")]
    Silent(Duration),
    /// A body that is read as a whole exceeds this many bytes.
    #[error("a response exceeds {0} bytes")]
    TooLarge(usize),
}

/// A client of an API server, with its idle timeout.
#[derive(Clone)]
pub(super) struct Connection {
    client: kube::Client,
    /// The idle timeout. An idle watch has a bookmark about every minute.
    read_timeout: Duration,
    /// Notified when the server responds again after failures, so that others retry without
    /// waiting.
    pub(super) back: Arc<Notify>,
}

/// A response body, frame by frame.
pub(super) struct Frames<B = Body> {
    body: B,
    /// Received bytes that are not a complete frame yet.
    rest: BytesMut,
    /// How the body ended; it is not polled again.
    end: Option<Result<(), StreamError>>,
    /// How frames are delimited.
    pub(super) framing: Framing,
    /// The stream fails if no byte comes for this long.
    read_timeout: Duration,
}

/// How the events of a watch are delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Each is a line of JSON.
    Lines,
    /// Each is a message after its length, which is four bytes in big-endian order.
    Lengths,
}

/// Some whole frames.
#[derive(Debug)]
pub(super) struct Chunk {
    bytes: Bytes,
    /// How frames are delimited.
    pub(super) framing: Framing,
}

/// The media type of a response in binary form.
const BINARY: &str = "application/vnd.kubernetes.protobuf";

impl Framing {
    /// The first frame of some bytes, and the rest; `None` if the frame is incomplete.
    fn split(self, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        match self {
            Self::Lines => {
                let end = bytes.iter().position(|byte| *byte == b'\n')?;
                Some((bytes.get(..end)?, bytes.get(end + 1..)?))
            }
            Self::Lengths => {
                let (length, rest) = bytes.split_first_chunk::<4>()?;
                rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
            }
        }
    }

    /// Number of bytes at the start that are whole frames.
    fn whole(self, bytes: &[u8]) -> usize {
        match self {
            Self::Lines => bytes
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |end| end + 1),
            Self::Lengths => {
                let mut rest = bytes;
                while let Some((_, after)) = self.split(rest) {
                    rest = after;
                }
                bytes.len() - rest.len()
            }
        }
    }
}

impl Chunk {
    pub(super) fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest: &[u8] = &self.bytes;
        std::iter::from_fn(move || {
            let (frame, after) = self.framing.split(rest)?;
            rest = after;
            Some(frame)
        })
        .filter(|frame| !frame.is_empty())
    }
}

impl Connection {
    /// A connection to a server.
    pub(super) fn new(client: kube::Client, read_timeout: Duration) -> Self {
        Self {
            client,
            read_timeout,
            back: Arc::default(),
        }
    }

    /// Sends a GET request; `accept` is the media type of the response.
    pub(super) async fn get(&self, path: &str, accept: &str) -> Result<Frames, StreamError> {
        let broken = |error: &dyn std::error::Error| StreamError::Broken(chain(error));
        let request = http::Request::get(path)
            .header(http::header::ACCEPT, accept)
            .body(Body::empty());
        let request = request.map_err(|error| broken(&error))?;
        let answer = timeout(self.read_timeout, self.client.send(request)).await;
        let answer = answer
            .map_err(|_| StreamError::Silent(self.read_timeout))?
            .map_err(|error| broken(&error))?;
        let (head, body) = answer.into_parts();
        let kind = head
            .headers
            .get(http::header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let is_binary = kind.is_some_and(|kind| kind.starts_with(BINARY));
        let framing = if is_binary {
            Framing::Lengths
        } else {
            Framing::Lines
        };

        let mut frames = Frames {
            body,
            rest: BytesMut::new(),
            end: None,
            framing,
            read_timeout: self.read_timeout,
        };

        if head.status.is_success() {
            return Ok(frames);
        }

        let body = frames.all(MAX_ERROR_SIZE).await.unwrap_or_default();
        Err(StreamError::Rejected(ServerStatus::of_answer(
            head.status.as_u16(),
            &body,
        )))
    }
}

impl<B> Frames<B>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    /// All whole frames that were received, at least one; `None` at the end. With `gathers` it
    /// takes what arrives while the connection has more, up to [`CHUNK`]: an initial list then
    /// costs a batch for each hundred objects instead of each one or two.
    pub(super) async fn next(&mut self, gathers: bool) -> Result<Option<Chunk>, StreamError> {
        if gathers {
            // All chunks of a list are in one buffer, if each is dropped before the next.
            let missing = GATHERING_ROOM.saturating_sub(self.rest.len());
            self.rest.reserve(missing);
        } else {
            // An idle watch does not keep the memory of a busy hour.
            self.rest = BytesMut::from(&self.rest[..]);
        }

        loop {
            self.take_available();

            // The task of the connection hands over one piece of the body at a time.
            while gathers && self.end.is_none() && !self.rest.is_empty() && self.rest.len() < CHUNK
            {
                tokio::select! {
                    biased;
                    frame = self.body.frame() => self.store(frame),
                    () = yield_now() => break,
                }
            }

            let whole = self.framing.whole(&self.rest);
            if whole > 0 {
                return Ok(Some(Chunk {
                    bytes: self.rest.split_to(whole).freeze(),
                    framing: self.framing,
                }));
            }

            if self.rest.len() > MAX_EVENT_SIZE {
                return Err(StreamError::Broken(format!(
                    "a watch event exceeds {MAX_EVENT_SIZE} bytes"
                )));
            }

            if !self.frame().await? {
                // The rest is an incomplete frame.
                return Ok(None);
            }
        }
    }

    /// Reads to the end; returns the whole body, of `max_bytes` at most.
    pub(super) async fn all(&mut self, max_bytes: usize) -> Result<Bytes, StreamError> {
        while self.frame().await? {
            if self.rest.len() > max_bytes {
                return Err(StreamError::TooLarge(max_bytes));
            }
        }
        Ok(std::mem::take(&mut self.rest).freeze())
    }

    /// Stores the data that is already available, until there are [`CHUNK`] bytes.
    fn take_available(&mut self) {
        while self.end.is_none() && self.rest.len() < CHUNK {
            // Without a timeout, since it does not wait.
            let Some(frame) = self.body.frame().now_or_never() else {
                return;
            };
            self.store(frame);
        }
    }

    /// Waits for more data and stores it; false at the end.
    async fn frame(&mut self) -> Result<bool, StreamError> {
        if self.end.is_none() {
            let frame = timeout(self.read_timeout, self.body.frame())
                .await
                .map_err(|_| StreamError::Silent(self.read_timeout))?;
            self.store(frame);
        }

        match &mut self.end {
            Some(end) => std::mem::replace(end, Ok(())).map(|()| false),
            None => Ok(true),
        }
    }

    /// Stores a piece of the body, or how it ended.
    fn store(&mut self, frame: Option<Result<Frame<Bytes>, B::Error>>) {
        match frame {
            None => self.end = Some(Ok(())),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.rest.extend_from_slice(&data);
                }
            }
            Some(Err(error)) => self.end = Some(Err(StreamError::Broken(chain(&error)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_frames_are_split_and_incomplete_ones_wait() {
        let cut = |framing: Framing, bytes: &'static [u8]| {
            let whole = framing.whole(bytes);
            let chunk = Chunk {
                bytes: Bytes::from_static(&bytes[..whole]),
                framing,
            };
            (
                chunk.frames().map(<[u8]>::to_vec).collect::<Vec<_>>(),
                whole,
            )
        };

        assert_eq!(
            cut(Framing::Lines, b"a\nbc\n\nd"),
            (vec![b"a".to_vec(), b"bc".to_vec()], 6)
        );
        let lengths = b"\0\0\0\x01a\0\0\0\x02bc\0\0\0\x09d";
        assert_eq!(
            cut(Framing::Lengths, lengths),
            (vec![b"a".to_vec(), b"bc".to_vec()], 11)
        );

        assert_eq!(cut(Framing::Lengths, b"\xff\xff\xff\xff"), (vec![], 0));
    }

    /// A body of pieces of this length, each of which is there once the reader has waited for it.
    fn frames_of_pieces(
        bytes: &'static [u8],
        length: usize,
    ) -> Frames<impl hyper::body::Body<Data = Bytes, Error = std::io::Error> + Unpin> {
        let pieces = futures_util::stream::unfold(bytes.chunks(length), |mut pieces| async move {
            yield_now().await;
            let piece = Bytes::from_static(pieces.next()?);
            Some((Ok(Frame::data(piece)), pieces))
        });
        frames_of(http_body_util::StreamBody::new(Box::pin(pieces)))
    }

    fn frames_of<B>(body: B) -> Frames<B> {
        Frames {
            body,
            rest: BytesMut::new(),
            end: None,
            framing: Framing::Lines,
            read_timeout: Duration::from_secs(10),
        }
    }

    #[tokio::test]
    async fn an_error_right_after_data_is_reported() {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let pieces = [Ok(Frame::data(Bytes::from_static(b"one\n"))), Err(reset)];
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(pieces));
        let mut frames = frames_of(body);

        let chunk = frames.next(true).await.unwrap().unwrap();
        assert_eq!(chunk.frames().collect::<Vec<_>>(), [b"one"]);
        let error = frames.next(true).await.unwrap_err();
        assert!(matches!(error, StreamError::Broken(_)), "{error}");
        assert!(frames.next(true).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_body_is_not_read_after_an_error() {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let pieces = [Err(reset), Ok(Frame::data(Bytes::from_static(b"late\n")))];
        let pieces = futures_util::stream::unfold(pieces.into_iter(), |mut pieces| async move {
            yield_now().await;
            Some((pieces.next()?, pieces))
        });
        let mut frames = frames_of(http_body_util::StreamBody::new(Box::pin(pieces)));

        frames.next(false).await.unwrap_err();
        assert!(frames.next(false).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_whole_body_has_a_bound() {
        let text = b"one\ntwo\n";
        let whole = frames_of_pieces(text, 3).all(text.len()).await.unwrap();
        assert_eq!(&whole[..], text);

        let error = frames_of_pieces(text, 3).all(text.len() - 1).await;
        assert!(matches!(error, Err(StreamError::TooLarge(7))), "{error:?}");
    }

    #[tokio::test]
    async fn what_arrives_meanwhile_is_gathered_if_asked_for() {
        let text = b"one\ntwo\nthree\nfo";
        let mut frames = frames_of_pieces(text, 3);
        let chunk = frames.next(true).await.unwrap().unwrap();
        let gathered: Vec<_> = chunk.frames().map(<[u8]>::to_vec).collect();
        assert_eq!(gathered, [&b"one"[..], b"two", b"three"]);
        assert!(frames.next(true).await.unwrap().is_none());

        let mut frames = frames_of_pieces(text, 3);
        let chunk = frames.next(false).await.unwrap().unwrap();
        assert_eq!(chunk.frames().collect::<Vec<_>>(), [b"one"]);
    }

    #[tokio::test]
    async fn a_list_takes_one_buffer_and_an_idle_watch_none() {
        static LINES: [u8; 3 * CHUNK] = [b'\n'; 3 * CHUNK];
        let mut frames = frames_of_pieces(&LINES, 48 << 10);

        let first = frames.next(true).await.unwrap().unwrap();
        let place = first.bytes.as_ptr();
        drop(first);
        let second = frames.next(true).await.unwrap().unwrap();
        assert!(second.bytes.len() >= CHUNK);
        assert_eq!(second.bytes.as_ptr(), place);
        drop(second);

        assert!(frames.next(false).await.unwrap().is_some());
        assert!(frames.rest.capacity() < CHUNK);
    }
}

//! The client's side of an HTTP/2 connection whose gRPC streams, usually one, are opened with it:
//! it consumes the server's bytes and returns messages and bytes to send.
//!
//! A load tool must cost next to nothing per message, as it shares a machine with the server, and
//! general clients keep kilobytes of state per connection. So this is own code. It does no I/O:
//! that is [`crate::xds::connection`].

pub(crate) mod frame;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};

use crate::xds::grpc::{Encoding, Inbox, Message, take};
use frame::{
    ACK, DEFAULT_WINDOW, END_STREAM, HEAD, Head, INITIAL_WINDOW_SIZE, MAX_FRAME, PADDED, STREAM,
    Type, WINDOW,
};

/// The maximum size of a flow-control window (RFC 9113, 6.9.1).
const MAX_WINDOW: i64 = 0x7fff_ffff;

/// The result of parsing bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ServerBytes<'a> {
    /// A complete message.
    Message(Message<'a>),
    /// All bytes are consumed; there is no further message.
    Nothing,
    /// The stream has ended.
    Ended,
}

/// A call of a method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) server: SocketAddr,
    /// The path of the method.
    pub(crate) method: &'a str,
    /// How the server may compress its messages.
    pub(crate) encoding: Option<Encoding>,
    /// Whether the server is asked for resources without versions.
    pub(crate) omits_versions: bool,
}

/// The client's side of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    /// The state of the parser of frames.
    reading: Reading,
    streams: Box<[Stream]>,
    /// The index of the stream of the last DATA frame.
    current: usize,
    /// Bytes of DATA frames since the connection's last WINDOW_UPDATE.
    consumed: u32,
    /// The server's windows that all streams share.
    windows: Windows,
}

/// The server's windows that all streams share.
#[derive(Clone, Copy, Debug)]
struct Windows {
    /// The connection's window.
    connection: i64,
    /// The initial window of a stream.
    initial: i64,
}

/// One stream.
#[derive(Debug)]
struct Stream {
    id: u32,
    /// Its messages from the server.
    inbox: Inbox,
    /// Bytes of DATA frames since its last WINDOW_UPDATE.
    consumed: u32,
    /// DATA frames to the server.
    outflow: Outflow,
}

/// The state of the parser of frames.
#[derive(Debug)]
enum Reading {
    Head {
        /// The received part of it.
        bytes: [u8; HEAD],
        /// The length of that part.
        count: usize,
    },
    /// Before the padding length.
    Padding {
        /// Bytes behind it.
        left: usize,
        /// Whether END_STREAM is set.
        ends: bool,
    },
    Content {
        /// Bytes that have not arrived yet.
        left: usize,
        /// Bytes of padding behind it.
        padding: usize,
        /// Whether END_STREAM is set.
        ends: bool,
    },
    /// In content that is ignored.
    Skipped {
        /// Bytes that have not arrived yet.
        left: usize,
        /// Whether END_STREAM is set.
        ends: bool,
    },
    /// In a control frame, such as SETTINGS.
    Control {
        head: Head,
        /// The received part of the payload.
        payload: Vec<u8>,
    },
}

impl Reading {
    /// Before a frame.
    const START: Self = Self::Head {
        bytes: [0; HEAD],
        count: 0,
    };
}

impl Session {
    /// Opens the connection and calls a method on a number of streams; appends the bytes to send to
    /// `out`.
    pub(crate) fn open(call: &Call<'_>, streams: u32, out: &mut Vec<u8>) -> Self {
        let ids = (0..streams).map(|number| STREAM + 2 * number);
        frame::put_opening(out);
        ids.clone().for_each(|id| frame::put_call(out, call, id));

        let stream = |id| Stream {
            id,
            inbox: Inbox::new(call.encoding),
            consumed: 0,
            outflow: Outflow::default(),
        };
        Self {
            reading: Reading::START,
            streams: ids.map(stream).collect(),
            current: 0,
            consumed: 0,
            windows: Windows {
                connection: i64::from(DEFAULT_WINDOW),
                initial: i64::from(DEFAULT_WINDOW),
            },
        }
    }

    /// The index of the stream of the last message.
    pub(crate) fn current(&self) -> usize {
        self.current
    }

    /// Appends messages of a stream to `out` in DATA frames; what exceeds the window is queued.
    pub(crate) fn send(&mut self, stream: usize, messages: &[u8], out: &mut Vec<u8>) {
        if let Some(Stream { id, outflow, .. }) = self.streams.get_mut(stream) {
            outflow.send(*id, &mut self.windows.connection, messages, out);
        }
    }

    /// The index of a stream by its id; `None` if it is not open.
    fn index(&self, id: u32) -> Option<usize> {
        self.streams.iter().position(|stream| stream.id == id)
    }

    /// Consumes bytes of the server from the front of `input`, up to the end of the next message or
    /// of the stream. Appends to `out` acknowledgements, and queued messages that the windows now
    /// permit.
    ///
    /// # Errors
    /// If the bytes are not valid HTTP/2 or gRPC, or the server ended the connection with an error.
    pub(crate) fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<ServerBytes<'a>> {
        loop {
            match &mut self.reading {
                Reading::Head { bytes, count } => {
                    let part = take(input, HEAD - *count);
                    bytes
                        .iter_mut()
                        .skip(*count)
                        .zip(part)
                        .for_each(|(place, byte)| *place = *byte);
                    *count += part.len();
                    if *count < HEAD {
                        return Ok(ServerBytes::Nothing);
                    }

                    let head = Head::parse(*bytes);
                    self.reading = self.begin(head, out)?;
                }

                Reading::Padding { left, ends } => {
                    let [padding] = take(input, 1) else {
                        return Ok(ServerBytes::Nothing);
                    };

                    let padding = usize::from(*padding);
                    let left = left
                        .checked_sub(padding)
                        .context("the padding is longer than the frame")?;
                    self.reading = Reading::Content {
                        left,
                        padding,
                        ends: *ends,
                    };
                }

                Reading::Content {
                    left: 0,
                    padding,
                    ends,
                } => {
                    self.reading = Reading::Skipped {
                        left: *padding,
                        ends: *ends,
                    };
                }

                Reading::Content { left, .. } => {
                    let mut part = take(&mut { *input }, *left);
                    let before = part.len();
                    let stream = self.streams.get_mut(self.current);
                    let message = stream.context("no stream")?.inbox.next(&mut part)?;
                    let used = before - part.len();

                    *left -= take(input, used).len();
                    match message {
                        Some(message) => return Ok(ServerBytes::Message(message)),
                        None if input.is_empty() && *left > 0 => return Ok(ServerBytes::Nothing),
                        None => {}
                    }
                }

                Reading::Skipped { left, ends } => {
                    *left -= take(input, *left).len();
                    match (*left, *ends) {
                        (0, true) => return Ok(ServerBytes::Ended),
                        (0, false) => self.reading = Reading::START,
                        _ => return Ok(ServerBytes::Nothing),
                    }
                }

                Reading::Control { head, payload } => {
                    payload.extend_from_slice(take(input, head.length - payload.len()));
                    if payload.len() < head.length {
                        return Ok(ServerBytes::Nothing);
                    }

                    let head = *head;
                    let payload = std::mem::take(payload);
                    self.reading = Reading::START;
                    if self.control(head, &payload, out)? {
                        return Ok(ServerBytes::Ended);
                    }
                }
            }
        }
    }

    /// The state after a frame header.
    fn begin(&mut self, head: Head, out: &mut Vec<u8>) -> Result<Reading> {
        let Head {
            length,
            kind,
            flags,
            stream,
        } = head;

        ensure!(
            length <= MAX_FRAME,
            "a frame of {length} bytes, which is more than {MAX_FRAME}"
        );
        let index = self.index(stream);
        let ends = index.is_some() && flags & END_STREAM != 0;

        Ok(match kind {
            Type::Data => {
                self.current = index
                    .with_context(|| format!("content of stream {stream}, which is not open"))?;
                self.consume(u32::try_from(length)?, out);

                match flags & PADDED {
                    0 => Reading::Content {
                        left: length,
                        padding: 0,
                        ends,
                    },
                    _ => Reading::Padding {
                        left: length.checked_sub(1).context("padding in an empty frame")?,
                        ends,
                    },
                }
            }
            Type::Headers => Reading::Skipped { left: length, ends },
            Type::Reset | Type::Settings | Type::Ping | Type::GoAway | Type::WindowUpdate => {
                Reading::Control {
                    head,
                    payload: Vec::with_capacity(length),
                }
            }
            Type::Other(_) => Reading::Skipped {
                left: length,
                ends: false,
            },
        })
    }

    /// Counts received content of the current stream, and sends a WINDOW_UPDATE once half of a
    /// window is used.
    fn consume(&mut self, bytes: u32, out: &mut Vec<u8>) {
        let stream = self.streams.get_mut(self.current);
        let stream = stream.map(|stream| (stream.id, &mut stream.consumed));

        for (id, consumed) in [(0, &mut self.consumed)].into_iter().chain(stream) {
            *consumed += bytes;
            if *consumed >= WINDOW / 2 {
                frame::put_leave(out, id, std::mem::take(consumed));
            }
        }
    }

    /// Handles a control frame; true if the stream has ended.
    fn control(&mut self, head: Head, payload: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let acknowledged = head.flags & ACK != 0;

        match head.kind {
            Type::Settings if !acknowledged => {
                let (settings, rest) = payload.as_chunks::<6>();
                ensure!(rest.is_empty(), "settings of {} bytes", payload.len());
                for [a, b, value @ ..] in settings {
                    if u16::from_be_bytes([*a, *b]) == INITIAL_WINDOW_SIZE {
                        self.resize(u32::from_be_bytes(*value))?;
                    }
                }
                frame::put(out, Type::Settings, ACK, 0, &[]);
                self.flush(out);
            }
            Type::Ping => {
                ensure!(payload.len() == 8, "a ping of {} bytes", payload.len());
                if !acknowledged {
                    frame::put(out, Type::Ping, ACK, 0, payload);
                }
            }
            Type::WindowUpdate => {
                let [bytes] = payload.as_chunks::<4>().0 else {
                    bail!("a window update of {} bytes", payload.len())
                };
                self.widen(head.stream, u32::from_be_bytes(*bytes) & 0x7fff_ffff)?;
                self.flush(out);
            }
            Type::Reset if self.index(head.stream).is_some() => {
                bail!("the server reset the stream, with {}", code(payload));
            }
            Type::GoAway => {
                let last = payload
                    .first_chunk()
                    .map_or(0, |last| u32::from_be_bytes(*last) & 0x7fff_ffff);
                let code = code(payload.get(4..).unwrap_or_default());
                // After GOAWAY without an error, streams up to the last stream id may complete.
                ensure!(code == 0, "the server closed the connection, with {code}");
                return Ok(self.streams.iter().any(|stream| stream.id > last));
            }
            Type::Settings | Type::Reset | Type::Data | Type::Headers | Type::Other(_) => {}
        }

        Ok(false)
    }

    /// Appends queued content to `out`, as far as the windows permit.
    fn flush(&mut self, out: &mut Vec<u8>) {
        for Stream { id, outflow, .. } in &mut self.streams {
            outflow.flush(*id, &mut self.windows.connection, out);
        }
    }

    /// Applies a new initial window size, which also changes the windows of open streams.
    fn resize(&mut self, initial: u32) -> Result<()> {
        let initial = i64::from(initial);
        ensure!(
            initial <= MAX_WINDOW,
            "streams that begin with a window of {initial} bytes"
        );
        let change = initial - self.windows.initial;
        self.windows.initial = initial;
        for stream in &mut self.streams {
            let window = &mut stream.outflow.window;
            *window += change;
            ensure!(*window <= MAX_WINDOW, "the stream's window overflows");
        }
        Ok(())
    }

    /// Applies a WINDOW_UPDATE.
    fn widen(&mut self, stream: u32, bytes: u32) -> Result<()> {
        ensure!(bytes > 0, "a window update of 0 bytes");
        let window = match stream {
            0 => &mut self.windows.connection,
            id => {
                let stream = self.streams.iter_mut().find(|stream| stream.id == id);
                let Some(stream) = stream else { return Ok(()) };
                &mut stream.outflow.window
            }
        };
        *window += i64::from(bytes);
        ensure!(
            *window <= MAX_WINDOW,
            "the window of stream {stream} overflows"
        );
        Ok(())
    }
}

/// The error code at the front of a payload.
fn code(payload: &[u8]) -> u32 {
    payload
        .first_chunk()
        .map_or(0, |code| u32::from_be_bytes(*code))
}

/// DATA frames of a stream to the server, subject to flow control.
#[derive(Debug)]
struct Outflow {
    /// The stream's window; negative after the server has reduced the initial window.
    window: i64,
    /// Content that waits for a window.
    waiting: Vec<u8>,
}

impl Default for Outflow {
    fn default() -> Self {
        Self {
            window: i64::from(DEFAULT_WINDOW),
            waiting: Vec::new(),
        }
    }
}

impl Outflow {
    /// Appends content to `out` in frames behind queued content; the rest is queued. `id` is that
    /// of the stream, `connection` the connection's window.
    fn send(&mut self, id: u32, connection: &mut i64, content: &[u8], out: &mut Vec<u8>) {
        let sent = match self.waiting.is_empty() {
            true => self.put(id, connection, content, out),
            false => 0,
        };
        self.waiting
            .extend_from_slice(content.get(sent..).unwrap_or_default());
    }

    /// Appends queued content to `out`, as far as the windows permit.
    fn flush(&mut self, id: u32, connection: &mut i64, out: &mut Vec<u8>) {
        if self.waiting.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let sent = self.put(id, connection, &waiting, out);
        if sent < waiting.len() {
            waiting.drain(..sent);
            self.waiting = waiting;
        }
    }

    /// Appends as much of the content as the windows permit, and returns its length.
    fn put(&mut self, id: u32, connection: &mut i64, content: &[u8], out: &mut Vec<u8>) -> usize {
        let mut rest = content;
        while !rest.is_empty() {
            let room = usize::try_from(self.window.min(*connection)).unwrap_or(0);
            let part = take(&mut rest, room.min(MAX_FRAME));
            if part.is_empty() {
                break;
            }
            frame::put(out, Type::Data, 0, id, part);
            let length = i64::try_from(part.len()).unwrap_or(i64::MAX);
            self.window -= length;
            *connection -= length;
        }
        content.len() - rest.len()
    }
}

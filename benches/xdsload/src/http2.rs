//! One gRPC stream on an HTTP/2 connection of its own, as seen by the client: bytes go in, messages
//! and bytes come out.
//!
//! Own code, since a load tool must cost next to nothing per message beside the server that it
//! shares a machine with, and general clients keep state for many streams per connection. No I/O
//! here: that is [`crate::connection`].

pub(crate) mod frame;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};

use crate::grpc::{Inbox, take};
use frame::{
    ACK, DEFAULT_WINDOW, END_STREAM, HEAD, Head, INITIAL_WINDOW_SIZE, MAX_FRAME, PADDED, STREAM,
    Type, WINDOW,
};

/// The most that a window may ever hold.
const MAX_WINDOW: i64 = 0x7fff_ffff;

/// What bytes of the server said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ServerBytes<'a> {
    /// A whole message.
    Message(Cow<'a, [u8]>),
    /// No more messages: all bytes are taken.
    Nothing,
    /// The stream has ended.
    Ended,
}

/// The client's side of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    /// Where in the server's frames the next byte belongs.
    reading: Reading,
    /// The messages in them.
    inbox: Inbox,
    /// Bytes of content that came since the server was last allowed more.
    consumed: u32,
    /// What goes to the server.
    outflow: Outflow,
}

/// Where in the server's frames one is.
#[derive(Debug)]
enum Reading {
    Head {
        /// What came of it.
        bytes: [u8; HEAD],
        /// How many those are.
        count: usize,
    },
    /// Before the byte that says how much padding there is.
    Padding {
        /// Bytes behind that one.
        left: usize,
        /// Whether the stream ends with them.
        ends: bool,
    },
    Content {
        /// Bytes of it that have not come.
        left: usize,
        /// Bytes of padding behind it.
        padding: usize,
        /// Whether the stream ends with them.
        ends: bool,
    },
    /// In what nobody needs.
    Skipped {
        /// Bytes of it that have not come.
        left: usize,
        /// Whether the stream ends with them.
        ends: bool,
    },
    /// In a frame that says something about the connection.
    Control {
        head: Head,
        /// What came of its payload.
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
    /// Opens the stream by the call of a method; what has to be said for that is appended to `out`.
    pub(crate) fn open(server: SocketAddr, method: &str, out: &mut Vec<u8>) -> Self {
        frame::put_opening(out, server, method);
        Self {
            reading: Reading::START,
            inbox: Inbox::default(),
            consumed: 0,
            outflow: Outflow::default(),
        }
    }

    /// Appends messages to `out`, in frames; what the server does not take yet waits.
    pub(crate) fn send(&mut self, messages: &[u8], out: &mut Vec<u8>) {
        self.outflow.send(messages, out);
    }

    /// Takes bytes of the server from the front of `input`, up to the end of the next message or of
    /// the stream. What has to be answered, and what the server takes now, is appended to `out`.
    ///
    /// # Errors
    /// When the bytes are not HTTP/2 or gRPC, or the server broke off.
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
                        .context("more padding than there is of the frame")?;
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
                    let message = self.inbox.next(&mut part)?;
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

    /// What comes behind a head.
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
        let ends = stream == STREAM && flags & END_STREAM != 0;

        Ok(match kind {
            Type::Data => {
                ensure!(
                    stream == STREAM,
                    "content of stream {stream}, which nobody opened"
                );
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

    /// Content came; allows the server more of it once half of what it may send is used up.
    fn consume(&mut self, bytes: u32, out: &mut Vec<u8>) {
        self.consumed += bytes;
        if self.consumed >= WINDOW / 2 {
            frame::put_leave(out, 0, self.consumed);
            frame::put_leave(out, STREAM, self.consumed);
            self.consumed = 0;
        }
    }

    /// Takes in what the server says about the connection; true if the stream has ended.
    fn control(&mut self, head: Head, payload: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let acknowledged = head.flags & ACK != 0;

        match head.kind {
            Type::Settings if !acknowledged => {
                let (settings, rest) = payload.as_chunks::<6>();
                ensure!(rest.is_empty(), "settings of {} bytes", payload.len());
                for [a, b, value @ ..] in settings {
                    if u16::from_be_bytes([*a, *b]) == INITIAL_WINDOW_SIZE {
                        self.outflow.resize(u32::from_be_bytes(*value))?;
                    }
                }
                frame::put(out, Type::Settings, ACK, 0, &[]);
                self.outflow.flush(out);
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
                self.outflow
                    .widen(head.stream, u32::from_be_bytes(*bytes) & 0x7fff_ffff)?;
                self.outflow.flush(out);
            }
            Type::Reset if head.stream == STREAM => {
                bail!("the server reset the stream, with {}", code(payload));
            }
            Type::GoAway => {
                let last = payload
                    .first_chunk()
                    .map_or(0, |last| u32::from_be_bytes(*last) & 0x7fff_ffff);
                let code = code(payload.get(4..).unwrap_or_default());
                // Without an error, the streams that it knows may come to their ends.
                ensure!(
                    code == 0,
                    "the server broke off the connection, with {code}"
                );
                return Ok(last < STREAM);
            }
            Type::Settings | Type::Reset | Type::Data | Type::Headers | Type::Other(_) => {}
        }

        Ok(false)
    }
}

/// The code of an error at the front of a payload.
fn code(payload: &[u8]) -> u32 {
    payload
        .first_chunk()
        .map_or(0, |code| u32::from_be_bytes(*code))
}

/// What goes to the server, no faster than it allows.
#[derive(Debug)]
struct Outflow {
    /// Bytes of content that the stream may still send; below 0 after the server has taken leave
    /// back.
    stream: i64,
    /// Those that the connection may.
    connection: i64,
    /// Those that a stream begins with.
    initial: i64,
    /// What must wait.
    waiting: Vec<u8>,
}

impl Default for Outflow {
    fn default() -> Self {
        let window = i64::from(DEFAULT_WINDOW);
        Self {
            stream: window,
            connection: window,
            initial: window,
            waiting: Vec::new(),
        }
    }
}

impl Outflow {
    /// Appends content to `out`, in frames, behind all that waits; the rest waits.
    fn send(&mut self, content: &[u8], out: &mut Vec<u8>) {
        let sent = match self.waiting.is_empty() {
            true => self.put(content, out),
            false => 0,
        };
        self.waiting
            .extend_from_slice(content.get(sent..).unwrap_or_default());
    }

    /// Appends what waited to `out`, as far as it may go now.
    fn flush(&mut self, out: &mut Vec<u8>) {
        if self.waiting.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let sent = self.put(&waiting, out);
        if sent < waiting.len() {
            waiting.drain(..sent);
            self.waiting = waiting;
        }
    }

    /// Appends as much of the content as may go; how much that was.
    fn put(&mut self, content: &[u8], out: &mut Vec<u8>) -> usize {
        let mut rest = content;
        while !rest.is_empty() {
            let room = usize::try_from(self.stream.min(self.connection)).unwrap_or(0);
            let part = take(&mut rest, room.min(MAX_FRAME));
            if part.is_empty() {
                break;
            }
            frame::put(out, Type::Data, 0, STREAM, part);
            let length = i64::try_from(part.len()).unwrap_or(i64::MAX);
            self.stream -= length;
            self.connection -= length;
        }
        content.len() - rest.len()
    }

    /// The server says anew what a stream begins with, which holds for those that have begun as
    /// well.
    fn resize(&mut self, initial: u32) -> Result<()> {
        let initial = i64::from(initial);
        ensure!(
            initial <= MAX_WINDOW,
            "streams that begin with a window of {initial} bytes"
        );
        self.stream += initial - self.initial;
        self.initial = initial;
        ensure!(self.stream <= MAX_WINDOW, "the stream's window overflows");
        Ok(())
    }

    /// The server allows more.
    fn widen(&mut self, stream: u32, bytes: u32) -> Result<()> {
        ensure!(bytes > 0, "a window that is widened by nothing");
        let window = match stream {
            0 => &mut self.connection,
            STREAM => &mut self.stream,
            _ => return Ok(()),
        };
        *window += i64::from(bytes);
        ensure!(
            *window <= MAX_WINDOW,
            "the window of stream {stream} overflows"
        );
        Ok(())
    }
}

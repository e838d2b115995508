//! A connection to the server, read and written in the task of its proxy: with a thousand proxies,
//! wake-ups between tasks would cost the server CPU as well, as both share the machine.

use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::xds::grpc::{Message, Outbox};
use crate::xds::http2::{Call, ServerBytes, Session, frame};

/// Size of the read buffer. It is on the stack, which stays in the CPU's cache, unlike a buffer per
/// proxy.
const READ: usize = 32 << 10;

/// Why a connection stops reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The consumer of the last message wants no more for now.
    Enough,
    /// The stream has ended.
    Ended,
}

/// A connection with its streams.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    /// The HTTP/2 session.
    session: Session,
    /// Bytes to write; not allocated while there are none.
    out: Vec<u8>,
    /// How many of them are written.
    written: usize,
    /// Bytes that are read but not parsed.
    rest: Vec<u8>,
}

impl Connection {
    /// Connects, and prepares the call of a method with its first messages.
    ///
    /// # Errors
    /// If the connection is refused.
    pub(crate) async fn open(call: &Call<'_>, first: &Outbox) -> Result<Self> {
        let server = call.server;
        let socket = TcpStream::connect(server)
            .await
            .with_context(|| format!("cannot connect to {server}"))?;
        Self::over(socket, call, std::slice::from_ref(first))
    }

    /// Prepares a call of a method for each of some first messages, on a new connection.
    ///
    /// # Errors
    /// If the socket is closed.
    pub(crate) fn over(socket: TcpStream, call: &Call<'_>, firsts: &[Outbox]) -> Result<Self> {
        socket.set_nodelay(true)?;
        let mut out = Vec::with_capacity(1024);
        let streams = u32::try_from(firsts.len())?;
        let mut session = Session::open(call, streams, &mut out);
        for (stream, first) in firsts.iter().enumerate() {
            session.send(stream, first.bytes(), &mut out);
        }
        Ok(Self {
            socket,
            session,
            out,
            written: 0,
            rest: Vec::new(),
        })
    }

    /// Writes pending bytes, reads available bytes, and passes each message to `take`, with the
    /// index of its stream; `take` may add requests of that stream.
    ///
    /// # Errors
    /// If the connection breaks, the server's bytes are not gRPC, or `take` fails.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        take: &mut impl FnMut(usize, &Message<'_>, &mut Outbox) -> Result<ControlFlow<()>>,
    ) -> Poll<Result<Stop>> {
        let rest = std::mem::take(&mut self.rest);
        let mut stop = if rest.is_empty() {
            None
        } else {
            self.parse(&rest, take)?
        };

        loop {
            self.write(context)?;
            if let Some(stop) = stop {
                return Poll::Ready(Ok(stop));
            }
            let mut bytes = [const { MaybeUninit::uninit() }; READ];
            let mut buffer = ReadBuf::uninit(&mut bytes);
            // A read that does not fill the buffer has emptied the socket: skip the system call
            // that would return `WouldBlock`.
            ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(Stop::Ended));
            }
            stop = self.parse(buffer.filled(), take)?;
        }
    }

    /// Parses bytes.
    fn parse(
        &mut self,
        mut bytes: &[u8],
        take: &mut impl FnMut(usize, &Message<'_>, &mut Outbox) -> Result<ControlFlow<()>>,
    ) -> Result<Option<Stop>> {
        let mut outbox = Outbox::default();
        // The stream of the requests in the outbox.
        let mut stream = 0;

        let stop = loop {
            match self.session.next(&mut bytes, &mut self.out)? {
                ServerBytes::Message(message) => {
                    if self.session.current() != stream {
                        self.session.send(stream, outbox.bytes(), &mut self.out);
                        outbox = Outbox::default();
                        stream = self.session.current();
                    }
                    if take(stream, &message, &mut outbox)?.is_break() {
                        break Some(Stop::Enough);
                    }
                }
                ServerBytes::Nothing => break None,
                ServerBytes::Ended => break Some(Stop::Ended),
            }
        };

        self.rest = bytes.to_vec();
        self.session.send(stream, outbox.bytes(), &mut self.out);
        Ok(stop)
    }

    /// Writes as much as the socket accepts.
    fn write(&mut self, context: &mut Context<'_>) -> Result<()> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match Pin::new(&mut self.socket).poll_write(context, rest)? {
                Poll::Ready(written) => {
                    ensure!(written > 0, "the connection accepts no more frames");
                    self.written += written;
                }
                Poll::Pending => return Ok(()),
            }
        }
        (self.out, self.written) = (Vec::new(), 0);
        Ok(())
    }

    /// Sends RST_STREAM and GOAWAY, if that is possible without waiting.
    pub(crate) fn close(self) {
        // Behind half a frame, the server could not parse them.
        if self.written == 0 && self.out.is_empty() {
            let mut farewell = Vec::new();
            frame::put_farewell(&mut farewell);
            // If the server is gone, this fails, which does no harm.
            let _ = self.socket.try_write(&farewell);
        }
    }
}

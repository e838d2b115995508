//! A connection to the server, read and written in the task of its proxy: of a thousand proxies,
//! each wake-up of one task by another is paid by the server as well, which shares the machine.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::grpc::Outbox;
use crate::http2::{ServerBytes, Session, frame};

/// Bytes read at once, into the stack: what lies there is warm, whereas a buffer of each proxy's
/// own would not be.
const READ: usize = 32 << 10;

/// Why a connection stops reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Whoever took the last message wants no more for now.
    Enough,
    /// The stream has ended.
    Ended,
}

/// A connection with its stream.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    /// What is said on it.
    session: Session,
    /// Bytes to be written. Nothing is allocated while there are none.
    out: Vec<u8>,
    /// How many of them are.
    written: usize,
    /// Bytes read, but not taken in.
    rest: Vec<u8>,
}

impl Connection {
    /// Connects, and makes ready to call a method with the first messages.
    ///
    /// # Errors
    /// When nobody listens.
    pub(crate) async fn open(server: SocketAddr, method: &str, first: &Outbox) -> Result<Self> {
        let socket = TcpStream::connect(server)
            .await
            .with_context(|| format!("cannot connect to {server}"))?;
        socket.set_nodelay(true)?;
        let mut out = Vec::with_capacity(1024);
        let mut session = Session::open(server, method, &mut out);
        session.send(first.bytes(), &mut out);
        Ok(Self {
            socket,
            session,
            out,
            written: 0,
            rest: Vec::new(),
        })
    }

    /// Writes what is to be written and reads what is there; gives each message to `take`, which
    /// may answer.
    ///
    /// # Errors
    /// When the connection breaks, the server does not speak gRPC, or `take` fails.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        take: &mut impl FnMut(&[u8], &mut Outbox) -> Result<ControlFlow<()>>,
    ) -> Poll<Result<Stop>> {
        let rest = std::mem::take(&mut self.rest);
        let mut stop = if rest.is_empty() {
            None
        } else {
            self.hear(&rest, take)?
        };

        loop {
            self.write(context)?;
            if let Some(stop) = stop {
                return Poll::Ready(Ok(stop));
            }
            let mut bytes = [const { MaybeUninit::uninit() }; READ];
            let mut buffer = ReadBuf::uninit(&mut bytes);
            // A read that does not fill the buffer says that there is no more: the next asks
            // nobody.
            ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(Stop::Ended));
            }
            stop = self.hear(buffer.filled(), take)?;
        }
    }

    /// Takes bytes in.
    fn hear(
        &mut self,
        mut bytes: &[u8],
        take: &mut impl FnMut(&[u8], &mut Outbox) -> Result<ControlFlow<()>>,
    ) -> Result<Option<Stop>> {
        let mut outbox = Outbox::default();
        let stop = loop {
            match self.session.next(&mut bytes, &mut self.out)? {
                ServerBytes::Message(message) if take(&message, &mut outbox)?.is_continue() => {}
                ServerBytes::Message(_) => break Some(Stop::Enough),
                ServerBytes::Nothing => break None,
                ServerBytes::Ended => break Some(Stop::Ended),
            }
        };
        self.rest = bytes.to_vec();
        self.session.send(outbox.bytes(), &mut self.out);
        Ok(stop)
    }

    /// Writes as much as the socket takes.
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

    /// Takes leave of the server, as far as that can be said at once.
    pub(crate) fn close(self) {
        // Behind half a frame, it would not be understood.
        if self.written == 0 && self.out.is_empty() {
            let mut farewell = Vec::new();
            frame::put_farewell(&mut farewell);
            // A server that is gone needs no farewell.
            let _ = self.socket.try_write(&farewell);
        }
    }
}

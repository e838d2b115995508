//! A connection of a [`Port`](super::port::Port): it reports activity, ends when the port evicts
//! it, and has a read timeout for the client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::port::ConnectionPermit;

/// Interval of peeking for the rest of a client's first bytes.
const PEEK_INTERVAL: Duration = Duration::from_millis(10);

/// A connection with its permit of a port. Reads and writes fail once the port has evicted it.
#[derive(Debug)]
pub struct PortStream<S = TcpStream> {
    inner: S,
    place: ConnectionPermit,
    /// Whether transferred bytes count as activity.
    counts_bytes: bool,
    /// Timeout of the client for reading some of the sent data; unlimited if unset.
    read_timeout: Option<Duration>,
    /// The deadline for reading something.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> PortStream<S> {
    /// Transferred bytes count as activity, and the client has no read timeout.
    pub fn new(inner: S, place: ConnectionPermit) -> Self {
        Self {
            inner,
            place,
            counts_bytes: true,
            read_timeout: None,
            deadline: None,
        }
    }

    /// Sets a timeout for clients that do not read.
    #[must_use]
    pub fn with_read_limit(mut self, read_timeout: Duration) -> Self {
        self.read_timeout = Some(read_timeout);
        self
    }

    /// Removes the timeout, for servers with their own timeout for clients that do not read.
    #[must_use]
    pub fn without_read_limit(mut self) -> Self {
        self.read_timeout = None;
        self
    }

    /// Through it a server reports the end of the handshake, requests and rejections.
    #[must_use]
    pub fn place(&self) -> &ConnectionPermit {
        &self.place
    }

    /// Bytes no longer count as activity, because those of HTTP/2 PINGs do not show that a
    /// connection is used. The server of the connection reports its requests.
    pub fn count_requests_only(&mut self) {
        self.counts_bytes = false;
    }

    /// Fails if the port has closed the connection.
    fn check(&self, context: &mut Context<'_>) -> io::Result<()> {
        match self.place.activity().poll_evicted(context) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "closed to make room for other clients",
            )),
        }
    }

    /// Checks the outcome of a write: fails if the client has not read any data for too long.
    fn written(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.deadline = None;
            if self.counts_bytes {
                self.place.activity().touch();
            }
            return written;
        }

        let Some(read_timeout) = self.read_timeout else {
            return Poll::Pending;
        };

        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(read_timeout)));
        if deadline.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }

        self.place.reject("slow_reader");
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not read its responses",
        )))
    }
}

impl PortStream<TcpStream> {
    /// Whether the client's first bytes equal `bytes`. Consumes none of them.
    ///
    /// # Errors
    /// If the connection fails first.
    pub async fn begins_with(&self, bytes: &[u8]) -> io::Result<bool> {
        let mut first = vec![0; bytes.len()];
        loop {
            let read = self.inner.peek(&mut first).await?;
            let (seen, _) = first.split_at(read);
            if !bytes.starts_with(seen) || read == 0 {
                return Ok(false);
            }
            if read == bytes.len() {
                return Ok(true);
            }
            // Some bytes are available, so that another peek would not wait.
            tokio::time::sleep(PEEK_INTERVAL).await;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PortStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.check(context)?;
        let read = Pin::new(&mut this.inner).poll_read(context, buffer);
        if this.counts_bytes && read.is_ready() {
            this.place.activity().touch();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PortStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.written(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.written(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

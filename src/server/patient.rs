//! Connections that must say something soon: who connects and keeps silent is let go.
//!
//! HTTP/2 servers wait for a client's first bytes for ever, and so would hold what a thousand silent clients cost.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a client has for its first words.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that every HTTP/2 client sends first, whatever it wants.
const PREFACE: usize = 24;

/// A connection whose client is waited for only so long.
#[derive(Debug)]
pub(super) struct Patient<S> {
    /// The connection.
    inner: S,
    /// Until when the first words must be there, and how many bytes of them are missing; `None` once they are.
    waiting: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S> Patient<S> {
    /// Waits for the client's first words for so long.
    pub(super) fn new(inner: S, patience: Duration) -> Self {
        Self { inner, waiting: Some((Box::pin(tokio::time::sleep(patience)), PREFACE)) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(context, buffer);
        if let Some((sleep, missing)) = &mut this.waiting {
            let came = buffer.filled().len().saturating_sub(before);
            match missing.checked_sub(came) {
                None | Some(0) => this.waiting = None,
                Some(left) => {
                    *missing = left;
                    if read.is_pending() && sleep.as_mut().poll(context).is_ready() {
                        return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client says nothing")));
                    }
                }
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
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
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

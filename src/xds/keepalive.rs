//! Signs of life: a client that says nothing for long is asked for one, and let go where it gives none.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep, timeout};

use super::small_frames::SmallFrames;

/// When a client was heard last.
#[derive(Debug)]
pub(super) struct LastHeard {
    /// Time zero.
    begun: Instant,
    /// Milliseconds since then.
    at: AtomicU64,
}

/// A connection that notes when its client is heard, and gives what it says in frames that h2 can keep.
#[derive(Debug)]
pub(super) struct Listening<C> {
    /// The connection.
    inner: C,
    /// Cuts frames.
    frames: SmallFrames,
    /// Where it notes that.
    heard: Arc<LastHeard>,
}

impl LastHeard {
    /// Now.
    pub(super) fn now() -> Self {
        Self { begun: Instant::now(), at: AtomicU64::new(0) }
    }

    /// The client is heard.
    fn note(&self) {
        self.at.store(u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How long ago that was.
    fn ago(&self) -> Duration {
        self.begun.elapsed().saturating_sub(Duration::from_millis(self.at.load(Ordering::Relaxed)))
    }
}

/// Asks a client that was not heard for `interval` for a sign of life. Ends when it gives none within `patience`, or the
/// connection is gone.
pub(super) async fn until_silent(mut pings: PingPong, heard: &LastHeard, interval: Duration, patience: Duration) {
    loop {
        let quiet = heard.ago();
        if quiet < interval {
            sleep(interval - quiet).await;
            continue;
        }
        let is_asked = pings.send_ping(Ping::opaque()).is_ok();
        if !is_asked || !matches!(timeout(patience, poll_fn(|context| pings.poll_pong(context))).await, Ok(Ok(_))) {
            return;
        }
        heard.note();
    }
}

impl<C> Listening<C> {
    /// Notes from now on when the client of this connection is heard.
    pub(super) fn new(inner: C, heard: Arc<LastHeard>) -> Self {
        Self { inner, frames: SmallFrames::default(), heard }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Listening<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let read = this.frames.poll_read(Pin::new(&mut this.inner), context, buffer);
        if read.is_ready() {
            self.heard.note();
        }
        read
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Listening<C> {
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
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

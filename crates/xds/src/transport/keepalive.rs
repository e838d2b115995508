//! HTTP/2 keepalive: a client without activity gets a PING, and its connection ends if no
//! acknowledgement arrives.

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

/// When a client last sent something.
#[derive(Debug)]
pub(super) struct LastActivity {
    /// Time zero.
    begun: Instant,
    /// Milliseconds since `begun`.
    at: AtomicU64,
}

/// A connection that records when its client last sent something.
#[derive(Debug)]
pub(super) struct ActivityTracked<C> {
    inner: C,
    /// Updated with each read.
    heard: Arc<LastActivity>,
}

impl LastActivity {
    pub(super) fn now() -> Self {
        Self {
            begun: Instant::now(),
            at: AtomicU64::new(0),
        }
    }

    /// Records that the client sent something.
    fn note(&self) {
        self.at.store(
            u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// Time since the last activity.
    fn ago(&self) -> Duration {
        self.begun
            .elapsed()
            .saturating_sub(Duration::from_millis(self.at.load(Ordering::Relaxed)))
    }
}

/// Sends a PING to a client without activity for `interval`. Returns if no acknowledgement arrives
/// within `ack_timeout`, or if the connection has ended.
pub(super) async fn keepalive_until_lost(
    mut pings: PingPong,
    heard: &LastActivity,
    interval: Duration,
    ack_timeout: Duration,
) {
    loop {
        let quiet = heard.ago();
        if quiet < interval {
            sleep(interval - quiet).await;
            continue;
        }
        let is_sent = pings.send_ping(Ping::opaque()).is_ok();
        if !is_sent
            || !matches!(
                timeout(ack_timeout, poll_fn(|context| pings.poll_pong(context))).await,
                Ok(Ok(_))
            )
        {
            return;
        }
        heard.note();
    }
}

impl<C> ActivityTracked<C> {
    /// Records in `heard` when the client of this connection sends something.
    pub(super) fn new(inner: C, heard: Arc<LastActivity>) -> Self {
        Self { inner, heard }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for ActivityTracked<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if read.is_ready() {
            self.heard.note();
        }
        read
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for ActivityTracked<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
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

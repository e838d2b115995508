//! A simulated TCP connection: two ends that bytes travel between, with delay, in order.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::transport::server::Connected;

use crate::link::{Link, Listener, Passage};
use crate::random::Random;

/// The longest delay of a chunk, in milliseconds.
const MAX_DELAY: u64 = 4;

/// One end of a connection.
#[derive(Debug)]
pub struct SimStream {
    link: Link,
    changes: Listener,
    epoch: u64,
    inbox: mpsc::UnboundedReceiver<Chunk>,
    outbox: mpsc::UnboundedSender<Chunk>,
    /// The received chunk that is read.
    current: Bytes,
    /// The chunk that has not arrived yet.
    travelling: Option<(Pin<Box<Sleep>>, Bytes)>,
    /// When the last written chunk arrives.
    last_arrival: Instant,
    random: Arc<Mutex<Random>>,
}

/// Bytes, and when they arrive.
#[derive(Debug)]
struct Chunk {
    arrives: Instant,
    bytes: Bytes,
}

/// The two ends of a new connection over a link.
#[must_use]
pub fn connect(link: &Link, random: &Arc<Mutex<Random>>) -> (SimStream, SimStream) {
    let (to_right, right) = mpsc::unbounded_channel();
    let (to_left, left) = mpsc::unbounded_channel();
    let end = |inbox, outbox| SimStream {
        link: link.clone(),
        changes: link.listen(),
        epoch: link.epoch(),
        inbox,
        outbox,
        current: Bytes::new(),
        travelling: None,
        last_arrival: Instant::now(),
        random: random.clone(),
    };
    (end(left, to_right), end(right, to_left))
}

impl SimStream {
    /// Whether data may pass: pending while nothing happens on the link.
    fn poll_passage(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.changes.wake_at_change(context);
        match self.link.passage(self.epoch) {
            Passage::Open => Poll::Ready(Ok(())),
            Passage::Broken => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Passage::Stuck => Poll::Pending,
        }
    }
}

impl Connected for SimStream {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}

impl AsyncRead for SimStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_passage(context))?;

        while self.current.is_empty() {
            if let Some((arrival, bytes)) = &mut self.travelling {
                ready!(arrival.as_mut().poll(context));
                self.current = std::mem::take(bytes);
                self.travelling = None;
                continue;
            }
            match ready!(self.inbox.poll_recv(context)) {
                Some(Chunk { arrives, bytes }) => {
                    self.travelling = Some((Box::pin(sleep_until(arrives)), bytes));
                }
                // The other end was closed.
                None => return Poll::Ready(Ok(())),
            }
        }

        let length = self.current.len().min(buffer.remaining());
        if let Some(part) = self.current.get(..length) {
            buffer.put_slice(part);
        }
        self.current.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.link.passage(self.epoch) {
            Passage::Broken => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            // Accepted by the kernel, and never acknowledged.
            Passage::Stuck => return Poll::Ready(Ok(bytes.len())),
            Passage::Open => {}
        }

        let delay = self.random.lock().millis(0, MAX_DELAY);
        self.last_arrival = self.last_arrival.max(Instant::now() + delay);
        let chunk = Chunk {
            arrives: self.last_arrival,
            bytes: Bytes::copy_from_slice(bytes),
        };
        if self.outbox.send(chunk).is_err() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

//! What an agent sends: never a private key.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::KEY_LINE;
use crate::story::Story;
use crate::stream::SimStream;

const KEY: &[u8] = KEY_LINE.as_bytes();

/// A connection of which all that is sent is looked at.
#[derive(Debug)]
pub(super) struct Tap {
    stream: SimStream,
    /// The end of what was sent: a text may be split between two writes.
    last: Vec<u8>,
    name: String,
    story: Story,
}

impl Tap {
    pub(super) fn new(stream: SimStream, name: &str, story: &Story) -> Self {
        Self {
            stream,
            last: Vec::new(),
            name: name.to_owned(),
            story: story.clone(),
        }
    }

    fn look(&mut self, bytes: &[u8]) {
        self.last.extend_from_slice(bytes);
        if self.last.windows(KEY.len()).any(|window| window == KEY) {
            let text = format!("{} sends one", self.name);
            self.story
                .violated("private keys stay where they belong", &text);
        }
        let kept = self.last.len().saturating_sub(KEY.len() - 1);
        self.last.drain(..kept);
    }
}

impl AsyncRead for Tap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Tap {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(length)) = &written {
            self.look(bytes.get(..*length).unwrap_or_default());
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

//! gRPC messages in a stream of bytes: a prefix of five bytes has the length of each.

use std::borrow::Cow;
use std::io::Read as _;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use flate2::read::GzDecoder;

/// Maximum size of a message: Envoy's limit.
const MAX_MESSAGE: usize = 512 << 20;
/// Size of the prefix: a byte for compression, and the length.
const PREFIX: usize = 5;
/// Maximum size of the buffer that is reserved for a message in several parts; it grows for longer
/// messages.
const MAX_RESERVED: usize = 64 << 20;

/// How the server may compress its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Encoding {
    /// `gzip`.
    Gzip,
    /// `zstd`.
    Zstd,
}

/// A message of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    /// Its content, decompressed.
    pub(crate) body: Cow<'a, [u8]>,
    /// Its length on the wire, without the prefix.
    pub(crate) wire_length: usize,
}

/// Messages to send, concatenated.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Vec<u8>);

impl Outbox {
    /// Appends one message; `write` encodes it.
    pub(crate) fn message(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.0.is_empty() {
            // The size of a typical acknowledgement.
            self.0.reserve(256);
        }
        self.0.extend_from_slice(&[0; PREFIX]);
        let start = self.0.len();
        write(&mut self.0);
        let length = u32::try_from(self.0.len() - start)
            .unwrap_or(u32::MAX)
            .to_be_bytes();
        if let Some(place) = self.0.get_mut(start - length.len()..start) {
            place.copy_from_slice(&length);
        }
    }

    /// The encoded messages.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Splits bytes into messages, in whatever pieces the bytes arrive.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// The received part of the next prefix.
    prefix: [u8; PREFIX],
    /// Number of received bytes in `prefix`.
    count: usize,
    /// The received part of the message; unused if a message arrives in one piece.
    gathered: Vec<u8>,
    /// How messages may be compressed.
    encoding: Option<Encoding>,
}

impl Encoding {
    /// Its name in headers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    fn decompress(self, compressed: &[u8]) -> Result<Vec<u8>> {
        match self {
            Self::Gzip => {
                let mut plain = Vec::new();
                GzDecoder::new(compressed).read_to_end(&mut plain)?;
                Ok(plain)
            }
            Self::Zstd => Ok(zstd::stream::decode_all(compressed)?),
        }
    }
}

impl Inbox {
    /// An inbox for messages that may be compressed so.
    pub(crate) fn new(encoding: Option<Encoding>) -> Self {
        Self {
            encoding,
            ..Self::default()
        }
    }

    /// Consumes bytes from the front of `input`: all of them, or up to the end of the next message.
    ///
    /// # Errors
    /// If a message is compressed unasked, or too long.
    pub(crate) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Message<'a>>> {
        if let Some(open) = self.prefix.get_mut(self.count..) {
            let part = take(input, open.len());
            open.iter_mut()
                .zip(part)
                .for_each(|(open, byte)| *open = *byte);
            self.count += part.len();
        }

        if self.count < PREFIX {
            return Ok(None);
        }

        let [_, a, b, c, d] = self.prefix;
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d]))?;
        ensure!(
            length <= MAX_MESSAGE,
            "the message has {length} bytes, more than {MAX_MESSAGE}"
        );

        let missing = length - self.gathered.len();
        if self.gathered.is_empty() && input.len() >= missing {
            self.count = 0;
            let received = Cow::Borrowed(take(input, missing));
            return self.message(received).map(Some);
        }

        if self.gathered.is_empty() && !input.is_empty() {
            self.gathered.reserve_exact(length.min(MAX_RESERVED));
        }

        let part = take(input, missing);
        self.gathered.extend_from_slice(part);
        if part.len() < missing {
            return Ok(None);
        }

        self.count = 0;
        let received = Cow::Owned(std::mem::take(&mut self.gathered));
        self.message(received).map(Some)
    }

    /// The message of these bytes behind the current prefix.
    fn message<'a>(&self, received: Cow<'a, [u8]>) -> Result<Message<'a>> {
        let wire_length = received.len();
        let [flag, ..] = self.prefix;
        let body = match (flag, self.encoding) {
            (0, _) => received,
            (1, Some(encoding)) => {
                let plain = encoding.decompress(&received);
                Cow::Owned(plain.context("cannot decompress a message")?)
            }
            (other, _) => bail!("the message is compressed or invalid: its first byte is {other}"),
        };
        Ok(Message { body, wire_length })
    }
}

/// Removes up to `most` bytes from the front.
pub(crate) fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let all = *input;
    let (part, rest) = all.split_at_checked(most).unwrap_or((all, &[]));
    *input = rest;
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_any_split_of_the_stream() {
        let sent: [&[u8]; 4] = [b"one", b"", b"three and some more", b"4"];
        let mut outbox = Outbox::default();
        for message in sent {
            outbox.message(|out| out.extend_from_slice(message));
        }

        for step in 1..=outbox.bytes().len() {
            let mut inbox = Inbox::default();
            let mut got = Vec::new();
            for mut part in outbox.bytes().chunks(step) {
                while let Some(message) = inbox.next(&mut part).unwrap() {
                    got.push(message.body.into_owned());
                }
                assert!(part.is_empty());
            }

            assert_eq!(got, sent, "cut at every {step} bytes");
            assert_eq!(
                (inbox.count, inbox.gathered.capacity()),
                (0, 0),
                "no partial message is left"
            );
        }
    }

    #[test]
    fn messages_are_decompressed_and_counted_as_they_came() {
        let plain = vec![7; 10_000];
        let compressed = zstd::bulk::compress(&plain, 1).unwrap();
        let mut bytes = vec![1];
        bytes.extend_from_slice(&u32::try_from(compressed.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(&compressed);

        let mut inbox = Inbox::new(Some(Encoding::Zstd));
        let message = inbox.next(&mut &bytes[..]).unwrap().unwrap();
        assert_eq!(message.body, plain);
        assert_eq!(message.wire_length, compressed.len());
    }

    #[test]
    fn compressed_and_endless_messages_are_errors() {
        assert!(Inbox::default().next(&mut &[1, 0, 0, 0, 0][..]).is_err());
        assert!(
            Inbox::default()
                .next(&mut &[0, 0xff, 0xff, 0xff, 0xff][..])
                .is_err()
        );
    }
}

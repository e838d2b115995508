//! Messages of gRPC in a stream of bytes: five bytes ahead of each say how long it is.

use std::borrow::Cow;

use anyhow::{Result, ensure};

/// A message may be as large as Envoy takes it.
const MAX_MESSAGE: usize = 512 << 20;
/// What goes ahead of a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// What is set aside at once for a message that comes in parts; a longer one grows.
const AHEAD: usize = 64 << 20;

/// Messages to be sent, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Vec<u8>);

impl Outbox {
    /// Adds what `write` appends as one message.
    pub(crate) fn message(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.0.is_empty() {
            // As much as an acknowledgement needs.
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

    /// The messages as they go on the wire.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Finds the messages in bytes that come cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// What came of the bytes ahead of the next message.
    prefix: [u8; PREFIX],
    /// How many they are.
    count: usize,
    /// What came of the message; empty where it comes in one piece.
    gathered: Vec<u8>,
}

impl Inbox {
    /// Takes bytes from the front of `input`: all of them, or as many as make one more message
    /// whole.
    ///
    /// # Errors
    /// When a message is compressed or too long.
    pub(crate) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Cow<'a, [u8]>>> {
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

        let [compressed, a, b, c, d] = self.prefix;
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d]))?;
        ensure!(
            compressed == 0,
            "the message is compressed or invalid: its first byte is {compressed}"
        );
        ensure!(
            length <= MAX_MESSAGE,
            "the message has {length} bytes, more than {MAX_MESSAGE}"
        );

        let missing = length - self.gathered.len();
        if self.gathered.is_empty() && input.len() >= missing {
            self.count = 0;
            return Ok(Some(Cow::Borrowed(take(input, missing))));
        }

        if self.gathered.is_empty() && !input.is_empty() {
            self.gathered.reserve_exact(length.min(AHEAD));
        }

        let part = take(input, missing);
        self.gathered.extend_from_slice(part);
        Ok((part.len() == missing).then(|| {
            self.count = 0;
            Cow::Owned(std::mem::take(&mut self.gathered))
        }))
    }
}

/// Takes up to so many bytes from the front.
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
                    got.push(message.into_owned());
                }
                assert!(part.is_empty());
            }

            assert_eq!(got, sent, "cut at every {step} bytes");
            assert_eq!(
                (inbox.count, inbox.gathered.capacity()),
                (0, 0),
                "nothing is kept"
            );
        }
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

//! Counts the resources of delta responses while they arrive, without keeping them: a hundred
//! ztunnels that receive a million workloads each would fill the machine's memory otherwise.

use anyhow::{Result, bail, ensure};

use crate::xds::grpc::take;

/// Size of the prefix of a gRPC message.
const PREFIX: usize = 5;
/// Maximum size of a type URL or a nonce.
const MAX_TEXT: usize = 256;

/// Fields of a `DeltaDiscoveryResponse`.
const RESOURCES: u64 = 2;
const TYPE_URL: u64 = 4;
const NONCE: u64 = 5;
const REMOVED: u64 = 6;

/// A response of which all has arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Skimmed {
    pub(super) type_url: Vec<u8>,
    pub(super) nonce: Vec<u8>,
    pub(super) resources: usize,
    /// Names of removed resources.
    pub(super) removed: usize,
    /// Size of the message.
    pub(super) bytes: u64,
}

/// The part of a message that comes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// A field's tag.
    Tag,
    /// The value of a number.
    Number,
    /// The length of a field.
    Length { field: u64 },
    /// Bytes of a field.
    Content { field: u64, left: u64 },
}

/// Splits a gRPC stream into responses, in whatever pieces its bytes arrive.
#[derive(Debug)]
pub(super) struct Skimmer {
    prefix: Vec<u8>,
    /// Bytes of the message that have not arrived; counted from the prefix.
    left: u64,
    next: Next,
    /// The part of a varint that has arrived, and the number of its bits.
    number: u64,
    bits: u32,
    skimmed: Skimmed,
}

impl Default for Skimmer {
    fn default() -> Self {
        Self {
            prefix: Vec::with_capacity(PREFIX),
            left: 0,
            next: Next::Tag,
            number: 0,
            bits: 0,
            skimmed: Skimmed::default(),
        }
    }
}

impl Skimmer {
    /// Consumes bytes from the front of `input`: all of them, or up to the end of the next
    /// response.
    ///
    /// # Errors
    /// If a message is compressed, or not a response.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Skimmed>> {
        loop {
            if self.prefix.len() < PREFIX {
                let part = take(input, PREFIX - self.prefix.len());
                self.prefix.extend_from_slice(part);
                let [flag, a, b, c, d] = self.prefix[..] else {
                    return Ok(None);
                };
                ensure!(flag == 0, "a compressed message");
                self.left = u32::from_be_bytes([a, b, c, d]).into();
                self.skimmed.bytes = self.left;
            }

            if self.left == 0 {
                ensure!(
                    matches!(self.next, Next::Tag) && self.bits == 0,
                    "a message that ends within a field"
                );
                self.prefix.clear();
                return Ok(Some(std::mem::take(&mut self.skimmed)));
            }
            if input.is_empty() {
                return Ok(None);
            }
            self.step(input)?;
        }
    }

    /// Consumes a byte, or as much as there is of a field's content.
    fn step(&mut self, input: &mut &[u8]) -> Result<()> {
        if let Next::Content { field, left } = self.next {
            let most = usize::try_from(left.min(self.left)).unwrap_or(usize::MAX);
            let part = take(input, most);
            match field {
                TYPE_URL => keep(&mut self.skimmed.type_url, part)?,
                NONCE => keep(&mut self.skimmed.nonce, part)?,
                _ => {}
            }
            let length = u64::try_from(part.len())?;
            self.left -= length;
            self.next = match left - length {
                0 => Next::Tag,
                left => Next::Content { field, left },
            };
            return Ok(());
        }

        let Some(number) = self.varint(input)? else {
            return Ok(());
        };
        self.next = match self.next {
            Next::Tag => match number & 7 {
                0 => Next::Number,
                2 => Next::Length { field: number >> 3 },
                other => bail!("a field of the type {other}"),
            },
            Next::Length { field } => {
                self.skimmed.resources += usize::from(field == RESOURCES);
                self.skimmed.removed += usize::from(field == REMOVED);
                match number {
                    0 => Next::Tag,
                    left => Next::Content { field, left },
                }
            }
            Next::Number | Next::Content { .. } => Next::Tag,
        };
        Ok(())
    }

    /// Consumes a byte of a varint; returns its value at its end.
    fn varint(&mut self, input: &mut &[u8]) -> Result<Option<u64>> {
        let [byte] = *take(input, 1) else {
            return Ok(None);
        };
        self.left -= 1;
        ensure!(self.bits < u64::BITS, "a number of more than 10 bytes");
        self.number |= u64::from(byte & 127) << self.bits;
        self.bits += 7;
        if byte & 128 != 0 {
            return Ok(None);
        }
        self.bits = 0;
        Ok(Some(std::mem::take(&mut self.number)))
    }
}

/// Keeps a part of a text.
fn keep(text: &mut Vec<u8>, part: &[u8]) -> Result<()> {
    ensure!(
        text.len() + part.len() <= MAX_TEXT,
        "a type URL or nonce of more than {MAX_TEXT} bytes"
    );
    text.extend_from_slice(part);
    Ok(())
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource};
    use prost::Message as _;

    use super::*;
    use crate::xds::grpc::Outbox;

    /// A stream of two responses.
    fn stream() -> (Vec<u8>, [Skimmed; 2]) {
        let resource = |number: usize| Resource {
            name: "n".repeat(number),
            version: "v".to_owned(),
            ..Resource::default()
        };
        let full = DeltaDiscoveryResponse {
            system_version_info: "s".to_owned(),
            resources: (0..200).map(resource).collect(),
            type_url: "type".to_owned(),
            removed_resources: vec!["x".to_owned(), "y".to_owned()],
            nonce: "n1".to_owned(),
            ..DeltaDiscoveryResponse::default()
        };
        let empty = DeltaDiscoveryResponse::default();

        let mut outbox = Outbox::default();
        for response in [&full, &empty] {
            outbox.message(|out| out.extend(response.encode_to_vec()));
        }
        let expected = Skimmed {
            type_url: b"type".to_vec(),
            nonce: b"n1".to_vec(),
            resources: 200,
            removed: 2,
            bytes: full.encoded_len().try_into().unwrap(),
        };
        (outbox.bytes().to_vec(), [expected, Skimmed::default()])
    }

    #[test]
    fn responses_are_counted_in_any_split_of_the_stream() {
        let (bytes, expected) = stream();
        for step in [1, 2, 3, 7, 100, bytes.len()] {
            let mut skimmer = Skimmer::default();
            let mut found = Vec::new();
            for mut part in bytes.chunks(step) {
                while let Some(skimmed) = skimmer.next(&mut part).unwrap() {
                    found.push(skimmed);
                }
                assert!(part.is_empty());
            }
            assert_eq!(found, expected, "cut at every {step} bytes");
        }
    }

    #[test]
    fn what_is_no_response_is_an_error() {
        let next = |bytes: &[u8]| Skimmer::default().next(&mut &*bytes);
        assert!(next(&[1, 0, 0, 0, 0]).is_err(), "compressed");
        assert!(next(&[0, 0, 0, 0, 1, 0x0b]).is_err(), "a group");
        assert!(next(&[0, 0, 0, 0, 1, 0x80]).is_err(), "half a tag");
        assert!(next(&[0, 0, 0, 0, 2, 0x12, 9]).is_err(), "half a field");
    }
}

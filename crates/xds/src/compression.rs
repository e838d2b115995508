//! Compression of gRPC messages, with payloads that are compressed once for all streams.
//!
//! A gRPC message is compressed as a whole, but its head (nonce, version, removed names) belongs to
//! one stream, while its payload (the resources) is the same for many. Both formats allow to put the
//! two together without compressing again:
//!
//! ```text
//! gzip  header | head in a stored block | blocks of the payload | CRC and length of both
//! zstd  frame with the head in a raw block | frame of the payload
//! ```
//!
//! The gzip form is one member: decoders such as flate2's, which tonic uses, read no second one.
//! Decoders of zstd read several frames (RFC 8878, section 3.1).
//!
//! 2.36 MB of resources for a sidecar in a mesh of 1,000 services become 55 kB with zstd's level 1,
//! which takes 7 ms. So one stream pays for it with more CPU time than it saves at encryption and
//! copying; from the third stream on it saves CPU time, too.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::str::FromStr;

use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::DeflateEncoder;
use http::{HeaderMap, HeaderValue};

/// The header with the encoding of a side's messages.
pub(crate) const GRPC_ENCODING: &str = "grpc-encoding";
/// The header with the encodings that a side reads.
pub(crate) const GRPC_ACCEPT_ENCODING: &str = "grpc-accept-encoding";
/// All encodings that requests may have, as the value of [`GRPC_ACCEPT_ENCODING`].
pub(crate) const ACCEPTED: &str = "identity,gzip,zstd";

/// Maximum bytes of a message's head: that of a stored block, and less than that of a raw block.
/// Only the names of thousands of removed resources need more; such a message is not compressed.
pub(crate) const MAX_HEAD: usize = 0xffff;
/// The fast levels: higher ones take three times as long, and save a fifth.
const ZSTD_LEVEL: i32 = 1;
const GZIP_LEVEL: Compression = Compression::fast();
/// How many times larger than on the wire a compressed request may be, and the bytes that it may
/// have in any case. A list of names of resources shrinks to a tenth; what shrinks further would
/// cost the server much more memory than the client traffic.
const MAX_EXPANSION: usize = 32;
const FREE_BYTES: usize = 64 << 10;
/// Base-two logarithm of the memory that decompressing a request may need: 16 MiB, as long as a
/// request may be in ambient mode.
const MAX_WINDOW_LOG: u32 = 24;

/// The header of a gzip member: deflate, no name, no time, an unknown system (RFC 1952).
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The start of a zstd frame (RFC 8878).
const ZSTD_MAGIC: u32 = 0xfd2f_b528;
/// The descriptor of a frame in a single segment, whose content has a length of 4 bytes.
const ZSTD_DESCRIPTOR: u8 = 0b1010_0000;

/// How messages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// `gzip`: grpc-go, gRPC core and tonic have it.
    Gzip,
    /// `zstd`: smaller and faster; Navarch's agent has it.
    Zstd,
}

/// How a client compresses its requests, by its header [`GRPC_ENCODING`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEncoding {
    /// It names none, or `identity`: none of its requests may be compressed.
    Identity,
    /// One that the server reads.
    Known(Encoding),
    /// Another one.
    Unknown,
}

/// The encodings that the server may send with (`NAVARCH_XDS_COMPRESSION`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encodings {
    /// `gzip`.
    pub gzip: bool,
    /// `zstd`.
    pub zstd: bool,
}

/// A text names an unknown encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no encoding: gzip and zstd are known, and none")]
pub struct UnknownEncoding(String);

/// Why a compressed request cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecompressError {
    /// The bytes are not of this encoding.
    #[error("failed to decompress it")]
    Invalid(#[from] io::Error),
    /// It is too long when it is decompressed, or too much longer than on the wire.
    #[error("it exceeds the limit of {0} bytes when it is decompressed")]
    TooLong(usize),
}

/// A payload that is compressed, to be put into messages of several streams.
#[derive(Clone)]
pub(crate) struct CompressedPayload {
    encoding: Encoding,
    /// Blocks of deflate with the last one, or a frame of zstd.
    bytes: Bytes,
    /// The CRC of what it was made of; of an empty text with zstd, which needs none.
    crc: crc32fast::Hasher,
}

/// A message in its compressed form, in three parts of which the second is shared.
#[derive(Clone)]
pub(crate) struct CompressedMessage {
    /// What belongs to one stream, before the payload.
    pub(crate) front: Bytes,
    /// The payload, shared.
    pub(crate) payload: Bytes,
    /// What belongs to one stream, after the payload; empty with zstd.
    pub(crate) back: Bytes,
}

impl fmt::Debug for CompressedPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes.len(), self.encoding.name())
    }
}

impl Default for Encodings {
    fn default() -> Self {
        Self {
            gzip: true,
            zstd: true,
        }
    }
}

impl Encodings {
    /// No compression.
    pub const NONE: Self = Self {
        gzip: false,
        zstd: false,
    };
}

/// A list such as `gzip,zstd`, or `none`.
impl FromStr for Encodings {
    type Err = UnknownEncoding;

    fn from_str(text: &str) -> Result<Self, UnknownEncoding> {
        let mut encodings = Self::NONE;
        if text.trim() == "none" {
            return Ok(encodings);
        }

        for name in text.split(',').map(str::trim) {
            match Encoding::of_name(name) {
                Some(Encoding::Gzip) => encodings.gzip = true,
                Some(Encoding::Zstd) => encodings.zstd = true,
                None => return Err(UnknownEncoding(name.to_owned())),
            }
        }
        Ok(encodings)
    }
}

impl Encoding {
    fn of_name(name: &str) -> Option<Self> {
        match name {
            "gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Its name in headers and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Its name as the value of [`GRPC_ENCODING`].
    pub(crate) fn header(self) -> HeaderValue {
        HeaderValue::from_static(self.name())
    }

    /// The best of `enabled` that a client reads; `None` if it reads none.
    pub(crate) fn for_client(headers: &HeaderMap, enabled: Encodings) -> Option<Self> {
        let mut accepts = Encodings::NONE;
        let lists = headers.get_all(GRPC_ACCEPT_ENCODING);

        for list in lists.iter().filter_map(|list| list.to_str().ok()) {
            for name in list.split(',').map(str::trim) {
                match Self::of_name(name) {
                    Some(Self::Gzip) => accepts.gzip = true,
                    Some(Self::Zstd) => accepts.zstd = true,
                    None => {}
                }
            }
        }

        if accepts.zstd && enabled.zstd {
            Some(Self::Zstd)
        } else if accepts.gzip && enabled.gzip {
            Some(Self::Gzip)
        } else {
            None
        }
    }

    /// Compresses a payload.
    ///
    /// # Errors
    /// If memory for the compressor cannot be allocated.
    pub(crate) fn compress(self, payload: &[u8]) -> io::Result<CompressedPayload> {
        let mut crc = crc32fast::Hasher::new();

        let bytes = match self {
            Self::Gzip => {
                crc.update(payload);
                let mut encoder = DeflateEncoder::new(Vec::new(), GZIP_LEVEL);
                encoder.write_all(payload)?;
                encoder.finish()?
            }
            Self::Zstd => zstd::bulk::compress(payload, ZSTD_LEVEL)?,
        };

        Ok(CompressedPayload {
            encoding: self,
            // The buffer may have twice the capacity.
            bytes: Bytes::from(bytes.into_boxed_slice()),
            crc,
        })
    }

    /// Decompresses a request.
    ///
    /// # Errors
    /// If it is invalid, longer than `limit` bytes, or more than [`MAX_EXPANSION`] times as long as
    /// on the wire. Nothing beyond that is read.
    pub(crate) fn decompress(
        self,
        compressed: &[u8],
        limit: usize,
    ) -> Result<Vec<u8>, DecompressError> {
        let expanded = compressed.len().saturating_mul(MAX_EXPANSION);
        let limit = limit.min(expanded.saturating_add(FREE_BYTES));
        let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        let mut request = Vec::new();

        match self {
            Self::Gzip => {
                let decoder = MultiGzDecoder::new(compressed);
                decoder.take(most).read_to_end(&mut request)?;
            }
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(compressed)?;
                decoder.window_log_max(MAX_WINDOW_LOG)?;
                decoder.take(most).read_to_end(&mut request)?;
            }
        }

        if request.len() > limit {
            return Err(DecompressError::TooLong(limit));
        }
        Ok(request)
    }
}

impl RequestEncoding {
    /// The encoding that the headers of a call name.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Self {
        match headers.get(GRPC_ENCODING) {
            None => Self::Identity,
            Some(name) => name.to_str().map_or(Self::Unknown, Self::of_name),
        }
    }

    /// The encoding of this name.
    pub(crate) fn of_name(name: &str) -> Self {
        match name {
            "identity" => Self::Identity,
            name => Encoding::of_name(name).map_or(Self::Unknown, Self::Known),
        }
    }
}

impl CompressedPayload {
    /// How it is compressed.
    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The message of a head and this payload. `plain_length` is the length of the payload before
    /// it was compressed. `None` if the head is longer than [`MAX_HEAD`].
    pub(crate) fn message(&self, head: &[u8], plain_length: usize) -> Option<CompressedMessage> {
        if head.len() > MAX_HEAD {
            return None;
        }

        let (front, back) = match self.encoding {
            Encoding::Gzip => (gzip_front(head)?, self.gzip_back(head, plain_length)),
            Encoding::Zstd => (zstd_front(head)?, Bytes::new()),
        };
        Some(CompressedMessage {
            front,
            payload: self.bytes.clone(),
            back,
        })
    }

    /// The CRC and the length of head and payload.
    fn gzip_back(&self, head: &[u8], plain_length: usize) -> Bytes {
        let mut crc = crc32fast::Hasher::new();
        crc.update(head);
        crc.combine(&self.crc);

        // The length is modulo 2^32.
        let length = u64::try_from(head.len() + plain_length).unwrap_or_default();
        let [a, b, c, d, ..] = length.to_le_bytes();

        let mut back = BytesMut::with_capacity(8);
        back.put_u32_le(crc.finalize());
        back.put_slice(&[a, b, c, d]);
        back.freeze()
    }
}

/// The header of a member, and the head in a stored block that is not the last one. Further blocks
/// may follow, as it ends at a byte.
fn gzip_front(head: &[u8]) -> Option<Bytes> {
    let length = u16::try_from(head.len()).ok()?;

    let mut front = BytesMut::with_capacity(GZIP_HEADER.len() + 5 + head.len());
    front.put_slice(&GZIP_HEADER);
    front.put_u8(0);
    front.put_u16_le(length);
    front.put_u16_le(!length);
    front.put_slice(head);
    Some(front.freeze())
}

/// A frame with the head in a raw block.
fn zstd_front(head: &[u8]) -> Option<Bytes> {
    let length = u32::try_from(head.len()).ok()?;
    // The last block: bit 0; a raw one: bits 1 and 2 are zero.
    let block = length << 3 | 1;
    let [a, b, c, _] = block.to_le_bytes();

    let mut front = BytesMut::with_capacity(12 + head.len());
    front.put_u32_le(ZSTD_MAGIC);
    front.put_u8(ZSTD_DESCRIPTOR);
    front.put_u32_le(length);
    front.put_slice(&[a, b, c]);
    front.put_slice(head);
    Some(front.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Encoding; 2] = [Encoding::Gzip, Encoding::Zstd];

    fn headers(accepted: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for list in accepted {
            headers.append(GRPC_ACCEPT_ENCODING, HeaderValue::from_str(list).unwrap());
        }
        headers
    }

    fn whole(message: &CompressedMessage) -> Vec<u8> {
        [&message.front[..], &message.payload[..], &message.back[..]].concat()
    }

    #[test]
    fn the_client_chooses_among_the_enabled_encodings() {
        let best = |accepted: &[&str], enabled: &str| {
            Encoding::for_client(&headers(accepted), enabled.parse().unwrap())
        };
        assert_eq!(best(&["identity,gzip"], "gzip,zstd"), Some(Encoding::Gzip));
        assert_eq!(best(&["gzip, zstd"], "gzip,zstd"), Some(Encoding::Zstd));
        assert_eq!(best(&["gzip", "zstd"], "zstd"), Some(Encoding::Zstd));
        assert_eq!(best(&["zstd"], "gzip"), None);
        assert_eq!(best(&["identity,deflate,snappy"], "gzip,zstd"), None);
        assert_eq!(best(&["gzip,zstd"], "none"), None);
        assert_eq!(best(&[], "gzip,zstd"), None);
    }

    #[test]
    fn a_client_without_an_encoding_is_told_apart_from_one_with_an_unknown_one() {
        let of = |name: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_ENCODING, HeaderValue::from_bytes(name).unwrap());
            RequestEncoding::of_headers(&headers)
        };
        let none = RequestEncoding::of_headers(&HeaderMap::new());
        assert_eq!(none, RequestEncoding::Identity);
        assert_eq!(of(b"identity"), RequestEncoding::Identity);
        assert_eq!(of(b"gzip"), RequestEncoding::Known(Encoding::Gzip));
        assert_eq!(of(b"zstd"), RequestEncoding::Known(Encoding::Zstd));
        for unknown in [&b"snappy"[..], b"", b"\xff"] {
            assert_eq!(of(unknown), RequestEncoding::Unknown);
        }
    }

    #[test]
    fn a_list_with_an_unknown_encoding_is_an_error() {
        assert_eq!("zstd, gzip".parse(), Ok(Encodings::default()));
        assert_eq!("none".parse(), Ok(Encodings::NONE));
        for wrong in ["", "gzip,", "snappy", "none,gzip"] {
            let error = wrong.parse::<Encodings>().unwrap_err();
            assert!(error.to_string().contains("no encoding"), "{error}");
        }
    }

    #[test]
    fn one_payload_serves_messages_with_different_heads() {
        let payload: Vec<u8> = (0..200_000_u32)
            .flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 20).to_be_bytes())
            .collect();
        for encoding in BOTH {
            let compressed = encoding.compress(&payload).unwrap();
            assert!(compressed.len() < payload.len(), "{compressed:?}");

            for head in [&b""[..], b"nonce", &[7; 300], &[0; MAX_HEAD]] {
                let message = compressed.message(head, payload.len()).unwrap();
                let plain = encoding.decompress(&whole(&message), 1 << 20).unwrap();
                assert_eq!(plain.len(), head.len() + payload.len());
                assert!(plain.starts_with(head) && plain.ends_with(&payload));
            }
            let long = vec![0; MAX_HEAD + 1];
            assert!(compressed.message(&long, payload.len()).is_none());
        }
    }

    #[test]
    fn a_large_request_that_is_tiny_on_the_wire_is_an_error() {
        for encoding in BOTH {
            let zeros = vec![0; 4 << 20];
            let bomb = encoding.compress(&zeros).unwrap();
            let bomb = whole(&bomb.message(b"", zeros.len()).unwrap());
            let error = encoding.decompress(&bomb, 4 << 20).unwrap_err();
            assert!(matches!(error, DecompressError::TooLong(_)), "{error}");
        }
    }

    #[test]
    fn a_gzip_message_is_a_single_member_with_the_checksum_of_both_parts() {
        let compressed = Encoding::Gzip.compress(b"resources").unwrap();
        let mut bytes = whole(&compressed.message(b"head ", 9).unwrap());

        let mut single = String::new();
        let mut decoder = flate2::read::GzDecoder::new(&bytes[..]);
        decoder.read_to_string(&mut single).unwrap();
        assert_eq!(single, "head resources");

        *bytes.last_mut().unwrap() ^= 1;
        Encoding::Gzip.decompress(&bytes, 100).unwrap_err();
    }

    #[test]
    fn a_request_that_expands_beyond_the_limit_is_an_error() {
        for encoding in BOTH {
            let zeros = vec![0; FREE_BYTES];
            let bomb = encoding.compress(&zeros).unwrap();
            let bomb = whole(&bomb.message(b"", zeros.len()).unwrap());
            assert!(bomb.len() < zeros.len() / 50);
            let plain = encoding.decompress(&bomb, FREE_BYTES).unwrap();
            assert_eq!(plain.len(), FREE_BYTES);

            let error = encoding.decompress(&bomb, FREE_BYTES - 1).unwrap_err();
            assert!(matches!(error, DecompressError::TooLong(_)), "{error}");
            let error = encoding.decompress(&bomb[..bomb.len() / 2], 1 << 20);
            assert!(
                matches!(error, Err(DecompressError::Invalid(_))),
                "{error:?}"
            );
        }
    }
}

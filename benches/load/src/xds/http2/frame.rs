//! Encoding of HTTP/2 frames (RFC 9113), and of the few HPACK fields (RFC 7541) that open a call.

use super::Call;
use navarch_base::resource_version::{OMIT_VERSIONS, OMIT_VERSIONS_VALUE};

/// The maximum frame size: neither side raises the default.
pub(crate) const MAX_FRAME: usize = 16_384;
/// Size of a frame header.
pub(crate) const HEAD: usize = 9;
/// The first stream.
pub(crate) const STREAM: u32 = 1;
/// The default size of a flow-control window.
pub(crate) const DEFAULT_WINDOW: u32 = 65_535;
/// The window that the server gets; Envoy's default.
pub(crate) const WINDOW: u32 = 16 << 20;
/// The id of the setting SETTINGS_INITIAL_WINDOW_SIZE.
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// The flag ACK of SETTINGS and PING frames.
pub(crate) const ACK: u8 = 1;
/// The flag END_STREAM.
pub(crate) const END_STREAM: u8 = 1;
/// The flag END_HEADERS.
const END_HEADERS: u8 = 4;
/// The flag PADDED.
pub(crate) const PADDED: u8 = 8;

/// The connection preface of a client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The error code CANCEL.
const CANCEL: u32 = 8;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Data,
    Headers,
    /// RST_STREAM.
    Reset,
    Settings,
    Ping,
    /// GOAWAY.
    GoAway,
    WindowUpdate,
    /// Any other type.
    Other(u8),
}

impl Type {
    fn of(number: u8) -> Self {
        match number {
            0 => Self::Data,
            1 => Self::Headers,
            3 => Self::Reset,
            4 => Self::Settings,
            6 => Self::Ping,
            7 => Self::GoAway,
            8 => Self::WindowUpdate,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Headers => 1,
            Self::Reset => 3,
            Self::Settings => 4,
            Self::Ping => 6,
            Self::GoAway => 7,
            Self::WindowUpdate => 8,
            Self::Other(number) => number,
        }
    }
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Size of the payload.
    pub(crate) length: usize,
    pub(crate) kind: Type,
    pub(crate) flags: u8,
    /// The stream id; 0 is the connection.
    pub(crate) stream: u32,
}

impl Head {
    /// Parses a frame header.
    pub(crate) fn parse(bytes: [u8; HEAD]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        Self {
            length,
            kind: Type::of(kind),
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }
}

/// Appends a frame, whose payload is at most [`MAX_FRAME`] bytes long.
pub(crate) fn put(out: &mut Vec<u8>, kind: Type, flags: u8, stream: u32, payload: &[u8]) {
    let [_, length @ ..] = u32::try_from(payload.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes();
    out.reserve(HEAD + payload.len());
    out.extend_from_slice(&length);
    out.extend_from_slice(&[kind.number(), flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends a WINDOW_UPDATE for a stream or (0) the connection.
pub(crate) fn put_leave(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    put(out, Type::WindowUpdate, 0, stream, &bytes.to_be_bytes());
}

/// Appends the preface and settings.
pub(crate) fn put_opening(out: &mut Vec<u8>) {
    out.extend_from_slice(PREFACE);
    let mut settings = Vec::with_capacity(18);

    // Response headers are ignored, so the dynamic table has size 0; server push is disabled.
    for (setting, value) in [(1_u16, 0_u32), (2, 0), (INITIAL_WINDOW_SIZE, WINDOW)] {
        settings.extend_from_slice(&setting.to_be_bytes());
        settings.extend_from_slice(&value.to_be_bytes());
    }

    put(out, Type::Settings, 0, 0, &settings);
    put_leave(out, 0, WINDOW - DEFAULT_WINDOW);
}

/// Appends the headers of a call of a gRPC method on a new stream.
pub(crate) fn put_call(out: &mut Vec<u8>, call: &Call<'_>, stream: u32) {
    // The first two bytes are entries of HPACK's static table: `:method: POST` and `:scheme: http`.
    // The other fields use names from that table, except the last ones; all are literals that the
    // server does not index.
    let mut fields = vec![0x83, 0x86, 0x04];
    put_text(&mut fields, call.method);
    fields.push(0x01);
    put_text(&mut fields, &call.server.to_string());
    fields.extend_from_slice(&[0x0f, 0x10]);
    put_text(&mut fields, "application/grpc");

    fields.push(0x00);
    put_text(&mut fields, "te");
    put_text(&mut fields, "trailers");
    if let Some(encoding) = call.encoding {
        fields.push(0x00);
        put_text(&mut fields, "grpc-accept-encoding");
        put_text(&mut fields, encoding.name());
    }
    if call.omits_versions {
        fields.push(0x00);
        put_text(&mut fields, OMIT_VERSIONS);
        put_text(&mut fields, OMIT_VERSIONS_VALUE);
    }
    put(out, Type::Headers, END_HEADERS, stream, &fields);
}

/// Appends RST_STREAM for the first stream, and GOAWAY.
pub(crate) fn put_farewell(out: &mut Vec<u8>) {
    put(out, Type::Reset, 0, STREAM, &CANCEL.to_be_bytes());
    put(out, Type::GoAway, 0, 0, &[0; 8]);
}

/// Appends an HPACK string without Huffman coding.
fn put_text(out: &mut Vec<u8>, text: &str) {
    /// The largest value in the 7-bit prefix of an integer; larger ones continue in further bytes.
    const FIRST: usize = 127;
    let mut length = text.len();
    out.push(u8::try_from(length.min(FIRST)).unwrap_or(0x7f));
    if length >= FIRST {
        length -= FIRST;
        while length >= 128 {
            out.push(u8::try_from(length & 127).unwrap_or(0) | 128);
            length >>= 7;
        }
        out.push(u8::try_from(length).unwrap_or(0));
    }
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_header_survives_encoding_and_decoding() {
        let mut out = Vec::new();
        put(&mut out, Type::Data, END_STREAM, STREAM, b"hello");
        let head = Head::parse(out[..HEAD].try_into().unwrap());
        assert_eq!(
            head,
            Head {
                length: 5,
                kind: Type::Data,
                flags: END_STREAM,
                stream: STREAM
            }
        );
        assert_eq!(&out[HEAD..], b"hello");
        for number in 0..=255 {
            assert_eq!(Type::of(number).number(), number);
        }
    }

    #[test]
    fn long_strings_have_a_length_of_several_bytes() {
        let mut out = Vec::new();
        put_text(&mut out, &"x".repeat(126));
        assert_eq!((out[0], out.len()), (126, 127));
        out.clear();
        put_text(&mut out, &"x".repeat(127));
        assert_eq!((out[0], out[1], out.len()), (127, 0, 129));
        out.clear();
        // RFC 7541's own example of an integer (C.1.2), with a prefix of 7 bits instead of 5.
        put_text(&mut out, &"x".repeat(1337));
        assert_eq!((&out[..3], out.len()), (&[127, 0xba, 9][..], 1340));
    }
}

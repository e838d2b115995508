//! gRPC messages of discovery streams, split at any place: how the body is split into frames must
//! not matter.
//!
//! An input is the body of a call, in hexadecimal digits; other characters are ignored.

use bytes::Bytes;
use navarch::xds::{Protocol, read_pieces};

/// Maximum size of a request.
const LIMIT: usize = 1 << 16;
/// All encodings of compressed requests.
const ENCODINGS: [&str; 2] = ["gzip", "zstd"];

/// Decodes the requests of one stream, split into pieces of several sizes.
///
/// # Panics
/// If the split changes the result.
pub fn run(data: &[u8]) {
    let digits: Vec<u8> = data
        .iter()
        .filter_map(|sign| char::from(*sign).to_digit(16))
        .filter_map(|digit| u8::try_from(digit).ok())
        .collect();
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
        .collect();

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");

    for protocol in [Protocol::StateOfTheWorld, Protocol::Delta] {
        for encoding in ENCODINGS {
            let read = |pieces: Vec<Bytes>| {
                let (count, end) = runtime.block_on(read_pieces(protocol, encoding, pieces, LIMIT));
                let end = end.map_err(|status| (status.code(), status.message().to_owned()));
                (count, end)
            };
            let in_pieces =
                |size: usize| read(bytes.chunks(size).map(Bytes::copy_from_slice).collect());

            let whole = in_pieces(bytes.len().max(1));
            for size in [1, 2, 3, 5, 7, 64] {
                assert_eq!(in_pieces(size), whole, "in pieces of {size} bytes");
            }

            for end in 0..bytes.len().min(64) {
                let prefix = bytes.get(..end).unwrap_or_default();
                let (count, _) = read(vec![Bytes::copy_from_slice(prefix)]);
                assert!(
                    count <= whole.0,
                    "a prefix has more messages than the whole"
                );
            }
        }
    }
}

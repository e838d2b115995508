//! gRPC messages of discovery streams, split at any place: how the body is split into frames must
//! not matter.
//!
//! An input is the body of a call, in hexadecimal digits; other characters are ignored.

use bytes::Bytes;
use navarch::xds::{Protocol, read_pieces};

/// Maximum size of a request.
const LIMIT: usize = 1 << 16;

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
        let read = |size: usize| {
            let pieces = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
            let (count, end) = runtime.block_on(read_pieces(protocol, pieces, LIMIT));
            (
                count,
                end.map_err(|status| (status.code(), status.message().to_owned())),
            )
        };

        let whole = read(bytes.len().max(1));
        for size in [1, 2, 3, 5, 7, 64] {
            assert_eq!(read(size), whole, "in pieces of {size} bytes");
        }

        for end in 0..bytes.len().min(64) {
            let pieces = vec![Bytes::copy_from_slice(bytes.get(..end).unwrap_or_default())];
            let (count, _) = runtime.block_on(read_pieces(protocol, pieces, LIMIT));
            assert!(
                count <= whole.0,
                "a prefix has more messages than the whole"
            );
        }
    }
}

//! Names with the same hash for hashers without a key.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a hash folds its upper half onto its lower; the truncation has the length of the constants"
)]

/// Seed and factor of rustc-hash.
const SEED: u64 = 0x243f_6a88_85a3_08d3;
const FACTOR: u64 = 0xa409_3822_299f_31d0;

/// rustc-hash's intermediate value for the first 16 bytes of a text.
fn folded(first: &[u8; 16]) -> u64 {
    let half = |at: usize| u64::from_le_bytes(first[at..at + 8].try_into().unwrap());
    let product = u128::from(SEED ^ half(0)) * u128::from(FACTOR ^ half(8));
    (product as u64) ^ (product >> 64) as u64
}

/// Names of clusters with the same hash in rustc-hash: eight bytes cancel the intermediate value of
/// the prefix, so that the number at the end is multiplied by zero.
#[must_use]
pub fn colliding_names(count: u32) -> Vec<String> {
    let letters = || (b'a'..=b'z').chain(b'A'..=b'Z').chain(b'0'..=b'9');
    let mut firsts =
        letters().flat_map(|a| letters().flat_map(move |b| letters().map(move |c| [a, b, c])));
    let is_printable = |result: &u64| {
        result
            .to_le_bytes()
            .iter()
            .all(|byte| (0x21..0x7f).contains(byte))
    };

    let (first, result) = firsts
        .find_map(|end| {
            let first: [u8; 16] = [b"outbound|80||".as_slice(), &end]
                .concat()
                .try_into()
                .unwrap();
            Some((first, folded(&first))).filter(|(_, result)| is_printable(result))
        })
        .unwrap();

    let head = [&first[..], &[b'a'; 16], &result.to_le_bytes()].concat();
    let head = String::from_utf8(head).unwrap();
    (0..count)
        .map(|number| format!("{head}{number:08x}svc.cluster.local"))
        .collect()
}

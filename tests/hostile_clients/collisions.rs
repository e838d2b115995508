//! Names with the same hash in rustc-hash 2, whose hash has no key.

/// The constants of its string hash.
const SEED: u64 = 0x243f_6a88_85a3_08d3;
const PREVENT_TRIVIAL: u64 = 0xa409_3822_299f_31d0;

/// Folds the 128-bit product of two numbers.
fn folded(one: u64, other: u64) -> u64 {
    let full = u128::from(one) * u128::from(other);
    let [low, high] =
        [full, full >> 64].map(|half| u64::try_from(half & u128::from(u64::MAX)).unwrap());
    low ^ high
}

/// The first 16 bytes of all names, and 8 bytes that cancel their effect on the hash's state.
fn head() -> ([u8; 16], [u8; 8]) {
    let alphabet = b"abcdefghijklmnopqrstuvwxyz0123456789|.-_";
    for number in 0..alphabet.len().pow(3) {
        let letter = |power: u32| alphabet[number / alphabet.len().pow(power) % alphabet.len()];
        let mut first = *b"outbound|80||...";
        first[13..].copy_from_slice(&[letter(0), letter(1), letter(2)]);
        let half = |at: usize| u64::from_le_bytes(first[at..at + 8].try_into().unwrap());
        let cancel = folded(SEED ^ half(0), PREVENT_TRIVIAL ^ half(8)).to_le_bytes();
        if cancel.iter().all(|byte| (0x21..0x7f).contains(byte)) {
            return (first, cancel);
        }
    }
    panic!("no prefix gives printable bytes");
}

/// So many names with the same hash.
pub(crate) fn names(count: usize) -> Vec<String> {
    let (first, cancel) = head();
    let name = |number: usize| {
        let number = format!("{number:08x}");
        [
            &first,
            &b"aaaaaaaaaaaaaaaa"[..],
            &cancel,
            number.as_bytes(),
            b".svc.cluster.local"[1..].as_ref(),
        ]
        .concat()
    };
    (0..count)
        .map(|number| String::from_utf8(name(number)).unwrap())
        .collect()
}

#[test]
fn the_names_collide() {
    use std::collections::HashSet;
    use std::hash::BuildHasher as _;
    let names = names(100);
    let hashes: HashSet<u64> = names
        .iter()
        .map(|name| rustc_hash::FxBuildHasher.hash_one(name))
        .collect();
    assert_eq!(
        (names.iter().collect::<HashSet<_>>().len(), hashes.len()),
        (100, 1),
        "{}",
        names[0]
    );
}

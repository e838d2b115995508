//! Random numbers, from the same source as keys.

use navarch_net::cryptography;

/// Random bytes; zeros if the system has no random source, and therefore cannot make keys either.
#[must_use]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0_u8; N];
    // Only used for jitter and message ids; keys are generated elsewhere, and fail with an error.
    let _ = cryptography::provider().secure_random.fill(&mut bytes);
    bytes
}

/// A number from 0 up to but excluding 1.
#[must_use]
pub fn unit() -> f64 {
    f64::from(u32::from_be_bytes(bytes())) / (f64::from(u32::MAX) + 1.0)
}

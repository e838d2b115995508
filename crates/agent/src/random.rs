//! Randomness, from the same source as keys.

use rustls::crypto::aws_lc_rs;

/// Random bytes. Zeros where the system has none, which then has no keys either.
#[must_use]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0_u8; N];
    // Jitter and message ids are all that is made of them; keys are made elsewhere and fail aloud.
    let _ = aws_lc_rs::default_provider().secure_random.fill(&mut bytes);
    bytes
}

/// A number between 0 and 1, 1 excepted.
#[must_use]
pub fn unit() -> f64 {
    f64::from(u32::from_be_bytes(bytes())) / (f64::from(u32::MAX) + 1.0)
}

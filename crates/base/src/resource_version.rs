//! The versions of resources: digests of their bodies. Control plane and agent agree on them, so that
//! either can compute them.
//!
//! A sidecar in a mesh of 1,000 services has 2,000 resources. Their versions are nearly half of what
//! it receives compressed, because digests do not compress. An agent asks for responses without them
//! ([`OMIT_VERSIONS`]) and adds them for Envoy, which reports its versions after a reconnect.

use std::fmt;

use sha2::{Digest, Sha256};

/// The header with which a client of the delta protocol asks for resources without versions, and
/// with which a server confirms that it omits them. Its value is [`OMIT_VERSIONS_VALUE`]. Servers
/// that do not know it send versions.
pub const OMIT_VERSIONS: &str = "navarch-omit-versions";
/// The value of [`OMIT_VERSIONS`]; others are ignored.
pub const OMIT_VERSIONS_VALUE: &str = "true";

/// Size in bytes of the hexadecimal form of a [`Version`].
pub const VERSION_TEXT_BYTES: usize = 32;

/// The first 128 bits of the SHA-256 of a resource's body: equal content has an equal version, also
/// after a restart and on every replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version([u8; 16]);

impl Version {
    /// The first half of the SHA-256 of `body`.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        let digest = Sha256::digest(body);
        let mut first = [0; 16];
        for (to, from) in first.iter_mut().zip(digest) {
            *to = from;
        }
        Self(first)
    }

    /// The bytes: the first 128 bits of a hash.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Parses the hexadecimal form. A reconnecting ztunnel sends tens of thousands of versions.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 16 || !rest.is_empty() {
            return None;
        }
        let digit = |byte: u8| {
            DIGITS
                .get(usize::from(byte))
                .copied()
                .filter(|digit| *digit < 16)
        };
        let mut bytes = [0; 16];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(bytes))
    }
}

/// The value of each byte as a hexadecimal digit; 16 or more if it is not one. Digits of hashes are
/// unpredictable, so a branch per digit would be mispredicted often.
const DIGITS: [u8; 256] = {
    const fn value(byte: u8) -> u8 {
        match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => u8::MAX,
        }
    }
    let mut digits = [0; 256];
    let mut rest: &mut [u8] = &mut digits;
    let mut byte: u8 = 0;
    while let Some((digit, others)) = rest.split_first_mut() {
        *digit = value(byte);
        byte = byte.wrapping_add(1);
        rest = others;
    }
    digits
};

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_is_written() {
        let version = Version::of(b"abc");
        assert_eq!(version.to_string(), "ba7816bf8f01cfea414140de5dae2223");
        assert_eq!(Version::parse(&version.to_string()), Some(version));
        assert_eq!(Version::parse("ba7816bf"), None);
        assert_eq!(Version::parse(&"x".repeat(32)), None);
    }
}

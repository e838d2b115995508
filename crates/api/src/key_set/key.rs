//! One key of a set.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1,
    EcdsaVerificationAlgorithm, ParsedPublicKey,
};
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

/// The members that Envoy reads.
const MEMBERS: [&str; 9] = ["kty", "kid", "alg", "crv", "n", "e", "x", "y", "k"];

/// Sizes of RSA moduli that BoringSSL accepts, in bits.
const MODULUS_BITS: std::ops::RangeInclusive<usize> = 512..=16384;

/// Length of a public key of Ed25519 in bytes.
const ED25519_BYTES: usize = 32;

/// base64url in which bits beyond the last byte are ignored, as by Abseil.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// A curve for signatures.
struct Curve {
    /// Bytes of a coordinate.
    bytes: usize,
    algorithm: &'static EcdsaVerificationAlgorithm,
}

/// Why Envoy cannot use a key, if so.
pub(super) fn check(key: &Value) -> Result<(), &'static str> {
    let key = key.as_object().ok_or("is not an object")?;
    let kind = text(key, "kty", "has no \"kty\"")?;
    // Envoy ignores an algorithm that is not text.
    let algorithm = key.get("alg").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "RSA" => rsa(key, algorithm),
        "EC" => elliptic(key, algorithm),
        "OKP" => edwards(key, algorithm),
        "oct" => symmetric(key, algorithm),
        _ => Err("is of a type that Envoy does not know"),
    }
}

/// The members of a key that Envoy reads.
pub(super) fn essence(key: &Value) -> Value {
    let members = key.as_object().into_iter().flatten();
    members
        .filter(|(name, value)| MEMBERS.contains(&name.as_str()) && value.is_string())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// A member that must be text.
fn text<'a>(
    key: &'a Map<String, Value>,
    name: &str,
    missing: &'static str,
) -> Result<&'a str, &'static str> {
    key.get(name).and_then(Value::as_str).ok_or(missing)
}

/// Checks an RSA key.
fn rsa(key: &Map<String, Value>, algorithm: &str) -> Result<(), &'static str> {
    if !(algorithm.is_empty() || algorithm.starts_with("RS") || algorithm.starts_with("PS")) {
        return Err("has an \"alg\" that is not for RSA");
    }
    let modulus = number(text(key, "n", "has no \"n\"")?).ok_or("has an invalid \"n\"")?;
    let exponent = number(text(key, "e", "has no \"e\"")?).ok_or("has an invalid \"e\"")?;

    if !matches!(exponent.as_slice(), [3] | [1, 0, 1]) {
        return Err("has an \"e\" other than 3 and 65537");
    }
    let unused_bits = modulus
        .first()
        .map_or(0, |byte| byte.leading_zeros() as usize);
    if !MODULUS_BITS.contains(&(modulus.len() * 8 - unused_bits)) {
        return Err("has an \"n\" of a size that Envoy does not accept");
    }
    if modulus.last().is_none_or(|byte| byte % 2 == 0) {
        return Err("has an even \"n\"");
    }
    Ok(())
}

/// Checks a key on an elliptic curve.
fn elliptic(key: &Map<String, Value>, algorithm: &str) -> Result<(), &'static str> {
    if !(algorithm.is_empty() || algorithm.starts_with("ES")) {
        return Err("has an \"alg\" that is not for elliptic curves");
    }
    let name = match key.get("crv") {
        None => "",
        Some(name) => name.as_str().ok_or("has an invalid \"crv\"")?,
    };

    let curve = match (algorithm, name) {
        ("", "") | ("ES256" | "", "P-256") | ("ES256", "") => Curve {
            bytes: 32,
            algorithm: &ECDSA_P256_SHA256_ASN1,
        },
        ("ES384" | "", "P-384") | ("ES384", "") => Curve {
            bytes: 48,
            algorithm: &ECDSA_P384_SHA384_ASN1,
        },
        ("ES512" | "", "P-521") | ("ES512", "") => Curve {
            bytes: 66,
            algorithm: &ECDSA_P521_SHA512_ASN1,
        },
        _ => return Err("has a \"crv\" that Envoy does not know, or that is not that of \"alg\""),
    };

    let x = number(text(key, "x", "has no \"x\"")?).ok_or("has an invalid \"x\"")?;
    let y = number(text(key, "y", "has no \"y\"")?).ok_or("has an invalid \"y\"")?;
    let point = curve.point([&x, &y]).ok_or("has too long coordinates")?;
    match ParsedPublicKey::new(curve.algorithm, point) {
        Ok(_) => Ok(()),
        Err(_) => Err("is not a point of its curve"),
    }
}

impl Curve {
    /// An uncompressed point.
    fn point(&self, coordinates: [&[u8]; 2]) -> Option<Vec<u8>> {
        let mut point = vec![4];
        for coordinate in coordinates {
            let missing = self.bytes.checked_sub(coordinate.len())?;
            point.extend(std::iter::repeat_n(0, missing));
            point.extend(coordinate);
        }
        Some(point)
    }
}

/// Checks a key of an Edwards curve. Any bytes of the right length are one to Envoy.
fn edwards(key: &Map<String, Value>, algorithm: &str) -> Result<(), &'static str> {
    if !matches!(algorithm, "" | "EdDSA") {
        return Err("has an \"alg\" other than EdDSA");
    }
    if text(key, "crv", "has no \"crv\"")? != "Ed25519" {
        return Err("has a \"crv\" other than Ed25519");
    }
    let x = decode(text(key, "x", "has no \"x\"")?).ok_or("has an invalid \"x\"")?;
    if x.len() != ED25519_BYTES {
        return Err("has an \"x\" of another length than 32 bytes");
    }
    Ok(())
}

/// Checks a shared key.
fn symmetric(key: &Map<String, Value>, algorithm: &str) -> Result<(), &'static str> {
    if !matches!(algorithm, "" | "HS256" | "HS384" | "HS512") {
        return Err("has an \"alg\" that is not for shared keys");
    }
    match decode(text(key, "k", "has no \"k\"")?) {
        Some(bytes) if !bytes.is_empty() => Ok(()),
        Some(_) | None => Err("has an invalid \"k\""),
    }
}

/// A number without leading zeros.
fn number(text: &str) -> Option<Vec<u8>> {
    let mut bytes = decode(text)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.drain(..zeros);
    Some(bytes)
}

/// Decodes base64url as Abseil does: white space is skipped, padding may be missing but not be
/// incomplete, and may be dots.
fn decode(text: &str) -> Option<Vec<u8>> {
    let text: String = text
        .chars()
        .filter(|character| !(character.is_ascii_whitespace() || *character == '\u{b}'))
        .collect();
    let digits = text.trim_end_matches(['=', '.']);
    let is_padded = digits.len() < text.len();
    if is_padded && (!text.len().is_multiple_of(4) || text.len() - digits.len() > 2) {
        return None;
    }
    LENIENT.decode(digits).ok()
}

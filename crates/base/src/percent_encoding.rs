//! Percent-encoding, as in URLs.

/// The bytes that a text stands for; `None` if a percent sign precedes no two hexadecimal digits. A
/// plus sign stands for itself.
#[must_use]
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();

    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }

        let (digits, after) = rest.split_at_checked(2)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }

    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_decoded_and_invalid_escapes_rejected() {
        assert_eq!(decoded("a%3A%ff+b").unwrap(), b"a:\xff+b");
        for text in ["%", "%4", "%zz", "%+1"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }
}

//! `application/x-www-form-urlencoded`.

/// Maximum number of parameters. RFC 8693 has nine; two of them can be repeated.
const MAX_PARAMETERS: usize = 32;

/// The parameters of a form, in order; `None` if it is invalid or has too many.
pub(super) fn parse(body: &[u8]) -> Option<Vec<(String, String)>> {
    let text = std::str::from_utf8(body).ok()?;
    let parameters: Vec<_> = text
        .split('&')
        .filter(|part| !part.is_empty())
        .take(MAX_PARAMETERS + 1)
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(name, value)| Some((decode(name)?, decode(value)?)))
        .collect::<Option<_>>()?;
    (parameters.len() <= MAX_PARAMETERS).then_some(parameters)
}

/// A form with these parameters.
pub(super) fn encode<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let parts = parameters
        .into_iter()
        .map(|(name, value)| format!("{}={}", encode_text(name), encode_text(value)));
    parts.collect::<Vec<_>>().join("&")
}

/// A text as part of a form.
pub(super) fn encode_text(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

/// The text of a part; `None` if it is not UTF-8 or an escape is incomplete.
fn decode(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();

    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => 16 * digit(rest.next()?)? + digit(rest.next()?)?,
            other => other,
        });
    }

    String::from_utf8(bytes).ok()
}

/// The value of a hexadecimal digit.
fn digit(byte: u8) -> Option<u8> {
    u8::try_from(char::from(byte).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_decoded_to_what_was_encoded() {
        let parameters = [("scope", "a b"), ("audience", "https://x/?y=1&z=%ü+")];
        let form = encode(parameters);
        assert_eq!(
            form,
            "scope=a%20b&audience=https%3A%2F%2Fx%2F%3Fy%3D1%26z%3D%25%C3%BC%2B"
        );

        let owned = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parse(form.as_bytes()).unwrap(), owned);
        assert_eq!(
            parse(b"a=b+c&&d").unwrap(),
            [("a", "b c"), ("d", "")].map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn an_invalid_or_long_form_is_rejected() {
        for form in ["a=%", "a=%4", "a=%zz", "a=%FF"] {
            assert_eq!(parse(form.as_bytes()), None, "{form}");
        }
        assert_eq!(parse(b"a=\xff"), None);
        assert!(parse("a=b&".repeat(MAX_PARAMETERS).as_bytes()).is_some());
        assert_eq!(parse("a=b&".repeat(MAX_PARAMETERS + 1).as_bytes()), None);
    }
}

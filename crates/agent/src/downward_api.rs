//! Parses the files with a pod's labels and annotations, and similar small texts.

use std::collections::BTreeMap;

pub use navarch_bootstrap::host_and_port;

/// Where the injector mounts `metadata.labels` of the pod, relative to the agent's working
/// directory.
pub const LABELS_FILE: &str = "./etc/istio/pod/labels";
/// Where the injector mounts `metadata.annotations` of the pod, relative to the agent's working
/// directory.
pub const ANNOTATIONS_FILE: &str = "./etc/istio/pod/annotations";

/// Parses lines of `key="quoted value"`; lines without a `=` are ignored. `None` if a value is
/// badly quoted.
#[must_use]
pub fn parse(text: &str) -> Option<BTreeMap<String, String>> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(key, value)| Some((key.to_owned(), unquote(value.trim_end_matches('\r'))?)))
        .collect()
}

/// The text within double quotes, as written by Go's `%q`.
fn unquote(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut signs = inner.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '"' => return None,
            '\\' => unescape(&mut signs, &mut bytes)?,
            _ => push(sign, &mut bytes),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the characters after a backslash.
fn unescape(signs: &mut std::str::Chars<'_>, bytes: &mut Vec<u8>) -> Option<()> {
    match signs.next()? {
        'n' => bytes.push(b'\n'),
        't' => bytes.push(b'\t'),
        'r' => bytes.push(b'\r'),
        'a' => bytes.push(7),
        'b' => bytes.push(8),
        'f' => bytes.push(12),
        'v' => bytes.push(11),
        'x' => bytes.push(u8::try_from(hex(signs, 2)?).ok()?),
        'u' => push(char::from_u32(hex(signs, 4)?)?, bytes),
        'U' => push(char::from_u32(hex(signs, 8)?)?, bytes),
        sign @ ('\\' | '"') => push(sign, bytes),
        _ => return None,
    }
    Some(())
}

/// Parses exactly this many hexadecimal digits.
fn hex(signs: &mut std::str::Chars<'_>, digits: u32) -> Option<u32> {
    (0..digits).try_fold(0_u32, |number, _| {
        Some((number << 4) | signs.next()?.to_digit(16)?)
    })
}

/// Appends a character in UTF-8.
fn push(sign: char, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(sign.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Whether a text is `host:port` with a host and a valid port.
pub(super) fn is_host_and_port(address: &str) -> bool {
    host_and_port(address).is_some_and(|(host, port)| !host.is_empty() && port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_unquoted_as_go_quotes_them() {
        let read = parse("a=\"b=c\"\nempty=\"\"\nno line\nx=\"\\\"q\\\" \\n\\u00e4\\xc3\\xa4\"\n")
            .unwrap();
        assert_eq!(read["a"], "b=c");
        assert_eq!(read["empty"], "");
        assert_eq!(read["x"], "\"q\" \n\u{e4}\u{e4}");
        assert_eq!(parse("a=b"), None);
        assert_eq!(parse("a=\"\\z\""), None);
    }
}

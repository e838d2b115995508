//! The forms that values of variables have.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use navarch_base::percent_encoding;

/// The most that any number may be.
const MAX: u64 = 1 << 31;

/// A time in milliseconds, above 0.
pub(super) fn milliseconds(text: &str) -> Result<Duration, &'static str> {
    let number = text.parse().ok().filter(|number| (1..MAX).contains(number));
    number
        .map(Duration::from_millis)
        .ok_or("it must be a positive number of milliseconds; using the default")
}

/// A number above 0. None is so large that the memory for as many spans could not be counted.
pub(super) fn number(text: &str) -> Result<usize, &'static str> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=1 << 20).contains(number));
    number.ok_or("it must be a whole number between 1 and 1048576; using the default")
}

/// `KEY=VALUE` with commas between, values percent-encoded; and how many parts are not of that
/// form.
pub(super) fn pairs(text: &str) -> (BTreeMap<String, String>, usize) {
    let mut read = BTreeMap::new();
    let mut wrong = 0;
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let pair = part
            .split_once('=')
            .map(|(key, value)| (key.trim(), decoded(value.trim())));
        match pair {
            Some((key, Some(value))) if !key.is_empty() => _ = read.insert(key.to_owned(), value),
            Some(_) | None => wrong += 1,
        }
    }
    (read, wrong)
}

/// The same as headers; what gRPC or HTTP set themselves is wrong here.
pub(super) fn header_list(text: &str) -> (Vec<(HeaderName, HeaderValue)>, usize) {
    let (pairs, mut wrong) = pairs(text);
    let mut headers = Vec::new();

    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes()).ok();
        let name = name
            .filter(|name| !name.as_str().ends_with("-bin") && !name.as_str().starts_with("grpc-"));
        let own = [
            "connection",
            "content-encoding",
            "content-length",
            "content-type",
            "host",
            "te",
            "transfer-encoding",
        ];

        let name = name.filter(|name| !own.contains(&name.as_str()));
        match name.zip(HeaderValue::from_str(&value).ok()) {
            Some((name, mut value)) => {
                value.set_sensitive(true);
                headers.push((name, value));
            }
            None => wrong += 1,
        }
    }

    (headers, wrong)
}

/// A text without its percent-encoding.
fn decoded(text: &str) -> Option<String> {
    String::from_utf8(percent_encoding::decoded(text)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_percent_encoded_and_wrong_parts_are_counted() {
        let (read, wrong) = pairs("a=1, b = x%2Cy=z%20 ,,c,=d,e=%zz,f=%4,g=%+1");
        let expected =
            [("a", "1"), ("b", "x,y=z ")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!((read, wrong), (expected.into(), 5));
    }

    #[test]
    fn a_header_has_a_name_of_its_own() {
        let (headers, wrong) =
            header_list("Authorization=Bearer%20x,host=a,x-bin=1,a b=c,x=a%0Ab,grpc-timeout=1");
        assert_eq!(
            headers,
            [(
                HeaderName::from_static("authorization"),
                HeaderValue::from_static("Bearer x")
            )]
        );
        assert!(headers.iter().all(|(_, value)| value.is_sensitive()));
        assert_eq!(wrong, 5);
    }
}

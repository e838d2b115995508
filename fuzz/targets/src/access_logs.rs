//! Access logs that Envoy streams to the agent, with the headers, baggage and identities that peers
//! put into them.
//!
//! Each line of an input is a message of the stream in hexadecimal digits; other characters are
//! ignored.

use navarch::agent::mesh_metrics::exposition_after;

/// Feeds one stream to the metrics.
///
/// # Panics
/// If the exposition is not valid, or an undecodable message removes metrics of earlier messages.
pub fn run(data: &[u8]) {
    let messages: Vec<Vec<u8>> = data.split(|byte| *byte == b'\n').map(bytes).collect();
    let (text, _) = exposition_after(&messages);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(is_readable(line), "{line}");
    }
    assert!(text.ends_with('\n'));
    let mut more = messages.clone();
    more.push(vec![0xff]);
    assert_eq!(exposition_after(&more), (text, false));
}

/// The bytes of a hexadecimal line.
fn bytes(line: &[u8]) -> Vec<u8> {
    let digits = line
        .iter()
        .filter_map(|sign| char::from(*sign).to_digit(16));
    let digits: Vec<u8> = digits
        .filter_map(|digit| u8::try_from(digit).ok())
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
        .collect()
}

/// Whether a line is `name{label="value",...} number`, with each label once.
fn is_readable(line: &str) -> bool {
    let Some((series, number)) = line.rsplit_once(' ') else {
        return false;
    };

    let (name, mut rest) = series
        .split_once('{')
        .map_or((series, "}"), |(name, rest)| (name, rest));
    let mut labels = Vec::new();

    while let Some((label, value)) = rest.split_once("=\"") {
        let mut is_escaped = false;
        let end = value.bytes().position(|byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        let Some((_, after)) = end.and_then(|end| value.split_at_checked(end + 1)) else {
            return false;
        };
        labels.push(label);
        rest = after.strip_prefix(',').unwrap_or(after);
    }

    let count = labels.len();
    labels.sort_unstable();
    labels.dedup();
    let is_name = |name: &&str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && name
                .bytes()
                .next()
                .is_some_and(|byte| !byte.is_ascii_digit())
    };

    rest == "}"
        && is_name(&name)
        && labels.iter().all(is_name)
        && labels.len() == count
        && number.parse::<u64>().is_ok()
}

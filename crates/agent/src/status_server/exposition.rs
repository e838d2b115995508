//! Formats of merged metrics: which formats are requested, given those that the client accepts and
//! that can be concatenated, and how they are concatenated.

use bytes::Bytes;

/// Prometheus' text format, which all targets support.
const TEXT: &str = "text/plain;version=0.0.4";

/// Formats of applications: their metrics are last, so an end marker ends the whole response.
pub const OF_APPLICATIONS: &[&str] = &["text/*", "text/plain", "application/openmetrics-text"];
/// Formats of Envoy: other metrics follow, so an end marker is not allowed.
pub const OF_ENVOY: &[&str] = &["text/*", "text/plain"];

/// The `Accept` header of the request to a target: the allowed formats of the client's `accept`, in
/// its order.
#[must_use]
pub fn accepted(accept: &str, allowed: &[&str]) -> String {
    let mut formats: Vec<String> = Vec::new();

    for part in accept.split(',') {
        let mut parts = part.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<_> = parts
            .filter(|parameter| !parameter.starts_with("q=") && !parameter.is_empty())
            .collect();
        let format = match kind.as_str() {
            "*/*" | "*" => TEXT.to_owned(),
            "application/*" if allowed.contains(&"application/openmetrics-text") => {
                "application/openmetrics-text;version=0.0.1".to_owned()
            }
            kind if allowed.contains(&kind) => [&[kind][..], &parameters].concat().join(";"),
            _ => continue,
        };

        if !formats.contains(&format) {
            formats.push(format);
        }
    }

    if formats.is_empty() {
        return TEXT.to_owned();
    }

    let count = formats.len();
    let weighed = formats
        .iter()
        .enumerate()
        .map(|(place, format)| format!("{format};q=0.{}", (count - place).min(9)));

    weighed.collect::<Vec<_>>().join(",")
}

/// The content type of the response for an application's `content_type`.
#[must_use]
pub fn announced(content_type: &str) -> &'static str {
    let mut parts = content_type.split(';').map(str::trim);
    let open_metrics = parts
        .next()
        .is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
    let version = parts.find_map(|parameter| parameter.strip_prefix("version="));
    match (open_metrics, version) {
        (true, Some("1.0.0")) => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        (true, None | Some("0.0.1" | "")) => {
            "application/openmetrics-text; version=0.0.1; charset=utf-8"
        }
        _ => PLAIN,
    }
}

/// The end marker of OpenMetrics.
const END: &[u8] = b"# EOF";

/// Metrics without an end marker, ending with a newline, so that others can follow.
#[must_use]
pub fn whole_lines(body: &Bytes) -> Bytes {
    let trimmed = body.trim_ascii_end();
    let lines = trimmed.strip_suffix(END).unwrap_or(body);
    if lines.is_empty() || lines.ends_with(b"\n") {
        return body.slice(..lines.len());
    }
    [lines, b"\n"].concat().into()
}

/// The type of Prometheus' text format.
pub const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
        text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

    #[test]
    fn unmergeable_formats_are_not_requested() {
        assert_eq!(
            accepted(PROMETHEUS, OF_APPLICATIONS),
            "application/openmetrics-text;version=1.0.0;q=0.3,application/openmetrics-text;version=0.0.1;q=0.2,text/plain;version=0.0.4;q=0.1"
        );
        assert_eq!(
            accepted(PROMETHEUS, OF_ENVOY),
            "text/plain;version=0.0.4;q=0.1"
        );
        assert_eq!(
            accepted("application/vnd.google.protobuf", OF_APPLICATIONS),
            TEXT
        );
        assert_eq!(accepted("", OF_ENVOY), TEXT);
    }

    #[test]
    fn unknown_versions_are_announced_as_text() {
        assert!(announced("application/openmetrics-text; version=1.0.0").contains("version=1.0.0"));
        assert!(announced("application/openmetrics-text").contains("version=0.0.1"));
        assert_eq!(
            announced("application/openmetrics-text; version=2.0"),
            PLAIN
        );
        assert_eq!(announced("text/html"), PLAIN);
    }
}

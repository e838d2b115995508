//! The Istio version in a proxy's metadata.

use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// Whether the proxy is of this version (major, minor, patch) or newer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AtLeast([u32; 3]);

impl Query for AtLeast {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        parse(&view.proxy().meta("ISTIO_VERSION").unwrap_or_default())
            .is_none_or(|version| version >= self.0)
    }
}

impl ProxyQuery for AtLeast {}

/// Whether the proxy has this version or a newer one. A proxy without a version counts as the
/// newest.
#[must_use]
pub fn at_least(view: &View<'_>, major: u32, minor: u32) -> bool {
    *view.derived(&AtLeast([major, minor, 0]))
}

/// As [`at_least`], including the patch version.
#[must_use]
pub fn at_least_patch(view: &View<'_>, version: [u32; 3]) -> bool {
    *view.derived(&AtLeast(version))
}

/// Parses `1.32`, `1.32.1`, `release-1.32-20260801…`; a missing patch counts as the newest. `None`
/// for anything else.
fn parse(text: &str) -> Option<[u32; 3]> {
    let mut parts = text.strip_prefix("release-").unwrap_or(text).splitn(3, '.');
    let digits = |part: &str| {
        let end = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        part.get(..end)
            .and_then(|digits| digits.parse::<u32>().ok())
    };
    let major = parts.next()?.parse().ok().filter(|major| *major > 0)?;
    let minor = digits(parts.next()?)?;
    let patch = parts.next().and_then(digits).unwrap_or(u32::from(u16::MAX));
    Some([major, minor, patch])
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn incomplete_versions_are_parsed() {
        assert_eq!(parse("1.29.2"), Some([1, 29, 2]));
        assert_eq!(parse("1.29.2-alpha.1"), Some([1, 29, 2]));
        assert_eq!(parse("release-1.29-20260801"), Some([1, 29, 65535]));
        assert_eq!(parse("1.29"), Some([1, 29, 65535]));
        assert_eq!(parse("unknown"), None);
        assert_eq!(parse(""), None);
    }
}

//! Patterns in which `*` matches anything.

/// Whether a text fits a pattern.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some((_, after)) = text.split_once(part) else {
            return false;
        };
        text = after;
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, text) in [
            ("*", ""),
            ("a", "a"),
            ("Pod *", "Pod a/b"),
            ("*a*b*", "xaxbx"),
            ("a*a", "aa"),
            ("a**b", "ab"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }

        for (pattern, text) in [
            ("a", "b"),
            ("Pod *", "Service a"),
            ("a*a", "a"),
            ("*ab*c", "abd"),
            ("", "a"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}

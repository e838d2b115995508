//! Quoting of texts in regular expressions.

/// A regular expression that matches exactly this text, by the rules of Go's `regexp.QuoteMeta`.
#[must_use]
pub(crate) fn quote_meta(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}

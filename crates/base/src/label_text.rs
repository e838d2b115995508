//! Values of labels of metrics.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

use crate::printable::escape;

/// A label value that is not a constant of the program, such as the name of a file.
///
/// The library escapes what the format of the page needs (quotes, backslashes, line breaks). Other
/// unprintable characters would reach the terminal of whoever looks at the page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelText(Arc<str>);

impl LabelText {
    /// The text, not escaped.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Arc<str>> for LabelText {
    fn from(text: Arc<str>) -> Self {
        Self(text)
    }
}

impl From<&str> for LabelText {
    fn from(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl From<String> for LabelText {
    fn from(text: String) -> Self {
        Self(Arc::from(text))
    }
}

impl EncodeLabelValue for LabelText {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(&escape(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::EncodeLabelSet;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::registry::Registry;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct Labels {
        name: LabelText,
    }

    fn page(name: &str) -> String {
        let gauges = Family::<Labels, Gauge>::default();
        let labels = Labels { name: name.into() };
        gauges.get_or_create(&labels).set(1);
        let mut registry = Registry::default();
        registry.register("some", "Some", gauges);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn a_label_value_adds_no_metric_and_moves_no_cursor() {
        let text = page("a\"} 1\nforged 7\n\u{1b}[2J\\\u{202e}");
        let expected = r#"some{name="a\"} 1\\nforged 7\\n\\u{1b}[2J\\\\u{202e}"} 1"#;
        assert!(text.lines().any(|line| line == expected), "{text}");
    }

    #[test]
    fn an_ordinary_label_value_stays_as_it_is() {
        assert!(page("config/grün.yaml").contains("some{name=\"config/grün.yaml\"} 1\n"));
    }
}

//! Environment variables, passed in by the caller: this module never reads those of the process.

use std::collections::BTreeMap;
use std::time::Duration;

use navarch_api::duration;
use navarch_base::go_text::parse_bool;

/// The agent's environment variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// The value of a variable, even if it is empty; `None` if it is not set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of a variable; empty if it is not set.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// The value of a variable, or `default` if it is not set.
    #[must_use]
    pub fn text_or(&self, name: &str, default: &str) -> String {
        self.get(name).unwrap_or(default).to_owned()
    }

    /// A boolean in Go's notation. As in pilot-agent, an invalid value counts as unset, with a
    /// warning.
    #[must_use]
    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.parsed(name, parse_bool).unwrap_or(default)
    }

    /// A duration in Go's notation. An invalid value counts as unset, with a warning.
    #[must_use]
    pub fn duration(&self, name: &str, default: Duration) -> Duration {
        self.parsed(name, parse_duration).unwrap_or(default)
    }

    /// A number. An invalid value counts as unset, with a warning.
    #[must_use]
    pub fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        self.parsed(name, |text| text.parse().ok())
            .unwrap_or(default)
    }

    /// All variables by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The parsed value of a variable; `None` if it is unset or invalid.
    fn parsed<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.get(name)?;
        let value = parse(text);
        if value.is_none() {
            tracing::warn!(
                name,
                value = text,
                "invalid value of an environment variable; using the default"
            );
        }
        value
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// Parses a duration like Go's `time.ParseDuration`; `None` if it is negative.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    duration::Duration::parse(text).ok()?.as_std()
}

#[cfg(test)]
mod tests;

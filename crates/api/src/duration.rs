//! Spans of time as users write them in Istio's objects.

use std::fmt;
use std::str::FromStr;
use std::time::Duration as StdDuration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Nanoseconds in a second.
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A signed span of time with the range and the spelling of Go's `time.Duration`.
///
/// istiod reads `google.protobuf.Duration` from JSON with `time.ParseDuration`, so `1.5s`, `5m`,
/// `1h2m` and `-250ms` all are good, and a number without a unit is not (but for `0`). It is
/// written back as protobuf's JSON form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(i64);

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text is not a sequence of numbers with units.
    #[error(
        "{0:?} is not a duration; write numbers with a unit each, such as \"1.5s\", \"5m\" or \"1h30m\""
    )]
    Syntax(String),
    /// The span does not fit 64 bits of nanoseconds (about 292 years).
    #[error("{0:?} is too long; the maximum is about 292 years")]
    Overflow(String),
}

#[cfg(test)]
impl schemars::JsonSchema for Duration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

impl Duration {
    /// No time; written as `0s`.
    pub const ZERO: Self = Self(0);

    /// From whole nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// From whole milliseconds; saturates at the longest duration.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// From whole seconds; saturates at the longest duration.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(NANOS_PER_SECOND))
    }

    /// The whole span in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The whole span in milliseconds, cut off towards zero.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0 / 1_000_000
    }

    /// The whole span in seconds, cut off towards zero.
    #[must_use]
    pub const fn as_secs(self) -> i64 {
        self.0 / NANOS_PER_SECOND
    }

    /// Whether the span is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether the span is below zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// As the standard library's unsigned span; `None` when negative.
    #[must_use]
    pub fn as_std(self) -> Option<StdDuration> {
        u64::try_from(self.0).ok().map(StdDuration::from_nanos)
    }

    /// As protobuf's message: seconds and nanoseconds carry the same sign.
    #[must_use]
    pub fn to_proto(self) -> prost_types::Duration {
        let nanos = i32::try_from(self.0 % NANOS_PER_SECOND).unwrap_or_default();
        prost_types::Duration {
            seconds: self.as_secs(),
            nanos,
        }
    }

    /// Reads Go's notation: an optional sign, then numbers that may have a fraction, each with its
    /// unit (`ns`, `us`, `µs`, `ms`, `s`, `m`, `h`).
    ///
    /// # Errors
    /// When the text has another form or the span does not fit.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        let syntax = || DurationError::Syntax(text.to_owned());
        let overflow = || DurationError::Overflow(text.to_owned());
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }

        if rest.is_empty() {
            return Err(syntax());
        }

        let mut total: i128 = 0;

        while !rest.is_empty() {
            let (nanos, after) = leading_term(rest).ok_or_else(syntax)?;
            total = total.checked_add(nanos).ok_or_else(overflow)?;
            rest = after;
        }

        let signed = if negative { -total } else { total };
        i64::try_from(signed).map(Self).map_err(|_| overflow())
    }
}

/// Parses one number with its unit at the start; `None` if the text does not start with one.
fn leading_term(text: &str) -> Option<(i128, &str)> {
    let (whole, rest) = leading_digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => leading_digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }

    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at_checked(end)?;
    let scale: i128 = match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => i128::from(NANOS_PER_SECOND),
        "m" => 60 * i128::from(NANOS_PER_SECOND),
        "h" => 3600 * i128::from(NANOS_PER_SECOND),
        _ => return None,
    };

    Some((
        whole_nanos(whole, scale).saturating_add(fraction_nanos(fraction, scale)),
        rest,
    ))
}

/// Splits the decimal digits off the front.
fn leading_digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// The nanoseconds of a whole number of units; a value far out of range if it does not fit, so that
/// the caller rejects it.
fn whole_nanos(digits: &str, scale: i128) -> i128 {
    if digits.is_empty() {
        return 0;
    }
    digits.parse::<u64>().map_or(i128::from(u64::MAX), |whole| {
        i128::from(whole).saturating_mul(scale)
    })
}

/// The nanoseconds of a decimal fraction of a unit.
///
/// Computed in floating point, as in Go, so that `0.3333333333333333333h` is twenty minutes in
/// both.
fn fraction_nanos(digits: &str, scale: i128) -> i128 {
    let mut value: u64 = 0;
    let mut divisor = 1.0_f64;
    for digit in digits
        .bytes()
        .map(|digit| u64::from(digit.saturating_sub(b'0')))
    {
        let Some(next) = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(digit))
        else {
            break;
        };
        value = next;
        divisor *= 10.0;
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "the result is below one unit, and the loss below a nanosecond is Go's too"
    )]
    let nanos = (value as f64 * (scale as f64 / divisor)) as i128;

    nanos
}

impl fmt::Display for Duration {
    /// Protobuf's JSON form: seconds with no, three, six or nine decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = self.0.unsigned_abs();
        let per_second = NANOS_PER_SECOND.unsigned_abs();
        let seconds = magnitude / per_second;
        let nanos = magnitude % per_second;
        if nanos == 0 {
            write!(f, "{sign}{seconds}s")
        } else if nanos.is_multiple_of(1_000_000) {
            write!(f, "{sign}{seconds}.{:03}s", nanos / 1_000_000)
        } else if nanos.is_multiple_of(1_000) {
            write!(f, "{sign}{seconds}.{:06}s", nanos / 1_000)
        } else {
            write!(f, "{sign}{seconds}.{nanos:09}s")
        }
    }
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl From<Duration> for prost_types::Duration {
    fn from(duration: Duration) -> Self {
        duration.to_proto()
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses or tells why not.
    fn nanos(text: &str) -> Option<i64> {
        Duration::parse(text).ok().map(Duration::as_nanos)
    }

    #[test]
    fn go_notation_is_read() {
        assert_eq!(nanos("1.5s"), Some(1_500_000_000));
        assert_eq!(nanos("5m"), Some(300_000_000_000));
        assert_eq!(nanos("1h2m"), Some(3_720_000_000_000));
        assert_eq!(nanos("-250ms"), Some(-250_000_000));
        assert_eq!(nanos("+1us"), Some(1_000));
        assert_eq!(nanos("1µs"), Some(1_000));
        assert_eq!(nanos("1μs"), Some(1_000));
        assert_eq!(nanos(".5s"), Some(500_000_000));
        assert_eq!(nanos("1.s"), Some(1_000_000_000));
        assert_eq!(nanos("0"), Some(0));
        assert_eq!(nanos("-0"), Some(0));
        assert_eq!(nanos("0.1h"), Some(360_000_000_000));
        assert_eq!(nanos("9223372036854775807ns"), Some(i64::MAX));
        assert_eq!(nanos("-9223372036854775808ns"), Some(i64::MIN));
        assert_eq!(nanos("0.3333333333333333333h"), Some(1_200_000_000_000));
    }

    #[test]
    fn other_notations_are_rejected() {
        for text in [
            "", "5", "s", ".s", "1d", "1 s", "1s ", "-", "+", "1m5", "--1s", "1S",
        ] {
            assert_eq!(
                Duration::parse(text),
                Err(DurationError::Syntax(text.to_owned())),
                "{text:?}"
            );
        }
        for text in ["9223372036854775808ns", "2562048h", "99999999999999999999s"] {
            assert_eq!(
                Duration::parse(text),
                Err(DurationError::Overflow(text.to_owned())),
                "{text:?}"
            );
        }
    }

    #[test]
    fn display_is_the_json_form_of_protobuf() {
        for (nanos, text) in [
            (0, "0s"),
            (1_000_000_000, "1s"),
            (1_500_000_000, "1.500s"),
            (-250_000_000, "-0.250s"),
            (1_000, "0.000001s"),
            (1, "0.000000001s"),
        ] {
            assert_eq!(Duration::from_nanos(nanos).to_string(), text);
            assert_eq!(Duration::parse(text), Ok(Duration::from_nanos(nanos)));
        }
    }

    #[test]
    fn protobuf_carries_one_sign_in_both_parts() {
        assert_eq!(
            Duration::from_millis(-1500).to_proto(),
            prost_types::Duration {
                seconds: -1,
                nanos: -500_000_000
            }
        );
        assert_eq!(Duration::from_millis(-1500).as_std(), None);
        assert_eq!(
            Duration::from_secs(2).as_std(),
            Some(StdDuration::from_secs(2))
        );
    }
}

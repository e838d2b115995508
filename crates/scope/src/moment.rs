//! Times of readings, to the second.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A time, as text of RFC 3339 in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Moment {
    /// Seconds since 1970.
    seconds: i64,
}

impl Moment {
    /// The time in whole seconds.
    #[must_use]
    pub fn of(time: Timestamp) -> Self {
        Self {
            seconds: time.as_second(),
        }
    }

    /// The time this many seconds before, but none that has no text: the seconds may be forged.
    #[must_use]
    pub fn before(self, seconds: i64) -> Self {
        let first = Timestamp::MIN.as_second();
        let last = Timestamp::MAX.as_second();
        Self {
            seconds: self.seconds.saturating_sub(seconds).clamp(first, last),
        }
    }

    /// The seconds from an earlier time to this one; 0 if it is later.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> i64 {
        self.seconds.saturating_sub(earlier.seconds).max(0)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = Timestamp::from_second(self.seconds)
            .expect("a moment is that of a timestamp, or within the range of timestamps");
        fmt::Display::fmt(&time, f)
    }
}

impl From<Moment> for String {
    fn from(moment: Moment) -> Self {
        moment.to_string()
    }
}

impl TryFrom<String> for Moment {
    type Error = jiff::Error;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_text_in_files() {
        let moment = Moment {
            seconds: 1_700_000_000,
        };
        let json = serde_json::to_string(&moment).unwrap();
        assert_eq!(json, "\"2023-11-14T22:13:20Z\"");
        assert_eq!(serde_json::from_str::<Moment>(&json).unwrap(), moment);
        assert!(serde_json::from_str::<Moment>("\"yesterday\"").is_err());
        assert_eq!(moment.seconds_since(moment.before(60)), 60);
        assert_eq!(moment.before(60).seconds_since(moment), 0);
    }

    #[test]
    fn every_time_can_be_read_again() {
        let moment = Moment {
            seconds: 1_700_000_000,
        };
        for seconds in [i64::MAX, i64::MIN, 1 << 53] {
            let json = serde_json::to_string(&moment.before(seconds)).unwrap();
            let again: Moment = serde_json::from_str(&json).unwrap();
            assert_eq!(again, moment.before(seconds), "{json}");
        }
    }
}

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

    /// The time this many seconds before.
    #[must_use]
    pub fn before(self, seconds: i64) -> Self {
        Self {
            seconds: self.seconds.saturating_sub(seconds),
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
        match Timestamp::from_second(self.seconds) {
            Ok(time) => fmt::Display::fmt(&time, f),
            // Only a time before the year -9999 or after 9999 has no text of its own.
            Err(_) => write!(f, "{} s", self.seconds),
        }
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
}

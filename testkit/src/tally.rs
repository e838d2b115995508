//! The outcome of many requests, as the client in a pod (`workload load`) reports it and tests read
//! it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// Maximum number of printed failures.
const MAX_PRINTED: usize = 20;

/// Counts since the client's start. The difference of two ([`Tally::since`]) has the counts of a
/// period.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Tally {
    /// Number of completed requests.
    pub asked: u64,
    /// Responses with status 200, by the requested host and the response: `reviews: reviews v1`.
    pub answered: BTreeMap<String, u64>,
    /// Number of requests without a response, or with another status.
    pub failed: u64,
    /// The last failures as text.
    pub failures: Vec<String>,
    /// The longest response time, in milliseconds.
    pub longest: u64,
}

impl Tally {
    /// Counts the outcome of a request to `host`: the response, or the error.
    pub fn count(&mut self, host: &str, took: Duration, outcome: Result<String>) {
        self.asked += 1;

        match outcome {
            Ok(response) => {
                *self
                    .answered
                    .entry(format!("{host}: {response}"))
                    .or_default() += 1;
                self.longest = self
                    .longest
                    .max(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            }
            Err(error) => {
                self.failed += 1;
                if self.failures.len() == MAX_PRINTED {
                    self.failures.remove(0);
                }
                self.failures.push(format!(
                    "request {} to {host} failed after {took:?}: {error:#}",
                    self.asked
                ));
            }
        }
    }

    /// The counts since `before`; the longest time and the failures are those of the whole time.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let count = |who: &String| before.answered.get(who).copied().unwrap_or_default();
        let answered = self
            .answered
            .iter()
            .map(|(who, all)| (who.clone(), all.saturating_sub(count(who))));
        let failed = self.failed.saturating_sub(before.failed);
        let kept = usize::try_from(failed)
            .unwrap_or(MAX_PRINTED)
            .min(self.failures.len());

        Self {
            asked: self.asked.saturating_sub(before.asked),
            answered: answered.filter(|(_, count)| *count > 0).collect(),
            failed,
            failures: self
                .failures
                .get(self.failures.len() - kept..)
                .unwrap_or_default()
                .to_vec(),
            longest: self.longest,
        }
    }

    /// Fails unless at least `least` requests were sent and all were answered with 200.
    ///
    /// # Errors
    /// With the failures as text.
    pub fn none_lost(&self, what: &str, least: u64) -> Result<()> {
        ensure!(
            self.asked >= least,
            "{what}: only {} requests, expected {least}",
            self.asked
        );
        let failed = self.failed;
        let requests = self.asked;
        ensure!(
            failed == 0,
            "{what}: {failed} of {requests} requests were lost:\n{}",
            self.failures.join("\n")
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_two_tallies_covers_the_time_between() {
        let mut tally = Tally::default();
        tally.count("a", Duration::from_millis(3), Ok("one".to_owned()));
        tally.count("a", Duration::from_millis(3), Err(anyhow::anyhow!("early")));
        let before = tally.clone();
        tally.count("a", Duration::from_millis(9), Ok("two".to_owned()));
        tally.count("a", Duration::from_millis(3), Err(anyhow::anyhow!("late")));
        let since = tally.since(&before);
        assert_eq!((since.asked, since.failed, since.longest), (2, 1, 9));
        assert_eq!(since.answered, BTreeMap::from([("a: two".to_owned(), 1)]));
        assert_eq!(since.failures.len(), 1);
        assert!(since.failures[0].ends_with("late"), "{:?}", since.failures);
        assert!(since.none_lost("all", 1).is_err(), "one was lost");
        assert!(before.since(&before).none_lost("nothing", 0).is_ok());
        assert!(
            before.since(&before).none_lost("nothing", 1).is_err(),
            "no request was sent"
        );
    }
}

//! What came of many requests, as the client in a pod (`workload load`) tells it and tests read it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// How many failures are printed.
const TOLD: usize = 20;

/// Counts since the client's start. Take the difference of two ([`Tally::since`]) for what came of a time.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Tally {
    /// Requests that have an outcome.
    pub asked: u64,
    /// Who answered with 200, by the host that was asked and what it said: `reviews: reviews v1`.
    pub answered: BTreeMap<String, u64>,
    /// Requests without an answer, or with another status.
    pub failed: u64,
    /// The last of them in words.
    pub failures: Vec<String>,
    /// The longest that an answer took, in milliseconds.
    pub longest: u64,
}

impl Tally {
    /// Counts the outcome of a request to `host`: what was said, or why it failed.
    pub fn count(&mut self, host: &str, took: Duration, outcome: Result<String>) {
        self.asked += 1;
        match outcome {
            Ok(said) => {
                *self.answered.entry(format!("{host}: {said}")).or_default() += 1;
                self.longest = self.longest.max(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            }
            Err(error) => {
                self.failed += 1;
                if self.failures.len() == TOLD {
                    self.failures.remove(0);
                }
                self.failures.push(format!("request {} to {host} after {took:?}: {error:#}", self.asked));
            }
        }
    }

    /// What was counted since `before`; the longest is that of all the time, and the failures are those that it lists.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let count = |who: &String| before.answered.get(who).copied().unwrap_or_default();
        let answered = self.answered.iter().map(|(who, all)| (who.clone(), all.saturating_sub(count(who))));
        let failed = self.failed.saturating_sub(before.failed);
        let told = usize::try_from(failed).unwrap_or(TOLD).min(self.failures.len());
        Self {
            asked: self.asked.saturating_sub(before.asked),
            answered: answered.filter(|(_, count)| *count > 0).collect(),
            failed,
            failures: self.failures.get(self.failures.len() - told..).unwrap_or_default().to_vec(),
            longest: self.longest,
        }
    }

    /// Fails unless at least `least` requests were made and all were answered with 200.
    ///
    /// # Errors
    /// With the failures in words.
    pub fn none_lost(&self, what: &str, least: u64) -> Result<()> {
        ensure!(self.asked >= least, "{what}: {} requests only, {least} were expected", self.asked);
        let (failed, asked) = (self.failed, self.asked);
        ensure!(failed == 0, "{what}: {failed} of {asked} requests were lost:\n{}", self.failures.join("\n"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_two_is_what_came_between() {
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
        assert!(before.since(&before).none_lost("nothing", 1).is_err(), "nothing was asked");
    }
}

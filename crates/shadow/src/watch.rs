//! What `--watch` reports: a difference when it appears, and when it ends.
//!
//! Rounds compare different samples of proxies. A difference is therefore over only when every proxy
//! that had it was compared again without it, or is no longer connected; and a further proxy with
//! the same cause is no news.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::report::{Group, Report};

/// The differences that were reported and are not over.
#[derive(Debug, Default)]
pub struct Watched {
    /// By cause.
    open: BTreeMap<String, OpenDifference>,
}

/// A difference that is not over.
#[derive(Debug)]
struct OpenDifference {
    documented: Option<&'static str>,
    /// The proxies that had it when they were compared last.
    proxies: BTreeSet<String>,
}

/// What is new in a round.
#[derive(Debug, Serialize)]
pub struct Changes<'a> {
    /// Differences that were not there before.
    pub appeared: Vec<&'a Group>,
    /// Differences that no proxy has any more.
    pub ended: Vec<EndedDifference>,
}

/// A difference that is over.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct EndedDifference {
    /// The cause, in words.
    pub cause: String,
    /// The id of the documented difference that it was, if it was one.
    pub documented: Option<&'static str>,
}

impl Watched {
    /// Adds the report on a round, in which these proxies were connected, and returns what is new.
    pub fn add<'a>(&mut self, report: &'a Report, connected: &BTreeSet<String>) -> Changes<'a> {
        let compared = &report.compared_proxies;
        for difference in self.open.values_mut() {
            let proxies = &mut difference.proxies;
            proxies.retain(|proxy| connected.contains(proxy) && !compared.contains(proxy));
        }

        let mut appeared = Vec::new();
        for group in &report.groups {
            let difference = self.open.entry(group.cause.clone()).or_insert_with(|| {
                appeared.push(group);
                OpenDifference {
                    documented: group.documented,
                    proxies: BTreeSet::new(),
                }
            });
            difference.proxies.extend(group.proxies.iter().cloned());
        }

        let is_over = |_: &String, difference: &mut OpenDifference| difference.proxies.is_empty();
        let ended = self.open.extract_if(.., is_over);
        Changes {
            ended: ended
                .map(|(cause, difference)| EndedDifference {
                    cause,
                    documented: difference.documented,
                })
                .collect(),
            appeared,
        }
    }
}

impl Changes<'_> {
    /// Whether nothing is new.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.appeared.is_empty() && self.ended.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// A report on a round with these proxies, by the causes of their differences.
    fn report(compared: &[&str], causes: &[(&str, &[&str])]) -> Report {
        let group = |(cause, proxies): &(&str, &[&str])| Group {
            cause: (*cause).to_owned(),
            documented: None,
            objects: BTreeSet::new(),
            proxies: names(proxies),
            resources: BTreeSet::new(),
            differences: 1,
            examples: Vec::new(),
        };
        Report {
            compared: compared.len(),
            compared_proxies: names(compared),
            groups: causes.iter().map(group).collect(),
            ..Report::default()
        }
    }

    /// The causes that appear and end in a round.
    fn news(
        watched: &mut Watched,
        compared: &[&str],
        causes: &[(&str, &[&str])],
    ) -> [Vec<String>; 2] {
        let report = report(compared, causes);
        let changes = watched.add(&report, &names(&["a", "b", "c"]));
        let appeared = changes.appeared.iter().map(|group| group.cause.clone());
        let ended = changes.ended.iter().map(|ended| ended.cause.clone());
        [appeared.collect(), ended.collect()]
    }

    #[test]
    fn a_difference_is_reported_when_it_appears_and_when_it_ends_whatever_is_sampled() {
        let mut watched = Watched::default();
        let none: [Vec<String>; 2] = [Vec::new(), Vec::new()];
        let limit = |proxies: &'static [&'static str]| [("limit", proxies)];

        let appeared = news(&mut watched, &["a", "b"], &limit(&["a"]));
        assert_eq!(appeared, [vec!["limit".to_owned()], Vec::new()]);
        // Another sample: other proxies have it, or none of the sample.
        assert_eq!(news(&mut watched, &["b"], &[]), none);
        assert_eq!(news(&mut watched, &["c"], &limit(&["c"])), none);
        // One of the two that had it has it no longer.
        assert_eq!(news(&mut watched, &["a"], &[]), none);
        let ended = news(&mut watched, &["c"], &[]);
        assert_eq!(ended, [Vec::new(), vec!["limit".to_owned()]]);

        let again = news(&mut watched, &["a"], &limit(&["a"]));
        assert_eq!(again, [vec!["limit".to_owned()], Vec::new()]);
    }

    #[test]
    fn a_difference_ends_with_the_last_proxy_that_had_it() {
        let mut watched = Watched::default();
        let found = report(&["a"], &[("limit", &["a"])]);
        assert_eq!(watched.add(&found, &names(&["a"])).appeared.len(), 1);

        let without = report(&[], &[]);
        assert!(watched.add(&without, &names(&["a", "b"])).is_empty());
        assert_eq!(watched.add(&without, &names(&["b"])).ended.len(), 1);
    }
}

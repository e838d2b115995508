//! The report on a round of comparisons: differences grouped by cause.

mod cause;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

pub use self::cause::{Cause, Side};
use crate::comparison::Found;
use crate::subscriptions::plural;
use crate::twin::NotCompared;

/// The maximum number of differences that a group shows.
const MAX_EXAMPLES: usize = 3;
/// The maximum number of objects that a group names.
const MAX_OBJECTS: usize = 12;

/// The differences of all compared proxies.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The number of compared proxies.
    pub compared: usize,
    /// Their names.
    #[serde(skip)]
    pub compared_proxies: BTreeSet<String>,
    /// Those of them without a difference, intended ones included.
    pub equal: usize,
    /// The differences by cause: first those that are not documented, of those first the causes
    /// that most proxies have.
    pub groups: Vec<Group>,
    /// Proxies that could not be compared.
    pub failed: Vec<NotCompared>,
    /// Proxies that are never compared.
    pub skipped: Vec<NotCompared>,
}

/// The differences of one cause.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// The cause, in words.
    pub cause: String,
    /// The id of the documented difference that it is, if it is one.
    pub documented: Option<&'static str>,
    /// The objects that make the difference, or that the differing resources were built from.
    pub objects: BTreeSet<String>,
    /// The proxies that have it.
    pub proxies: BTreeSet<String>,
    /// The differing resources, as `clusters outbound|80||reviews`.
    pub resources: BTreeSet<String>,
    /// The number of differences.
    pub differences: usize,
    /// Some of the differences, as `- FIELD = VALUE` (only istiod has it), `+ FIELD = VALUE` (only
    /// Navarch has it) and `! FIELD: VALUE, got VALUE` (istiod's value, Navarch's value).
    pub examples: Vec<String>,
}

/// Builds a report.
#[derive(Debug, Default)]
pub struct ReportBuilder {
    compared: BTreeSet<String>,
    equal: usize,
    groups: BTreeMap<Cause, Group>,
    failed: Vec<NotCompared>,
}

impl ReportBuilder {
    /// Adds a comparison.
    pub fn add(&mut self, proxy: &str, found: Vec<Found>) {
        self.compared.insert(proxy.to_owned());
        if found.is_empty() {
            self.equal += 1;
        }
        for one in found {
            let cause = Cause::of(&one);
            let group = self.groups.entry(cause).or_insert_with_key(Group::new);
            group.add(proxy, one);
        }
    }

    /// Adds a proxy that could not be compared.
    pub fn add_failure(&mut self, proxy: &str, reason: String) {
        self.failed.push(NotCompared {
            proxy: proxy.to_owned(),
            reason,
        });
    }

    /// The report; `skipped` are never compared.
    #[must_use]
    pub fn finish(self, skipped: Vec<NotCompared>) -> Report {
        let mut groups: Vec<Group> = self.groups.into_values().collect();
        groups.sort_by_key(|group| {
            let most_first = usize::MAX - group.proxies.len();
            (group.documented.is_some(), most_first)
        });
        let mut failed = self.failed;
        failed.sort_by(|one, other| one.proxy.cmp(&other.proxy));
        Report {
            compared: self.compared.len(),
            compared_proxies: self.compared,
            equal: self.equal,
            groups,
            failed,
            skipped,
        }
    }
}

impl Group {
    /// An empty group.
    fn new(cause: &Cause) -> Self {
        Self {
            cause: cause.to_string(),
            documented: cause.documented(),
            objects: cause.objects(),
            proxies: BTreeSet::new(),
            resources: BTreeSet::new(),
            differences: 0,
            examples: Vec::new(),
        }
    }

    /// Adds a difference of a proxy.
    fn add(&mut self, proxy: &str, found: Found) {
        let Found {
            resource_type,
            difference,
            inputs,
            ..
        } = found;

        self.proxies.insert(proxy.to_owned());
        self.differences += 1;
        let resource = format!("{} {}", plural(resource_type), difference.resource);
        self.resources.insert(resource);

        let named = difference.objects.both.iter().cloned();
        for object in named.chain(inputs) {
            if self.objects.len() < MAX_OBJECTS {
                self.objects.insert(object);
            }
        }

        let example = difference.to_string();
        if self.examples.len() < MAX_EXAMPLES && !self.examples.contains(&example) {
            self.examples.push(example);
        }
    }
}

impl Report {
    /// Whether something differs that is not documented.
    #[must_use]
    pub fn is_unexplained(&self) -> bool {
        self.groups.iter().any(|group| group.documented.is_none())
    }
}

#[cfg(test)]
mod tests;

//! The reports of all replicas, from a watch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use super::report::{self, Report};

/// A report that was not renewed for this long belongs to a stopped replica.
pub(super) const STALE: Duration = Duration::from_secs(60);

/// The reports of the other replicas.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// The reports, by name of the ConfigMap.
    known: BTreeMap<String, StoredReport>,
    /// The objects of an unfinished list.
    listed: BTreeSet<String>,
}

/// A stored part of a report.
#[derive(Debug)]
struct StoredReport {
    report: Report,
    version: Option<String>,
    /// The time since which it is unchanged, by this replica's clock.
    since: Instant,
}

impl Reports {
    /// Applies an event about a ConfigMap; those of `own` are ignored, because this replica has its
    /// own current state.
    pub(super) fn take(&mut self, event: Event<ConfigMap>, own: &str, now: Instant) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(map) => {
                self.listed.extend(map.metadata.name.clone());
                self.put(map, own, now);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.known.retain(|name, _| listed.contains(name));
            }
            Event::Apply(map) => self.put(map, own, now),
            Event::Delete(map) => {
                self.known.remove(&map.metadata.name.unwrap_or_default());
            }
        }
    }

    /// Adds or updates a ConfigMap.
    fn put(&mut self, map: ConfigMap, own: &str, now: Instant) {
        let reporter = map
            .data
            .as_ref()
            .and_then(|data| data.get(report::REPORTER));
        let Some(name) = map
            .metadata
            .name
            .filter(|_| reporter.is_none_or(|reporter| reporter != own))
        else {
            return;
        };

        let version = map.metadata.resource_version;

        if self
            .known
            .get(&name)
            .is_some_and(|known| known.version == version)
        {
            return;
        }
        let read = report::read_data(&map.data.unwrap_or_default());
        let report = read.unwrap_or_else(|error| {
            tracing::debug!(name, %error, "failed to read the distribution report of a replica");
            Report::new()
        });
        self.known.insert(
            name,
            StoredReport {
                report,
                version,
                since: now,
            },
        );
    }

    /// The reports that are valid at `now`.
    pub(super) fn fresh(&self, now: Instant) -> impl Iterator<Item = &Report> {
        let is_fresh =
            move |known: &&StoredReport| now.saturating_duration_since(known.since) < STALE;
        self.known
            .values()
            .filter(is_fresh)
            .map(|known| &known.report)
    }

    /// The ConfigMaps of stopped replicas.
    pub(super) fn stale(&self, now: Instant) -> Vec<String> {
        let is_stale = |known: &StoredReport| now.saturating_duration_since(known.since) >= STALE;
        self.known
            .iter()
            .filter(|(_, known)| is_stale(known))
            .map(|(name, _)| name.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(name: &str, version: &str, line: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("{name}-distribution"));
        map.metadata.resource_version = Some(version.to_owned());
        let data = [(report::REPORTER, name), (report::LINES, line)];
        map.data = Some(
            data.map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        );
        map
    }

    #[test]
    fn reports_that_are_not_renewed_expire() {
        let begun = Instant::now();
        let mut reports = Reports::default();
        let line = "Gateway a b 1 2 2\n";
        reports.take(Event::Apply(map("me", "1", line)), "me", begun);
        assert_eq!(reports.fresh(begun).count(), 0, "what is mine is known");
        reports.take(Event::Apply(map("one", "2", line)), "me", begun);
        reports.take(Event::Apply(map("two", "3", line)), "me", begun);
        let later = begun + STALE / 2;
        reports.take(Event::Apply(map("one", "4", line)), "me", later);

        // A relist repeats known reports, which does not renew them.
        reports.take(Event::Init, "me", later);
        reports.take(Event::InitApply(map("one", "4", line)), "me", later);
        reports.take(Event::InitApply(map("two", "3", line)), "me", later);
        reports.take(Event::InitDone, "me", later);
        assert_eq!(reports.fresh(later).count(), 2);
        let end = begun + STALE;
        assert_eq!(
            (reports.fresh(end).count(), reports.stale(end)),
            (1, vec!["two-distribution".to_owned()])
        );

        reports.take(Event::Delete(map("two", "5", line)), "me", end);
        assert!(reports.stale(end).is_empty());
    }
}

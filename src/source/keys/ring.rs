//! Which keys are wanted, which are there, and which are to be fetched when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::key_source::KeySource;
use crate::api::names::Namespace;
use crate::api::object::NamespacedName;

/// How long after the first failure keys are fetched again; each further one doubles it.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// How long keys are believed that can be fetched no more, as istiod has it.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// What is told of a place: its keys, or that it has none any more.
pub(super) type Told = (KeySource, Option<Arc<str>>);

/// A place that is to be fetched now.
#[derive(Debug)]
pub(super) struct Due {
    /// The place.
    pub(super) source: KeySource,
    /// How long fetching may take.
    pub(super) timeout: Duration,
    /// Of the namespaces that want it, the one that wants the fewest places: one that wants many does not make it wait.
    pub(super) namespace: Namespace,
}

/// All places.
#[derive(Debug)]
pub(super) struct Ring {
    /// How long keys are used before they are fetched again.
    refresh: Duration,
    /// The places that are wanted.
    entries: BTreeMap<KeySource, Entry>,
}

/// One place.
#[derive(Debug)]
struct Entry {
    /// Who wants it, with how long fetching may take.
    wanted_by: BTreeMap<NamespacedName, Duration>,
    /// Its keys with when they were fetched.
    keys: Option<(Arc<str>, Instant)>,
    /// How often fetching failed since it last succeeded.
    failures: u32,
    /// Whether it was tried at all.
    tried: bool,
    /// When it is to be fetched; `None` while it is being fetched.
    due: Option<Instant>,
}

impl Ring {
    /// Nothing is wanted.
    pub(super) fn new(refresh: Duration) -> Self {
        Self { refresh, entries: BTreeMap::new() }
    }

    /// A policy wants these places and no others. Tells of those that nobody wants any more.
    pub(super) fn demand(
        &mut self,
        policy: &NamespacedName,
        sources: BTreeMap<KeySource, Duration>,
        now: Instant,
    ) -> Vec<Told> {
        for entry in self.entries.values_mut() {
            entry.wanted_by.remove(policy);
        }
        for (source, timeout) in sources {
            let entry = self.entries.entry(source).or_insert_with(|| Entry {
                wanted_by: BTreeMap::new(),
                keys: None,
                failures: 0,
                tried: false,
                due: Some(now),
            });
            entry.wanted_by.insert(policy.clone(), timeout);
        }
        let unwanted = |entry: &Entry| entry.wanted_by.is_empty();
        let gone: BTreeSet<KeySource> =
            self.entries.iter().filter(|(_, entry)| unwanted(entry)).map(|(source, _)| source.clone()).collect();
        self.entries.retain(|_, entry| !unwanted(entry));
        gone.into_iter().map(|source| (source, None)).collect()
    }

    /// The places that are to be fetched now. They count as being fetched.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Due> {
        let is_due = |entry: &Entry| entry.due.is_some_and(|at| at <= now);
        if !self.entries.values().any(is_due) {
            return Vec::new();
        }
        let wanted = self.wanted();
        let mut due = Vec::new();
        for (source, entry) in self.entries.iter_mut().filter(|(_, entry)| is_due(entry)) {
            entry.due = None;
            let timeout = entry.wanted_by.values().max().copied().unwrap_or(super::DEFAULT_TIMEOUT);
            let namespaces = entry.wanted_by.keys().map(|policy| &policy.namespace);
            let fewest = namespaces.min_by_key(|namespace| wanted.get(*namespace));
            let namespace = fewest.cloned().unwrap_or_else(|| Namespace::new(""));
            due.push(Due { source: source.clone(), timeout, namespace });
        }
        due
    }

    /// How many places each namespace wants.
    fn wanted(&self) -> BTreeMap<Namespace, usize> {
        let mut wanted = BTreeMap::new();
        for entry in self.entries.values() {
            let namespaces: BTreeSet<&Namespace> = entry.wanted_by.keys().map(|policy| &policy.namespace).collect();
            for namespace in namespaces {
                *wanted.entry(namespace.clone()).or_default() += 1;
            }
        }
        wanted
    }

    /// When the next place is to be fetched.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.entries.values().filter_map(|entry| entry.due).min()
    }

    /// Whether every place was tried.
    pub(super) fn all_tried(&self) -> bool {
        self.entries.values().all(|entry| entry.tried)
    }

    /// A place was fetched (`None` where that failed). Tells of it where that changes what is known.
    pub(super) fn fetched(&mut self, source: &KeySource, keys: Option<Arc<str>>, now: Instant) -> Option<Told> {
        let refresh = self.refresh;
        let entry = self.entries.get_mut(source)?;
        entry.tried = true;
        if let Some(keys) = keys {
            entry.failures = 0;
            entry.due = Some(now + refresh);
            let known = entry.keys.replace((keys.clone(), now));
            return known.is_none_or(|(known, _)| known != keys).then(|| (source.clone(), Some(keys)));
        }
        let wait = FIRST_RETRY.saturating_mul(1_u32.checked_shl(entry.failures).unwrap_or(u32::MAX));
        entry.failures = entry.failures.saturating_add(1);
        entry.due = Some(now + wait.min(refresh));
        let is_old = entry.keys.as_ref().is_some_and(|(_, at)| now.saturating_duration_since(*at) >= MAX_AGE);
        if is_old {
            entry.keys = None;
        }
        is_old.then(|| (source.clone(), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFRESH: Duration = Duration::from_mins(20);

    fn source(name: &str) -> KeySource {
        KeySource::Uri(Arc::from(name))
    }

    fn policy(name: &str) -> NamespacedName {
        NamespacedName::new("shop", name)
    }

    fn wants(names: &[&str]) -> BTreeMap<KeySource, Duration> {
        names.iter().map(|name| (source(name), Duration::from_secs(5))).collect()
    }

    #[test]
    fn a_place_is_fetched_once_for_all_who_want_it() {
        let now = Instant::now();
        let mut ring = Ring::new(REFRESH);
        ring.demand(&policy("a"), wants(&["x"]), now);
        ring.demand(&policy("b"), wants(&["x", "y"]), now);
        assert_eq!(ring.take_due(now).len(), 2);
        assert!(ring.take_due(now).is_empty(), "both are under way");
        assert!(ring.demand(&policy("b"), wants(&[]), now).iter().eq(&[(source("y"), None)]));
        assert!(!ring.all_tried());
        assert_eq!(ring.fetched(&source("y"), Some(Arc::from("k")), now), None, "nobody wants it any more");
        assert_eq!(ring.fetched(&source("x"), Some(Arc::from("k")), now), Some((source("x"), Some(Arc::from("k")))));
        assert!(ring.all_tried());
    }

    #[test]
    fn a_place_is_fetched_on_behalf_of_the_namespace_that_wants_the_fewest() {
        let now = Instant::now();
        let mut ring = Ring::new(REFRESH);
        ring.demand(&NamespacedName::new("a-flood", "p"), wants(&["x", "y", "z"]), now);
        ring.demand(&NamespacedName::new("shop", "p"), wants(&["x"]), now);
        let due: Vec<_> = ring.take_due(now).into_iter().map(|due| (due.source, due.namespace.to_string())).collect();
        let expected = [("x", "shop"), ("y", "a-flood"), ("z", "a-flood")];
        assert_eq!(due, expected.map(|(place, namespace)| (source(place), namespace.to_owned())));
    }

    #[test]
    fn equal_keys_are_not_told_again() {
        let now = Instant::now();
        let mut ring = Ring::new(REFRESH);
        ring.demand(&policy("a"), wants(&["x"]), now);
        ring.take_due(now);
        assert!(ring.fetched(&source("x"), Some(Arc::from("k")), now).is_some());
        assert!(ring.take_due(now + REFRESH - Duration::from_secs(1)).is_empty());
        assert_eq!(ring.take_due(now + REFRESH).len(), 1);
        assert!(ring.fetched(&source("x"), Some(Arc::from("k")), now + REFRESH).is_none());
    }

    #[test]
    fn failures_wait_ever_longer_and_keep_good_keys_for_a_week() {
        let start = Instant::now();
        let mut ring = Ring::new(REFRESH);
        ring.demand(&policy("a"), wants(&["x"]), start);
        ring.take_due(start);
        ring.fetched(&source("x"), Some(Arc::from("k")), start);
        let mut waits = Vec::new();
        loop {
            let now = ring.next_due().unwrap();
            ring.take_due(now);
            let told = ring.fetched(&source("x"), None, now);
            waits.push(ring.next_due().unwrap() - now);
            if let Some(told) = told {
                assert_eq!(told, (source("x"), None));
                assert!(now - start >= MAX_AGE);
                break;
            }
        }
        assert_eq!(waits[..4], [1, 2, 4, 8].map(Duration::from_secs));
        assert!(waits.iter().all(|wait| *wait <= REFRESH));
    }
}

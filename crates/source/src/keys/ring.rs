//! Which keys are wanted, which are stored, and when each is fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use navarch_api::key_source::KeySource;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;

/// The delay of the next fetch after the first failure; each further failure doubles it.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// How long keys that can no longer be fetched stay trusted, as in istiod.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// Maximum size of all keys in bytes. A set of keys has a few thousand.
const MAX_BYTES: usize = 64 << 20;

/// A change of a key source.
#[derive(Debug, PartialEq)]
pub(super) struct KeyUpdate {
    pub(super) source: KeySource,
    /// Its keys; `None` if it has none any more.
    pub(super) keys: Option<Arc<str>>,
}

/// A source that is to be fetched now.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) source: KeySource,
    /// The timeout of the fetch.
    pub(super) timeout: Duration,
    /// Of the namespaces that want the source, the one that wants the fewest sources: one that
    /// wants many does not delay the fetch.
    pub(super) namespace: Namespace,
}

/// All sources.
#[derive(Debug)]
pub(super) struct Ring {
    /// How long keys are used before they are fetched again.
    refresh: Duration,
    /// The sources that policies refer to, with their keys.
    entries: BTreeMap<KeySource, WantedKeys>,
    /// Maximum size of all keys in bytes.
    most_bytes: usize,
    /// Current size of all keys in bytes.
    bytes: usize,
}

/// One source.
#[derive(Debug)]
struct WantedKeys {
    /// The policies that want it, with the timeout of each.
    wanted_by: BTreeMap<NamespacedName, Duration>,
    /// Its keys, with the time when they were fetched.
    keys: Option<(Arc<str>, Instant)>,
    /// Failures since the last success.
    failures: u32,
    /// Whether a fetch of it has ended.
    tried: bool,
    /// When it is fetched next; `None` while it is being fetched.
    due: Option<Instant>,
}

impl Ring {
    /// Without sources.
    pub(super) fn new(refresh: Duration) -> Self {
        Self {
            refresh,
            entries: BTreeMap::new(),
            most_bytes: MAX_BYTES,
            bytes: 0,
        }
    }

    /// Sets the sources that a policy wants. Returns those that no policy wants any more.
    pub(super) fn demand(
        &mut self,
        policy: &NamespacedName,
        sources: BTreeMap<KeySource, Duration>,
        now: Instant,
    ) -> Vec<KeyUpdate> {
        for entry in self.entries.values_mut() {
            entry.wanted_by.remove(policy);
        }

        for (source, timeout) in sources {
            let entry = self.entries.entry(source).or_insert_with(|| WantedKeys {
                wanted_by: BTreeMap::new(),
                keys: None,
                failures: 0,
                tried: false,
                due: Some(now),
            });
            entry.wanted_by.insert(policy.clone(), timeout);
        }

        let unwanted = |entry: &WantedKeys| entry.wanted_by.is_empty();
        let gone: BTreeSet<KeySource> = self
            .entries
            .iter()
            .filter(|(_, entry)| unwanted(entry))
            .map(|(source, _)| source.clone())
            .collect();

        self.bytes -= self
            .entries
            .values()
            .filter(|entry| unwanted(entry))
            .map(WantedKeys::bytes)
            .sum::<usize>();

        self.entries.retain(|_, entry| !unwanted(entry));
        gone.into_iter().map(KeyUpdate::without_keys).collect()
    }

    /// Whether a policy wants a source.
    pub(super) fn has_demand_of(&self, policy: &NamespacedName) -> bool {
        let mut entries = self.entries.values();
        entries.any(|entry| entry.wanted_by.contains_key(policy))
    }

    /// Returns the sources that are due, and marks them as being fetched.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Due> {
        let is_due = |entry: &WantedKeys| entry.due.is_some_and(|at| at <= now);
        if !self.entries.values().any(is_due) {
            return Vec::new();
        }

        let wanted = self.wanted();
        let mut due = Vec::new();

        for (source, entry) in self.entries.iter_mut().filter(|(_, entry)| is_due(entry)) {
            entry.due = None;
            let timeout = entry
                .wanted_by
                .values()
                .max()
                .copied()
                .unwrap_or(super::DEFAULT_TIMEOUT);
            let namespace = entry.charged_namespace(&wanted);
            due.push(Due {
                source: source.clone(),
                timeout,
                namespace,
            });
        }

        due
    }

    /// Number of sources that each namespace wants.
    fn wanted(&self) -> BTreeMap<Namespace, usize> {
        let mut wanted = BTreeMap::new();
        for entry in self.entries.values() {
            let namespaces: BTreeSet<&Namespace> = entry
                .wanted_by
                .keys()
                .map(|policy| &policy.namespace)
                .collect();
            for namespace in namespaces {
                *wanted.entry(namespace.clone()).or_default() += 1;
            }
        }
        wanted
    }

    /// When the next source is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.entries.values().filter_map(|entry| entry.due).min()
    }

    /// Whether a fetch of every source has ended.
    pub(super) fn all_tried(&self) -> bool {
        self.entries.values().all(|entry| entry.tried)
    }

    /// Stores the result of a fetch (`None` if it failed). Returns the changes: of this source, and
    /// of others whose keys are evicted.
    pub(super) fn fetched(
        &mut self,
        source: &KeySource,
        keys: Option<Arc<str>>,
        now: Instant,
    ) -> Vec<KeyUpdate> {
        let Some(before) = self.entries.get(source).map(WantedKeys::bytes) else {
            return Vec::new();
        };
        // Keys that do not fit count as a failure, and the previous keys stay.
        let (keys, mut updates) = match keys {
            Some(keys) => match self.make_room(source, keys.len()) {
                Ok(updates) => (Some(keys), updates),
                Err(Full) => {
                    tracing::warn!(%source, bytes = keys.len(), most = self.most_bytes, "JWKS of a token issuer exceeds the size limit; not stored");
                    (None, Vec::new())
                }
            },
            None => (None, Vec::new()),
        };
        updates.extend(self.put(source, keys, now));
        self.bytes = self.bytes - before + self.entries.get(source).map_or(0, WantedKeys::bytes);
        updates
    }

    /// Makes room for the keys of a source: evicts the largest keys of the namespace that holds the
    /// most.
    ///
    /// # Errors
    /// If no other namespace holds more than the one that wants the source.
    fn make_room(&mut self, source: &KeySource, bytes: usize) -> Result<Vec<KeyUpdate>, Full> {
        let needed = |ring: &Self| {
            ring.bytes - ring.entries.get(source).map_or(0, WantedKeys::bytes) + bytes
        };
        let mut updates = Vec::new();
        if needed(self) <= self.most_bytes {
            return Ok(updates);
        }

        let wanted = self.wanted();
        let mut held: BTreeMap<Namespace, BTreeSet<(usize, KeySource)>> = BTreeMap::new();

        for (place, entry) in self.entries.iter().filter(|(place, _)| *place != source) {
            if entry.keys.is_some() {
                held.entry(entry.charged_namespace(&wanted))
                    .or_default()
                    .insert((entry.bytes(), place.clone()));
            }
        }

        let own = self
            .entries
            .get(source)
            .map(|entry| entry.charged_namespace(&wanted));
        let sum = |places: &BTreeSet<(usize, KeySource)>| {
            places.iter().map(|(bytes, _)| bytes).sum::<usize>()
        };
        let mut sums: BTreeMap<Namespace, usize> = held
            .iter()
            .map(|(of, places)| (of.clone(), sum(places)))
            .collect();
        let own_sum = own.and_then(|own| sums.remove(&own)).unwrap_or_default() + bytes;

        while needed(self) > self.most_bytes {
            let largest = sums
                .iter_mut()
                .max_by_key(|(_, sum)| **sum)
                .filter(|(_, sum)| **sum > own_sum);
            let (holder, sum) = largest.ok_or(Full)?;
            let (bytes, place) = held
                .get_mut(holder)
                .and_then(BTreeSet::pop_last)
                .ok_or(Full)?;
            *sum -= bytes;

            self.bytes -= bytes;
            if let Some(entry) = self.entries.get_mut(&place) {
                entry.keys = None;
            }

            tracing::warn!(source = %place, bytes, "evicted the JWKS of a token issuer to stay within the size limit");
            updates.push(KeyUpdate::without_keys(place));
        }

        Ok(updates)
    }

    /// Stores the result of a fetch.
    fn put(
        &mut self,
        source: &KeySource,
        keys: Option<Arc<str>>,
        now: Instant,
    ) -> Option<KeyUpdate> {
        let refresh = self.refresh;
        let entry = self.entries.get_mut(source)?;
        entry.tried = true;

        if let Some(keys) = keys {
            entry.failures = 0;
            entry.due = Some(now + refresh);
            let known = entry.keys.replace((keys.clone(), now));
            return known
                .is_none_or(|(known, _)| known != keys)
                .then(|| KeyUpdate {
                    source: source.clone(),
                    keys: Some(keys),
                });
        }

        let wait =
            FIRST_RETRY.saturating_mul(1_u32.checked_shl(entry.failures).unwrap_or(u32::MAX));
        entry.failures = entry.failures.saturating_add(1);
        entry.due = Some(now + wait.min(refresh));
        let is_old = entry
            .keys
            .as_ref()
            .is_some_and(|(_, at)| now.saturating_duration_since(*at) >= MAX_AGE);
        if is_old {
            entry.keys = None;
        }

        is_old.then(|| KeyUpdate::without_keys(source.clone()))
    }
}

impl KeyUpdate {
    /// That a source has no keys any more.
    fn without_keys(source: KeySource) -> Self {
        Self { source, keys: None }
    }
}

impl WantedKeys {
    /// Size of its keys in bytes.
    fn bytes(&self) -> usize {
        self.keys.as_ref().map_or(0, |(keys, _)| keys.len())
    }

    /// Of the namespaces that want it, the one that wants the fewest sources; `wanted` has the
    /// number of each.
    fn charged_namespace(&self, wanted: &BTreeMap<Namespace, usize>) -> Namespace {
        let namespaces = self.wanted_by.keys().map(|policy| &policy.namespace);
        let fewest = namespaces.min_by_key(|namespace| wanted.get(*namespace));
        fewest.cloned().unwrap_or_else(|| Namespace::new(""))
    }
}

/// The size limit of all keys is reached.
#[derive(Debug)]
struct Full;

#[cfg(test)]
mod tests {
    use super::*;

    const REFRESH: Duration = Duration::from_mins(20);

    fn source(name: &str) -> KeySource {
        KeySource::Uri(Arc::from(name))
    }

    fn update(name: &str, keys: Option<Arc<str>>) -> KeyUpdate {
        let source = source(name);
        KeyUpdate { source, keys }
    }

    fn policy(name: &str) -> NamespacedName {
        NamespacedName::new("shop", name)
    }

    fn wants(names: &[&str]) -> BTreeMap<KeySource, Duration> {
        names
            .iter()
            .map(|name| (source(name), Duration::from_secs(5)))
            .collect()
    }

    #[test]
    fn one_fetch_serves_all_users_of_a_jwks() {
        let now = Instant::now();
        let mut ring = Ring::new(REFRESH);
        ring.demand(&policy("a"), wants(&["x"]), now);
        ring.demand(&policy("b"), wants(&["x", "y"]), now);
        assert_eq!(ring.take_due(now).len(), 2);
        assert!(ring.take_due(now).is_empty(), "both are under way");
        assert!(
            ring.demand(&policy("b"), wants(&[]), now)
                .iter()
                .eq(&[update("y", None)])
        );

        assert!(!ring.all_tried());
        assert_eq!(
            ring.fetched(&source("y"), Some(Arc::from("k")), now),
            [],
            "nobody wants it any more"
        );
        assert_eq!(
            ring.fetched(&source("x"), Some(Arc::from("k")), now),
            [update("x", Some(Arc::from("k")))]
        );

        assert!(ring.all_tried());
    }

    #[test]
    fn a_shared_jwks_counts_for_the_namespace_with_the_fewest() {
        let now = Instant::now();
        let mut ring = Ring::new(REFRESH);
        ring.demand(
            &NamespacedName::new("a-flood", "p"),
            wants(&["x", "y", "z"]),
            now,
        );
        ring.demand(&NamespacedName::new("shop", "p"), wants(&["x"]), now);

        let due: Vec<_> = ring
            .take_due(now)
            .into_iter()
            .map(|due| (due.source, due.namespace.to_string()))
            .collect();
        let expected = [("x", "shop"), ("y", "a-flood"), ("z", "a-flood")];
        assert_eq!(
            due,
            expected.map(|(place, namespace)| (source(place), namespace.to_owned()))
        );
    }

    #[test]
    fn unchanged_keys_are_not_reported_again() {
        let now = Instant::now();
        let mut ring = Ring::new(REFRESH);
        ring.demand(&policy("a"), wants(&["x"]), now);
        ring.take_due(now);
        assert_eq!(
            ring.fetched(&source("x"), Some(Arc::from("k")), now).len(),
            1
        );
        assert!(
            ring.take_due(now + REFRESH - Duration::from_secs(1))
                .is_empty()
        );
        assert_eq!(ring.take_due(now + REFRESH).len(), 1);
        assert_eq!(
            ring.fetched(&source("x"), Some(Arc::from("k")), now + REFRESH),
            []
        );
    }

    #[test]
    fn failed_fetches_back_off_and_keep_keys_for_a_week() {
        let start = Instant::now();
        let mut ring = Ring::new(REFRESH);
        ring.demand(&policy("a"), wants(&["x"]), start);
        ring.take_due(start);
        ring.fetched(&source("x"), Some(Arc::from("k")), start);
        let mut waits = Vec::new();

        loop {
            let now = ring.next_due().unwrap();
            ring.take_due(now);
            let changes = ring.fetched(&source("x"), None, now);
            waits.push(ring.next_due().unwrap() - now);
            if !changes.is_empty() {
                assert_eq!(changes, [update("x", None)]);
                assert!(now - start >= MAX_AGE);
                break;
            }
        }

        assert_eq!(waits[..4], [1, 2, 4, 8].map(Duration::from_secs));
        assert!(waits.iter().all(|wait| *wait <= REFRESH));
    }

    #[test]
    fn the_bytes_of_keys_are_shared_fairly() {
        let now = Instant::now();
        let mut ring = Ring {
            most_bytes: 10,
            ..Ring::new(REFRESH)
        };
        ring.demand(
            &NamespacedName::new("flood", "p"),
            wants(&["a", "b", "c"]),
            now,
        );

        ring.demand(&policy("p"), wants(&["x", "y"]), now);
        ring.take_due(now);
        let keys = |bytes: usize| Some(Arc::from("k".repeat(bytes)));
        assert_eq!(ring.fetched(&source("a"), keys(4), now).len(), 1);
        assert_eq!(ring.fetched(&source("b"), keys(5), now).len(), 1);
        assert_eq!(
            ring.fetched(&source("c"), keys(2), now),
            [],
            "who holds the most gets no more"
        );

        // Others get some of it: the largest keys go, and their place is asked again in its time.
        assert_eq!(
            ring.fetched(&source("x"), keys(3), now),
            [update("b", None), update("x", keys(3))]
        );
        assert_eq!(ring.bytes, 7);
        assert_eq!(
            ring.fetched(&source("x"), keys(6), now),
            [update("x", keys(6))],
            "in place of its own"
        );

        assert_eq!(
            ring.fetched(&source("x"), keys(7), now),
            [],
            "it would hold more than the other"
        );
        ring.demand(&policy("p"), BTreeMap::new(), now);
        assert_eq!(ring.bytes, 4);
    }
}

//! When the SPIFFE endpoints of mesh config are fetched, and the roots that they returned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Fetched;

/// Refresh interval of SPIFFE endpoints, as in istiod.
const REFRESH_INTERVAL: Duration = Duration::from_mins(30);
/// Retry delay of a failed endpoint.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// The SPIFFE endpoints of mesh config. The roots of an endpoint stay while it fails.
#[derive(Debug, Default)]
pub struct BundleEndpoints {
    fetched: Fetched,
    /// When each is fetched next.
    due: BTreeMap<String, Instant>,
}

impl BundleEndpoints {
    /// The endpoints to fetch now, of those that mesh config names. Others are forgotten.
    pub fn due(&mut self, named: &BTreeSet<String>, now: Instant) -> Vec<String> {
        self.due.retain(|endpoint, _| named.contains(endpoint));
        self.fetched.retain(|endpoint, _| named.contains(endpoint));
        let is_due = |endpoint: &&String| self.due.get(*endpoint).is_none_or(|due| *due <= now);
        named.iter().filter(is_due).cloned().collect()
    }

    /// Stores the roots of an endpoint. Returns whether they are others than before.
    pub fn set_roots(&mut self, endpoint: String, roots: Arc<[Arc<str>]>, now: Instant) -> bool {
        self.due.insert(endpoint.clone(), now + REFRESH_INTERVAL);
        let before = self.fetched.insert(endpoint, roots.clone());
        before != Some(roots)
    }

    /// Notes that an endpoint has failed.
    pub fn set_failed(&mut self, endpoint: String, now: Instant) {
        self.due.insert(endpoint, now + RETRY_DELAY);
    }

    /// When the next endpoint is due; `None` if there is none.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }

    /// The roots of all endpoints.
    #[must_use]
    pub fn fetched(&self) -> &Fetched {
        &self.fetched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_fetched_again_after_their_interval_and_keep_roots_while_they_fail() {
        let start = Instant::now();
        let named = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let root: Arc<[Arc<str>]> = Arc::from([Arc::from("root")]);
        let mut endpoints = BundleEndpoints::default();
        assert_eq!(endpoints.next_due(), None);
        assert_eq!(endpoints.due(&named, start), ["a", "b"]);

        assert!(endpoints.set_roots("a".to_owned(), root.clone(), start));
        endpoints.set_failed("b".to_owned(), start);
        assert_eq!(endpoints.next_due(), Some(start + RETRY_DELAY));
        assert!(endpoints.due(&named, start).is_empty());
        assert_eq!(endpoints.due(&named, start + RETRY_DELAY), ["b"]);

        let later = start + REFRESH_INTERVAL;
        assert_eq!(endpoints.due(&named, later), ["a", "b"]);
        endpoints.set_failed("a".to_owned(), later);
        assert_eq!(endpoints.fetched().get("a"), Some(&root));
        assert!(!endpoints.set_roots("a".to_owned(), root.clone(), later));

        let only_b = BTreeSet::from(["b".to_owned()]);
        assert_eq!(endpoints.due(&only_b, later), ["b"]);
        assert!(endpoints.fetched().is_empty(), "mesh config lacks a");
    }
}

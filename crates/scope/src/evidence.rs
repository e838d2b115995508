//! What proxies have counted, summed over readings.
//!
//! Counters of proxies grow until Envoy restarts. Evidence keeps the last counters of each pod, and
//! adds what they have grown by, as `increase` of Prometheus does: the same page read twice counts
//! once, and pods that are gone stay counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::moment::Moment;
use super::reading::{MAX_CLIENTS, MAX_HOSTS, MAX_OUTSIDE, Reading, Seen};
use super::workload::WorkloadName;

/// Maximum size in bytes of evidence that a control plane reads edges from: that of about 100,000 edges,
/// without what a later run of `navarch scope` adds to ([`Evidence::into_edge_evidence`]).
pub const MAX_EDGE_EVIDENCE: usize = 16 << 20;
/// The version of the JSON form.
const FORMAT: u32 = 1;
/// The maximum number of pods of a workload whose last counters are kept. Those read least recently
/// give way.
const MAX_INSTANCES: usize = 500;
/// The maximum number of workloads with evidence.
const MAX_WORKLOADS: usize = 20_000;

/// Numbers of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// HTTP and gRPC requests.
    pub requests: u64,
    /// Opened TCP connections.
    pub connections: u64,
    /// Those of both without an answer, or with a status from 500 on, apart from denied ones.
    pub failed: u64,
    /// Those with the status 403, or with the flag of external authorization (UAEX).
    pub denied: u64,
}

/// Counts with the time of the last reading that had more of them than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Calls {
    /// Over all readings and pods.
    #[serde(flatten)]
    pub counts: Counts,
    /// `None` if there are none.
    pub last_seen: Option<Moment>,
}

/// The last counters of one pod or source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Instance {
    read: Moment,
    #[serde(flatten)]
    seen: Seen,
}

/// The evidence about one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// Since when its calls were counted; `None` if no source has a time.
    pub since: Option<Moment>,
    /// The last reading.
    pub read: Moment,
    /// Calls by host of the registry.
    #[serde(default)]
    pub calls: BTreeMap<String, Calls>,
    /// Calls to what is not in the registry: `PassthroughCluster`, `BlackHoleCluster`, `unknown`,
    /// or a host.
    #[serde(default)]
    pub outside: BTreeMap<String, Calls>,
    /// The sum of those that are not kept one by one.
    #[serde(default)]
    pub more_outside: Calls,
    /// Requests of clients, by principal; empty without mutual TLS.
    #[serde(default)]
    pub clients: BTreeMap<String, Calls>,
    /// Whether its proxies have counted calls to more different hosts than are kept.
    #[serde(default)]
    pub is_truncated: bool,
    /// Whether they have counted more different clients than are kept.
    #[serde(default)]
    pub has_more_clients: bool,
    /// By the name of the pod or source.
    #[serde(default)]
    instances: BTreeMap<String, Instance>,
}

/// The evidence about all workloads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    format: u32,
    /// By namespace and name.
    pub workloads: BTreeMap<WorkloadName, Observed>,
}

/// Why a file has no evidence.
#[derive(Debug, Error)]
pub enum EvidenceError {
    /// It is not the JSON of a former run.
    #[error("is not the JSON output of navarch scope")]
    Json(#[from] serde_json::Error),
    /// It is of a later release.
    #[error("has the format {0}; this release reads {FORMAT}")]
    Format(u32),
}

impl Default for Evidence {
    fn default() -> Self {
        Self {
            format: FORMAT,
            workloads: BTreeMap::new(),
        }
    }
}

impl Counts {
    /// Requests and connections.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.saturating_add(self.connections)
    }

    /// Adds each number. Sums stay at the largest one that there is.
    pub fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.connections = self.connections.saturating_add(other.connections);
        self.failed = self.failed.saturating_add(other.failed);
        self.denied = self.denied.saturating_add(other.denied);
    }

    /// What counters have grown by: all of them if they have begun again.
    fn growth_since(self, earlier: Self, is_window: bool) -> Self {
        let grown = |now: u64, before: u64| match now.checked_sub(before) {
            Some(grown) => grown,
            // The window has moved on, and contains no new calls.
            None if is_window => 0,
            None => now,
        };
        Self {
            requests: grown(self.requests, earlier.requests),
            connections: grown(self.connections, earlier.connections),
            failed: grown(self.failed, earlier.failed),
            denied: grown(self.denied, earlier.denied),
        }
    }
}

impl Calls {
    /// Adds what a reading has counted anew.
    fn grow(&mut self, growth: Counts, read: Moment) {
        self.counts.add(growth);
        if growth.total() > 0 {
            self.last_seen = self.last_seen.max(Some(read));
        }
    }
}

/// The counters of one kind, in a reading and in the one before.
struct Counters<'a> {
    now: &'a BTreeMap<String, Counts>,
    before: Option<&'a BTreeMap<String, Counts>>,
}

impl Counters<'_> {
    /// Adds their growth to totals of at most `limit` different ones, and returns the growth of
    /// those that are left out.
    fn add_to(
        &self,
        totals: &mut BTreeMap<String, Calls>,
        limit: usize,
        reading: &Reading,
    ) -> Counts {
        let mut left_out = Counts::default();
        for (key, counts) in self.now {
            let earlier = self.before.and_then(|before| before.get(key)).copied();
            let growth = counts.growth_since(earlier.unwrap_or_default(), reading.is_window);
            if let Some(calls) = totals.get_mut(key) {
                calls.grow(growth, reading.read);
            } else if totals.len() < limit {
                let calls = totals.entry(key.clone()).or_default();
                calls.grow(growth, reading.read);
            } else {
                left_out.add(growth);
            }
        }
        left_out
    }
}

impl Observed {
    fn new(read: Moment) -> Self {
        Self {
            since: None,
            read,
            calls: BTreeMap::new(),
            outside: BTreeMap::new(),
            more_outside: Calls::default(),
            clients: BTreeMap::new(),
            is_truncated: false,
            has_more_clients: false,
            instances: BTreeMap::new(),
        }
    }

    /// Adds what a source has counted of this workload.
    fn add(&mut self, reading: &Reading, seen: &Seen) {
        let before = self.instances.get(&reading.instance).cloned();
        // An older reading of the same pod is contained in the newer one.
        if before
            .as_ref()
            .is_some_and(|before| before.read > reading.read)
        {
            return;
        }

        let before = before.as_ref().map(|instance| &instance.seen);
        self.add_growth(reading, seen, before);
        self.read = self.read.max(reading.read);
        self.since = match (self.since, reading.since) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.keep(reading, seen);
    }

    /// Adds what the counters have grown by since the reading before.
    fn add_growth(&mut self, reading: &Reading, seen: &Seen, before: Option<&Seen>) {
        let calls = Counters {
            now: &seen.calls,
            before: before.map(|seen| &seen.calls),
        };
        let left_out = calls.add_to(&mut self.calls, MAX_HOSTS, reading);
        self.is_truncated |= seen.is_truncated || left_out.total() > 0;

        let clients = Counters {
            now: &seen.clients,
            before: before.map(|seen| &seen.clients),
        };
        let left_out = clients.add_to(&mut self.clients, MAX_CLIENTS, reading);
        self.has_more_clients |= seen.has_more_clients || left_out.total() > 0;

        let outside = Counters {
            now: &seen.outside,
            before: before.map(|seen| &seen.outside),
        };
        let mut more = outside.add_to(&mut self.outside, MAX_OUTSIDE, reading);
        let earlier = before.map(|seen| seen.more_outside).unwrap_or_default();
        more.add(seen.more_outside.growth_since(earlier, reading.is_window));
        self.more_outside.grow(more, reading.read);
    }

    /// Keeps the counters for the next reading of the same source.
    fn keep(&mut self, reading: &Reading, seen: &Seen) {
        let instance = Instance {
            read: reading.read,
            seen: seen.clone(),
        };
        self.instances.insert(reading.instance.clone(), instance);

        while self.instances.len() > MAX_INSTANCES {
            let oldest = self
                .instances
                .iter()
                .min_by_key(|(_, instance)| instance.read);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
                break;
            };
            self.instances.remove(&oldest);
        }
    }

    /// Whether no call to a host of the registry was counted.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.calls.values().all(|calls| calls.counts.total() == 0)
    }

    /// The number of pods and sources that were read.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.instances.len()
    }
}

impl Evidence {
    /// Reads the evidence in the JSON output of a former run.
    ///
    /// # Errors
    /// If the text is no such output, or has another format.
    pub fn parse(text: &[u8]) -> Result<Self, EvidenceError> {
        #[derive(Deserialize)]
        struct Output<T> {
            evidence: T,
        }
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }

        // Another format may have other fields.
        let Output { evidence } = serde_json::from_slice::<Output<Version>>(text)?;
        if evidence.format != FORMAT {
            return Err(EvidenceError::Format(evidence.format));
        }
        let Output { evidence } = serde_json::from_slice(text)?;
        Ok(evidence)
    }

    /// The sums over all readings, without what further readings are added by: the last counters of
    /// each pod. Clients are left out, too, as edges have none.
    #[must_use]
    pub fn into_edge_evidence(mut self) -> Self {
        for observed in self.workloads.values_mut() {
            observed.instances.clear();
            observed.clients.clear();
        }
        self
    }

    /// Adds a reading. Workloads beyond `MAX_WORKLOADS` are left out.
    pub fn add(&mut self, reading: &Reading) {
        for (name, seen) in &reading.workloads {
            if self.workloads.len() >= MAX_WORKLOADS && !self.workloads.contains_key(name) {
                continue;
            }
            let observed = self.workloads.entry(name.clone());
            let observed = observed.or_insert_with(|| Observed::new(reading.read));
            observed.add(reading, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Moment {
        let start: Moment = serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap();
        start.before(-60 * minute)
    }

    fn reading(instance: &str, minute: i64, requests: u64) -> Reading {
        let counts = Counts {
            requests,
            ..Counts::default()
        };
        let seen = Seen {
            calls: BTreeMap::from([("reviews".to_owned(), counts)]),
            ..Seen::default()
        };
        Reading {
            workloads: BTreeMap::from([(WorkloadName::new("shop", "web"), seen)]),
            ..Reading::new(instance, at(minute))
        }
    }

    fn requests(evidence: &Evidence) -> u64 {
        let observed = &evidence.workloads[&WorkloadName::new("shop", "web")];
        observed.calls["reviews"].counts.requests
    }

    #[test]
    fn counters_of_a_pod_count_once_and_those_of_several_pods_are_summed() {
        let mut evidence = Evidence::default();
        evidence.add(&reading("web-1", 0, 10));
        evidence.add(&reading("web-1", 1, 10));
        assert_eq!(requests(&evidence), 10);
        evidence.add(&reading("web-1", 2, 14));
        evidence.add(&reading("web-2", 2, 5));
        assert_eq!(requests(&evidence), 19);

        evidence.add(&reading("web-1", 3, 3));
        assert_eq!(requests(&evidence), 22, "its Envoy has restarted");
        evidence.add(&reading("web-1", 1, 14));
        assert_eq!(requests(&evidence), 22, "an older reading");
    }

    #[test]
    fn a_call_was_last_seen_when_it_was_last_counted_anew() {
        let mut evidence = Evidence::default();
        evidence.add(&reading("web-1", 0, 10));
        evidence.add(&reading("web-1", 5, 10));
        let observed = &evidence.workloads[&WorkloadName::new("shop", "web")];
        assert_eq!(observed.calls["reviews"].last_seen, Some(at(0)));
        assert_eq!(observed.read, at(5));
    }

    #[test]
    fn a_window_of_prometheus_that_moves_on_counts_nothing_anew() {
        let window = |minute, requests| Reading {
            is_window: true,
            ..reading("prometheus", minute, requests)
        };
        let mut evidence = Evidence::default();
        evidence.add(&window(0, 10));
        evidence.add(&window(1, 8));
        assert_eq!(requests(&evidence), 10);
        evidence.add(&window(2, 11));
        assert_eq!(requests(&evidence), 13);
    }

    #[test]
    fn evidence_accumulates_over_its_json() {
        let mut evidence = Evidence::default();
        evidence.add(&reading("web-1", 0, 10));
        let json = serde_json::json!({ "evidence": evidence, "workloads": [] }).to_string();
        let mut again = Evidence::parse(json.as_bytes()).unwrap();
        assert_eq!(again, evidence);
        again.add(&reading("web-1", 1, 12));
        assert_eq!(requests(&again), 12);

        assert!(Evidence::parse(b"{}").is_err());
        let later = json.replace("\"format\":1", "\"format\":2");
        let other_fields = r#"{"evidence":{"format":2,"proxies":[]}}"#;
        for later in [&later, other_fields] {
            assert!(matches!(
                Evidence::parse(later.as_bytes()),
                Err(EvidenceError::Format(2))
            ));
        }
    }

    #[test]
    fn what_a_workload_has_called_is_bounded_over_readings() {
        let mut evidence = Evidence::default();
        let counts = Counts {
            requests: 1,
            ..Counts::default()
        };
        for run in 0..=MAX_HOSTS {
            let key = run.to_string();
            let only = || BTreeMap::from([(key.clone(), counts)]);
            let seen = Seen {
                calls: only(),
                outside: only(),
                clients: only(),
                ..Seen::default()
            };
            evidence.add(&Reading {
                workloads: BTreeMap::from([(WorkloadName::new("shop", "web"), seen)]),
                ..Reading::new("web-1", at(0))
            });
        }

        let observed = &evidence.workloads[&WorkloadName::new("shop", "web")];
        assert_eq!(observed.calls.len(), MAX_HOSTS);
        assert_eq!(observed.clients.len(), MAX_CLIENTS);
        assert_eq!(observed.outside.len(), MAX_OUTSIDE);
        let more = u64::try_from(MAX_HOSTS + 1 - MAX_OUTSIDE).unwrap();
        assert_eq!(observed.more_outside.counts.requests, more);
        assert!(observed.is_truncated && observed.has_more_clients);
    }

    #[test]
    fn no_name_of_a_destination_is_that_of_the_sum_of_further_ones() {
        let with_more = |minute, more| {
            let counts = |requests| Counts {
                requests,
                ..Counts::default()
            };
            let seen = Seen {
                outside: BTreeMap::from([("others".to_owned(), counts(7))]),
                more_outside: counts(more),
                ..Seen::default()
            };
            Reading {
                workloads: BTreeMap::from([(WorkloadName::new("shop", "web"), seen)]),
                ..Reading::new("web-1", at(minute))
            }
        };

        let mut evidence = Evidence::default();
        evidence.add(&with_more(0, 5));
        evidence.add(&with_more(1, 8));
        let observed = &evidence.workloads[&WorkloadName::new("shop", "web")];
        assert_eq!(observed.outside["others"].counts.requests, 7);
        assert_eq!(observed.more_outside.counts.requests, 8);
        assert_eq!(observed.more_outside.last_seen, Some(at(1)));
    }

    #[test]
    fn the_pods_with_kept_counters_are_bounded() {
        let mut evidence = Evidence::default();
        let many = i64::try_from(MAX_INSTANCES).unwrap() + 10;
        for pod in 0..many {
            evidence.add(&reading(&format!("web-{pod}"), pod, 1));
        }
        let observed = &evidence.workloads[&WorkloadName::new("shop", "web")];
        assert_eq!(observed.sources(), MAX_INSTANCES);
        assert_eq!(i64::try_from(requests(&evidence)).unwrap(), many);
        assert!(!observed.instances.contains_key("web-0"));
    }
}

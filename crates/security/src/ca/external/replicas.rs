//! Reports between replicas about the roots of a signer: a new root is used once the proxies of all
//! replicas trust it.
//!
//! The reports are annotations of the ConfigMap with the roots that proxies trust. Each replica
//! reads them regularly, also while it distributes no root: another one may distribute a root that
//! this one does not know yet. This one then reports the roots that it knows, and the other waits.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tokio::time::{Instant, timeout};

use super::super::replica_report::{
    HEARTBEAT_INTERVAL, REPORT_INTERVAL, is_forgotten, of_others, others_differ, text,
};
use super::super::root_store::short;
use super::super::rotation::Missing;
use super::stored::{NAME, empty_map, put};
use crate::Clock;
use navarch_kubernetes::{InWords, is_conflict};

/// Interval of reading the reports of others while no root is distributed here. Less than the
/// minute for which they wait for a replica that is silent.
pub(super) const IDLE_INTERVAL: Duration = Duration::from_secs(20);
/// The time for one exchange: roots of the signer are not followed meanwhile.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The suffix of the prefix of annotations with reports, which begins with the signer's name.
const REPORT: &str = ".replica.navarch.io/";

/// The ConfigMap in which replicas report. Who may write it may also write the mesh config.
#[derive(Clone, Debug)]
pub struct Replicas {
    maps: Box<Api<ConfigMap>>,
    /// The name of this replica.
    own: String,
    clock: Clock,
}

/// What this replica knows of a signer's roots.
#[derive(Clone, Debug)]
pub(super) struct OwnState {
    /// The roots in PEM, in an order that all replicas agree on.
    pub(super) roots: String,
    /// How long the newest one has been distributed; `None` if no root is being distributed.
    pub(super) age: Option<Duration>,
    /// The own proxies that lack a root.
    pub(super) missing: Vec<Missing>,
}

/// The exchange about the roots of one signer.
pub(super) struct Exchange<'a> {
    replicas: &'a Replicas,
    /// The prefix of annotations with reports.
    prefix: String,
    /// The last report of this replica.
    written: Option<WrittenReport>,
    /// Whether the last exchange failed.
    has_failed: bool,
}

/// The last report of this replica in the ConfigMap.
struct WrittenReport {
    roots: String,
    missing: Vec<Missing>,
    at: Instant,
}

/// Why the reports of others cannot be read, or the own one not written.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    /// The API server fails.
    #[error("{}", InWords(.0))]
    Kubernetes(#[from] kube::Error),
    /// It does not answer.
    #[error("no answer of the API server within {EXCHANGE_TIMEOUT:?}")]
    TimedOut,
}

impl Replicas {
    /// Reports under the name of this replica, in the ConfigMap `navarch-signer-roots`.
    #[must_use]
    pub fn new(maps: Api<ConfigMap>, own: &str, clock: Clock) -> Self {
        Self {
            maps: Box::new(maps),
            own: own.to_owned(),
            clock,
        }
    }

    /// The exchange about a signer.
    pub(super) fn exchange(&self, signer: &str) -> Exchange<'_> {
        Exchange {
            replicas: self,
            prefix: format!("{signer}{REPORT}"),
            written: None,
            has_failed: false,
        }
    }
}

impl Exchange<'_> {
    /// Reports to other replicas what is new here. Returns which of their proxies lack a root that
    /// is being distributed here. If their reports cannot be read, "other replicas" lack it.
    pub(super) async fn missing_elsewhere(&mut self, own: &OwnState) -> Vec<Missing> {
        let exchanged = timeout(EXCHANGE_TIMEOUT, self.exchange(own)).await;
        let error = match exchanged.unwrap_or(Err(ExchangeError::TimedOut)) {
            Ok(missing) => {
                self.has_failed = false;
                return missing;
            }
            Err(error) => error,
        };

        if !std::mem::replace(&mut self.has_failed, true) {
            tracing::warn!(
                %error,
                "failed to exchange with other replicas which proxies trust the signer's roots"
            );
        }
        vec![Missing {
            who: "other replicas".to_owned(),
            why: error.to_string(),
        }]
    }

    async fn exchange(&mut self, own: &OwnState) -> Result<Vec<Missing>, ExchangeError> {
        let now = (self.replicas.clock)();
        let map = self.replicas.maps.get_opt(NAME).await?;
        let reports = self.reports(map.as_ref());
        if self.is_due(own, &reports, now) {
            self.report(map, own, now).await?;
        }

        let since = own.age.map(|age| now - age);
        Ok(since.map_or_else(Vec::new, |since| {
            of_others(&reports, &self.replicas.own, &own.roots, since, now)
        }))
    }

    /// The reports about this signer, by replica.
    fn reports(&self, map: Option<&ConfigMap>) -> BTreeMap<String, String> {
        let annotations = map.and_then(|map| map.metadata.annotations.as_ref());
        let reports = annotations.into_iter().flatten();
        reports
            .filter_map(|(name, text)| {
                let replica = name.strip_prefix(&self.prefix)?;
                Some((replica.to_owned(), text.clone()))
            })
            .collect()
    }

    /// Whether to write a report: the last one was removed or is no longer true, or its interval is
    /// over, which is shorter while a root is being distributed here or elsewhere.
    fn is_due(&self, own: &OwnState, reports: &BTreeMap<String, String>, now: SystemTime) -> bool {
        let Some(written) = &self.written else {
            return true;
        };
        let is_distributing =
            own.age.is_some() || others_differ(reports, &self.replicas.own, &own.roots, now);
        let interval = match is_distributing {
            true => REPORT_INTERVAL,
            false => HEARTBEAT_INTERVAL,
        };
        let is_removed = !reports.contains_key(&short(&self.replicas.own));
        is_removed
            || written.roots != own.roots
            || written.missing != own.missing
            || written.at.elapsed() >= interval
    }

    /// Writes the own report, and removes expired ones. If another replica writes at the same time,
    /// the next exchange tries again.
    async fn report(
        &mut self,
        map: Option<ConfigMap>,
        own: &OwnState,
        now: SystemTime,
    ) -> Result<(), kube::Error> {
        let exists = map.is_some();
        let mut map = map.unwrap_or_else(empty_map);

        let annotations = map.metadata.annotations.get_or_insert_default();
        annotations.retain(|name, text| !name.contains(REPORT) || !is_forgotten(text, now));
        let name = format!("{}{}", self.prefix, short(&self.replicas.own));
        annotations.insert(name, text(&own.missing, &own.roots, now));

        match put(&self.replicas.maps, &map, exists).await {
            Ok(()) => {
                self.written = Some(WrittenReport {
                    roots: own.roots.clone(),
                    missing: own.missing.clone(),
                    at: Instant::now(),
                });
                Ok(())
            }
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

//! The keys of token issuers, fetched from the URLs in RequestAuthentications.
//!
//! ```text
//! RequestAuthentications ─▶ ring: what is wanted, what is due ─▶ fetch (address policy, no redirects) ─▶ Keys
//! ```
//!
//! Keys are fetched once for all policies with the same source, again after the refresh interval,
//! and after failures at increasing intervals. Valid keys are kept while fetching fails, up to a
//! week. A source whose keys were never fetched has none, and no token of its issuer is accepted.

mod fetch;
mod ring;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

pub use fetch::{FetchError, Fetcher};
use ring::{Due, KeyUpdate, Ring};

use super::{Batch, SourceEvent};
use navarch_api::any_object::AnyObject;
use navarch_api::duration::Duration as GoDuration;
use navarch_api::key_source::KeySource;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_base::counter::Count;
use navarch_net::destination::AddressPolicy;
use navarch_net::fair_semaphore::FairSemaphore;

/// The timeout of a fetch if the rule sets none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of concurrent fetches: a user with many sources must not cause as many
/// connections.
const MAX_CONCURRENT_FETCHES: usize = 32;
/// How long the first fetches may delay readiness: many sources may be slow or never respond.
const INITIAL_FETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the keys of a deleted policy are kept: longer than the policy stays in force. Without
/// them it would reject all tokens, and one that is created again would wait for a fetch.
const WITHDRAWAL_DELAY: Duration = Duration::from_secs(1);

/// A change of the wanted keys.
#[derive(Clone, Debug)]
pub enum Demand {
    /// The sources in a RequestAuthentication, with the timeout of each; empty if it was deleted.
    Of(NamespacedName, BTreeMap<KeySource, Duration>),
    /// All initial policies were received.
    Complete,
}

impl Demand {
    /// The keys that an object requires, if it is a RequestAuthentication.
    #[must_use]
    pub fn by(object: &AnyObject) -> Option<Self> {
        let AnyObject::RequestAuthentication(policy) = object else {
            return None;
        };
        let wanted = policy.spec.jwt_rules.iter().filter_map(|rule| {
            let timeout = rule.timeout.and_then(GoDuration::as_std);
            Some((rule.key_source()?, timeout.unwrap_or(DEFAULT_TIMEOUT)))
        });
        Some(Self::Of(policy.meta.key(), wanted.collect()))
    }
}

/// How keys are fetched.
#[derive(Clone, Debug)]
pub struct KeyConfig {
    /// How long keys are used before they are fetched again.
    pub refresh: Duration,
    /// Which addresses may be connected to.
    pub addresses: AddressPolicy,
}

/// Counters of fetches. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct KeyMetrics {
    /// Successful fetches.
    pub fetched: Count,
    /// Failed fetches.
    pub failed: Count,
}

/// Fetches keys and keeps them fresh.
#[derive(Debug)]
pub struct KeyFetching {
    /// The wanted sources and their keys.
    ring: Ring,
    /// The policies that want no keys any more, with the time from which that applies.
    withdrawn: BTreeMap<NamespacedName, Instant>,
    fetches: Fetches,
    metrics: KeyMetrics,
}

/// Fetches in progress.
#[derive(Debug)]
struct Fetches {
    fetcher: Arc<Fetcher>,
    /// Limits concurrent fetches, fairly among the namespaces that want keys.
    turns: Arc<FairSemaphore<Namespace>>,
    /// One task for each source.
    tasks: JoinSet<Fetched>,
    /// Aborts the task of a source.
    handles: BTreeMap<KeySource, AbortHandle>,
}

/// The keys of a source, or the error.
type Fetched = (KeySource, Result<Arc<str>, FetchError>);

impl Fetches {
    /// Starts to fetch a source.
    fn begin(&mut self, due: Due) {
        let fetcher = self.fetcher.clone();
        let turns = self.turns.clone();
        let source = due.source.clone();
        let handle = self.tasks.spawn(async move {
            let _turn = turns.take(due.namespace).await;
            let keys = fetcher.keys(&due.source, due.timeout).await;
            (due.source, keys)
        });
        self.handles.insert(source, handle);
    }

    /// Aborts the fetch of a source that is no longer wanted.
    fn cancel(&mut self, source: &KeySource) {
        if let Some(handle) = self.handles.remove(source) {
            handle.abort();
        }
    }

    /// The next completed fetch. Pending while no fetch is in progress.
    async fn next(&mut self) -> Fetched {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(fetched)) => {
                    self.handles.remove(&fetched.0);
                    return fetched;
                }
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

impl KeyFetching {
    /// Without sources.
    #[must_use]
    pub fn new(config: KeyConfig) -> Self {
        let fetches = Fetches {
            fetcher: Arc::new(Fetcher::new(config.addresses)),
            turns: FairSemaphore::new(MAX_CONCURRENT_FETCHES, usize::MAX),
            tasks: JoinSet::new(),
            handles: BTreeMap::new(),
        };
        Self {
            ring: Ring::new(config.refresh),
            withdrawn: BTreeMap::new(),
            fetches,
            metrics: KeyMetrics::default(),
        }
    }

    /// The same with other metrics.
    #[must_use]
    pub fn counted_by(self, metrics: KeyMetrics) -> Self {
        Self { metrics, ..self }
    }

    /// Runs until the channel of demands or of events is closed. Reports a full sync once all
    /// initially wanted keys were tried, or after a timeout: reconnecting proxies must not get
    /// empty key sets while the fetches are in flight.
    pub async fn run(mut self, mut demands: mpsc::Receiver<Demand>, out: mpsc::Sender<Batch>) {
        let mut complete = None;
        let mut synced = false;

        // Pending events wait here: the sender of demands also receives events, so a full channel
        // must not block both.
        let mut events: Batch = Vec::new();

        loop {
            let now = Instant::now();
            events.extend(self.withdraw_due(now).into_iter().map(SourceEvent::from));
            for due in self.ring.take_due(now) {
                self.fetches.begin(due);
            }

            let last = complete.map(|since: Instant| since + INITIAL_FETCH_TIMEOUT);
            if !synced && last.is_some_and(|last| self.ring.all_tried() || last <= Instant::now()) {
                synced = true;
                events.push(SourceEvent::FullSync);
            }

            let next = [
                self.ring.next_due(),
                self.withdrawn.values().min().copied(),
                last.filter(|_| !synced),
            ]
            .into_iter()
            .flatten()
            .min();
            let wait = next.map(|next| next.saturating_duration_since(Instant::now()));
            let news = tokio::select! {
                room = out.reserve(), if !events.is_empty() => match room {
                    Ok(room) => {
                        room.send(std::mem::take(&mut events));
                        Vec::new()
                    }
                    Err(_) => return,
                },
                demand = demands.recv() => match demand {
                    Some(Demand::Of(policy, sources)) => {
                        self.demand(policy, sources, Instant::now())
                    }
                    Some(Demand::Complete) => { complete = Some(Instant::now()); Vec::new() }
                    None => return,
                },
                (source, keys) = self.fetches.next() => {
                    match &keys {
                        Ok(_) => self.metrics.fetched.inc(),
                        Err(_) => self.metrics.failed.inc(),
                    };
                    if let Err(error) = &keys {
                        tracing::warn!(%source, %error, "failed to fetch the JWKS of a token issuer");
                    }
                    self.ring.fetched(&source, keys.ok(), Instant::now())
                }
                () = sleep(wait) => Vec::new(),
            };

            events.extend(news.into_iter().map(SourceEvent::from));
        }
    }

    /// Sets the sources that a policy wants; if there are none, later.
    fn demand(
        &mut self,
        policy: NamespacedName,
        sources: BTreeMap<KeySource, Duration>,
        now: Instant,
    ) -> Vec<KeyUpdate> {
        if sources.is_empty() {
            if self.ring.has_demand_of(&policy) {
                self.withdrawn
                    .entry(policy)
                    .or_insert(now + WITHDRAWAL_DELAY);
            }
            return Vec::new();
        }

        self.withdrawn.remove(&policy);
        self.set_demand(&policy, sources, now)
    }

    /// Forgets what policies wanted that have wanted nothing for a while.
    fn withdraw_due(&mut self, now: Instant) -> Vec<KeyUpdate> {
        let due: Vec<NamespacedName> = self
            .withdrawn
            .extract_if(.., |_, at| *at <= now)
            .map(|(policy, _)| policy)
            .collect();

        due.iter()
            .flat_map(|policy| self.set_demand(policy, BTreeMap::new(), now))
            .collect()
    }

    fn set_demand(
        &mut self,
        policy: &NamespacedName,
        sources: BTreeMap<KeySource, Duration>,
        now: Instant,
    ) -> Vec<KeyUpdate> {
        let gone = self.ring.demand(policy, sources, now);
        for update in &gone {
            self.fetches.cancel(&update.source);
        }
        gone
    }
}

impl From<KeyUpdate> for SourceEvent {
    fn from(update: KeyUpdate) -> Self {
        Self::Keys(update.source, update.keys)
    }
}

/// Sleeps for a duration; forever if it is `None`.
async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::net::TcpListener;

    use super::*;

    /// What a policy of a namespace wants.
    fn demand(namespace: &str, places: impl IntoIterator<Item = String>) -> Demand {
        let places = places
            .into_iter()
            .map(|place| (KeySource::Uri(Arc::from(place)), Duration::from_mins(1)));
        Demand::Of(NamespacedName::new(namespace, "jwt"), places.collect())
    }

    #[test]
    fn a_policy_that_is_deleted_and_created_again_keeps_its_keys() {
        let mut fetching = KeyFetching::new(KeyConfig {
            refresh: Duration::from_mins(20),
            addresses: AddressPolicy::default(),
        });
        let policy = NamespacedName::new("shop", "jwt");
        let source = KeySource::Uri(Arc::from("http://issuer.example/keys"));
        let wanted = BTreeMap::from([(source.clone(), DEFAULT_TIMEOUT)]);
        let nothing = BTreeMap::new;
        let start = Instant::now();
        fetching.demand(policy.clone(), wanted.clone(), start);
        let keys: Arc<str> = Arc::from("{}");
        fetching.ring.fetched(&source, Some(keys), start);

        // It is there again before its keys are forgotten.
        let soon = start + WITHDRAWAL_DELAY / 2;
        let later = start + WITHDRAWAL_DELAY;
        assert_eq!(fetching.demand(policy.clone(), nothing(), start), []);
        assert_eq!(fetching.withdraw_due(soon), []);
        assert_eq!(fetching.demand(policy.clone(), wanted, soon), []);
        assert_eq!(fetching.withdraw_due(later), []);

        assert_eq!(fetching.demand(policy, nothing(), later), []);
        let last = later + WITHDRAWAL_DELAY;
        let forgotten = KeyUpdate { source, keys: None };
        assert_eq!(fetching.withdraw_due(last), [forgotten]);
        assert!(fetching.withdrawn.is_empty());
    }

    #[tokio::test]
    async fn unresponsive_jwks_servers_of_one_namespace_do_not_delay_others() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = silent.local_addr().unwrap();
        let addresses = AddressPolicy {
            allow_loopback: true,
            ..AddressPolicy::default()
        };
        let fetching = KeyFetching::new(KeyConfig {
            refresh: Duration::from_mins(20),
            addresses,
        });

        let (demands, wanted) = mpsc::channel(8);
        let (out, _results) = mpsc::channel(8);
        let mut tasks = JoinSet::new();
        tasks.spawn(fetching.run(wanted, out));
        demands
            .send(demand(
                "flood",
                (0..1000).map(|n| format!("http://{at}/{n}")),
            ))
            .await
            .unwrap();

        let mut held = vec![silent.accept().await.unwrap()];
        let place = format!("http://{}/keys", other.local_addr().unwrap());
        demands.send(demand("shop", [place])).await.unwrap();

        // The other issuer is fetched although no URL of the flood has answered. By now every
        // connection to those URLs that will be opened is open.
        let (_connection, _) = other.accept().await.unwrap();
        while let Some(more) = silent.accept().now_or_never() {
            held.push(more.unwrap());
        }

        assert!(held.len() <= MAX_CONCURRENT_FETCHES, "{}", held.len());

        // Withdrawing the demand frees its slots.
        demands.send(demand("flood", [])).await.unwrap();
        demands
            .send(demand("flood", [format!("http://{at}/last")]))
            .await
            .unwrap();
        silent.accept().await.unwrap();
    }
}

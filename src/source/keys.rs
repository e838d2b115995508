//! The keys of token issuers, fetched from where RequestAuthentications say.
//!
//! ```text
//! RequestAuthentications ─▶ ring: what is wanted, what is due ─▶ fetch (address policy, no redirects) ─▶ Keys
//! ```
//!
//! Keys are fetched once for all policies that name a place, again after the refresh interval, and after failures sooner and
//! sooner apart. Keys that were good stay while fetching fails, up to a week; a place whose keys were never there has none, and
//! no token of its issuer is believed.

mod address;
mod fetch;
mod ring;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use address::AddressPolicy;
pub use fetch::{FetchError, Fetcher};
use ring::Ring;

use super::{Batch, SourceEvent};
use crate::api::key_source::KeySource;
use crate::api::object::NamespacedName;

/// How long fetching may take where a rule says nothing.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// What the keeper of objects tells the one who fetches.
#[derive(Clone, Debug)]
pub enum Demand {
    /// The places that a RequestAuthentication names now, with how long each may take; none where it is gone.
    Of(NamespacedName, BTreeMap<KeySource, Duration>),
    /// All policies that were there at start have been told of.
    Complete,
}

/// How keys are fetched.
#[derive(Clone, Debug)]
pub struct KeyConfig {
    /// How long keys are used before they are fetched again.
    pub refresh: Duration,
    /// Which addresses may be asked.
    pub addresses: AddressPolicy,
}

/// Fetches keys and keeps them fresh.
#[derive(Debug)]
pub struct KeyFetching {
    /// Who fetches.
    fetcher: Arc<Fetcher>,
    /// What is wanted and known.
    ring: Ring,
}

impl KeyFetching {
    /// With nothing wanted.
    #[must_use]
    pub fn new(config: KeyConfig) -> Self {
        Self { fetcher: Arc::new(Fetcher::new(config.addresses)), ring: Ring::new(config.refresh) }
    }

    /// Works until nobody demands or listens any more. Tells of a full sync once all that was wanted at start has been tried:
    /// proxies that come back are not told that there are no keys while they are on their way.
    pub async fn run(mut self, mut demands: mpsc::Receiver<Demand>, out: mpsc::Sender<Batch>) {
        let mut under_way: JoinSet<(KeySource, Result<Arc<str>, FetchError>)> = JoinSet::new();
        let mut complete = false;
        let mut synced = false;
        // What is to be told waits here: whoever demands also listens, so waiting for one must not keep the other waiting.
        let mut told: Batch = Vec::new();
        loop {
            for (source, timeout) in self.ring.take_due(Instant::now()) {
                let fetcher = self.fetcher.clone();
                under_way.spawn(async move {
                    let keys = fetcher.keys(&source, timeout).await;
                    (source, keys)
                });
            }
            if complete && !synced && self.ring.all_tried() {
                synced = true;
                told.push(SourceEvent::FullSync);
            }
            let wait = self.ring.next_due().map(|due| due.saturating_duration_since(Instant::now()));
            let news = tokio::select! {
                room = out.reserve(), if !told.is_empty() => match room {
                    Ok(room) => {
                        room.send(std::mem::take(&mut told));
                        Vec::new()
                    }
                    Err(_) => return,
                },
                demand = demands.recv() => match demand {
                    Some(Demand::Of(policy, sources)) => self.ring.demand(&policy, sources, Instant::now()),
                    Some(Demand::Complete) => { complete = true; Vec::new() }
                    None => return,
                },
                Some(Ok((source, keys))) = under_way.join_next() => {
                    if let Err(error) = &keys {
                        tracing::warn!(%source, %error, "keys of a token issuer cannot be fetched");
                    }
                    self.ring.fetched(&source, keys.ok(), Instant::now()).into_iter().collect()
                }
                () = sleep(wait) => Vec::new(),
            };
            told.extend(news.into_iter().map(|(source, keys)| SourceEvent::Keys(source, keys)));
        }
    }
}

/// Sleeps so long, for ever without a time.
async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

//! Who may have a trial, and when: trials take a share of a core, and keep resources from their
//! proxy meanwhile. So a namespace has one at a time and a pause after it, and those that have
//! waited longest are next.
//!
//! Pure: the caller passes the time, so tests need no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use navarch_api::names::Namespace;
use navarch_xds::Nack;
use tokio::time::Instant;

use super::case::Subscription;

/// Maximum number of trials at once, each for another namespace: most of them wait for a proxy.
const MAX_TRIALS: usize = 64;
/// Maximum number of rejections of a namespace that wait for a trial.
const MAX_DEFERRED: usize = 64;
/// Pause of a namespace after a trial, as a multiple of its duration, so that rejecting clients
/// cost a small share of a core: after one that found the object, and after one that did not.
const PAUSE_FACTOR: u32 = 3;
const FAILED_PAUSE_FACTOR: u32 = 9;

/// Rejections of a namespace that wait for a trial.
#[derive(Debug)]
struct Deferred {
    /// Since when: the namespace that has waited longest is next.
    since: Instant,
    nacks: BTreeSet<Nack>,
}

/// Trials in progress, and the rejections that wait for one.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The streams that trials run on, by the namespace of their proxy's account.
    tried: BTreeMap<Namespace, Subscription>,
    /// When the next trial of a namespace may start.
    paused_until: BTreeMap<Namespace, Instant>,
    deferred: BTreeMap<Namespace, Deferred>,
}

impl Places {
    /// Streams that have a trial, each with the type of the rejected response.
    pub(super) fn tried(&self) -> impl Iterator<Item = Subscription> {
        self.tried.values().copied()
    }

    /// Whether a trial of a namespace may start now.
    pub(super) fn is_free(&self, namespace: &Namespace, now: Instant) -> bool {
        self.has_room() && !self.tried.contains_key(namespace) && !self.is_paused(namespace, now)
    }

    /// Notes that a trial has started. Only after [`Self::is_free`].
    pub(super) fn start(&mut self, namespace: Namespace, subscription: Subscription) {
        self.tried.insert(namespace, subscription);
    }

    /// Notes that a trial has ended, and whether it found an object, after some time of computing
    /// and waiting for the proxy.
    pub(super) fn end(&mut self, namespace: &Namespace, found: bool, took: Duration, now: Instant) {
        let factor = if found {
            PAUSE_FACTOR
        } else {
            FAILED_PAUSE_FACTOR
        };

        self.tried.remove(namespace);
        self.paused_until
            .insert(namespace.clone(), now + factor * took);
    }

    /// Keeps a rejection until its namespace may have a trial, unless too many wait already.
    pub(super) fn defer(&mut self, namespace: Namespace, nack: Nack, now: Instant) {
        let deferred = self.deferred.entry(namespace).or_insert_with(|| Deferred {
            since: now,
            nacks: BTreeSet::new(),
        });
        if deferred.nacks.len() < MAX_DEFERRED {
            deferred.nacks.insert(nack);
        }
    }

    /// Whether a rejection waits until its namespace may have a trial.
    pub(super) fn is_deferred(&self, nack: &Nack) -> bool {
        let mut waiting = self.deferred.values();
        waiting.any(|deferred| deferred.nacks.contains(nack))
    }

    /// When the next deferred rejection may have its trial; `None` if there is none, or if the end
    /// of a trial has to be awaited.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        if !self.has_room() {
            return None;
        }

        let waiting = self.deferred.keys();
        waiting
            .filter(|namespace| !self.tried.contains_key(*namespace))
            .map(|namespace| self.paused_until.get(namespace).copied().unwrap_or(now))
            .min()
    }

    /// Namespaces with a deferred rejection that may have a trial now; those that have waited
    /// longest first.
    pub(super) fn ready(&mut self, now: Instant) -> Vec<Namespace> {
        self.paused_until.retain(|_, until| *until > now);

        let mut ready: Vec<(Instant, Namespace)> = self
            .deferred
            .iter()
            .filter(|(name, _)| {
                !self.paused_until.contains_key(*name) && !self.tried.contains_key(*name)
            })
            .map(|(name, deferred)| (deferred.since, name.clone()))
            .collect();

        ready.sort();
        ready.into_iter().map(|(_, name)| name).collect()
    }

    /// Takes a deferred rejection of a namespace, which then waits behind all others; `None` if it
    /// has none, or if there is no room for another trial.
    pub(super) fn take(&mut self, namespace: &Namespace, now: Instant) -> Option<Nack> {
        if !self.has_room() {
            return None;
        }

        let deferred = self.deferred.get_mut(namespace)?;
        deferred.since = now;
        let nack = deferred.nacks.pop_first();
        if deferred.nacks.is_empty() {
            self.deferred.remove(namespace);
        }
        nack
    }

    fn has_room(&self) -> bool {
        self.tried.len() < MAX_TRIALS
    }

    fn is_paused(&self, namespace: &Namespace, now: Instant) -> bool {
        let paused_until = self.paused_until.get(namespace);
        paused_until.is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests;

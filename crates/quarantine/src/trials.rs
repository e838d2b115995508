//! Which rejections get a [`Trial`], and when: trials take a share of a core, and keep resources from
//! the proxy meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::names::Namespace;
use navarch_api::object::ObjectRef;
use navarch_push::engine::ProxyId;
use navarch_push::quarantine::votes::Voter;
use navarch_push::resource::Collection;
use navarch_push::worker::Ended;
use navarch_xds::Nack;
use tokio::time::Instant;

use super::case::votes;
use super::trial::{Found, TIMEOUT, Trial};
use super::{QuarantineWork, Rejection, not_attributed};

/// Maximum number of trials at once, each for another namespace: most of them wait for a proxy.
const MAX_TRIALS: usize = 64;
/// Maximum number of trials that compute a version for their proxy at the same time.
pub(super) const MAX_COMPUTING: usize = 4;
/// Maximum number of rejections of a namespace that wait for a trial.
const MAX_DEFERRED: usize = 64;
/// Number of workloads of an account whose trials found the same object, after which that object is
/// taken for the cause at the account's other workloads.
const MIN_CONFIRMED: usize = 2;
/// Pause of a namespace after a trial, as a multiple of its duration, so that rejecting clients
/// cost a small share of a core: after one that found the object, and after one that did not.
const PAUSE_FACTOR: u32 = 3;
const FAILED_PAUSE_FACTOR: u32 = 9;

/// Rejections of a namespace that wait for a trial.
#[derive(Debug)]
pub(super) struct Deferred {
    /// Since when: the namespace that has waited longest is next.
    since: Instant,
    nacks: BTreeSet<Nack>,
}

/// A trial that has ended.
pub(super) struct Finished {
    rejection: Rejection,
    found: Found,
}

impl QuarantineWork {
    /// When the next deferred rejection may have its trial; `None` if there is none.
    pub(super) fn next_trial(&self) -> Option<Instant> {
        if self.trials.len() >= MAX_TRIALS {
            return None;
        }
        let waiting = self.deferred.keys();
        let waiting = waiting.filter(|namespace| !self.tried.contains_key(*namespace));
        waiting.map(|namespace| self.next_trial_at(namespace)).min()
    }

    /// When the next trial of a namespace may start.
    fn next_trial_at(&self, namespace: &Namespace) -> Instant {
        let paused_until = self.paused_until.get(namespace).copied();
        paused_until.unwrap_or_else(Instant::now)
    }

    /// Whether the next trial of a namespace may not start yet.
    fn is_paused(&self, namespace: &Namespace) -> bool {
        let paused_until = self.paused_until.get(namespace);
        paused_until.is_some_and(|until| Instant::now() < *until)
    }

    /// Looks at one deferred rejection of each namespace that may have another trial.
    pub(super) async fn look_at_deferred(&mut self) -> Result<(), Ended> {
        let now = Instant::now();
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

        for (_, namespace) in ready {
            if self.trials.len() >= MAX_TRIALS {
                break;
            }
            let Some(deferred) = self.deferred.get_mut(&namespace) else {
                continue;
            };
            deferred.since = now;
            let nack = deferred.nacks.pop_first();
            if deferred.nacks.is_empty() {
                self.deferred.remove(&namespace);
            }
            if let Some(nack) = nack {
                self.look(nack).await?;
            }
        }

        Ok(())
    }

    /// The candidate that most of an account's workloads that it reaches reject, each found by a
    /// trial of its own: a few of them could blame any candidate.
    pub(super) async fn charged_by_account(
        &self,
        candidates: &[ObjectRef],
        voter: &Voter,
    ) -> Result<Option<ObjectRef>, Ended> {
        // A rejection of an earlier version is no evidence against this one.
        let context = self.push.context();

        for name in candidates {
            let case = self.cases.get(name);
            let Some(case) = case.filter(|case| case.is_current(&context)) else {
                continue;
            };
            let confirmed = case.confirmed_by(&voter.account);
            if confirmed < MIN_CONFIRMED {
                continue;
            }

            let object = case.object.clone();
            let rejecters = case.rejecters.clone();
            let streams = Arc::new(self.streams());
            let votes = votes(&self.push, object, rejecters, streams).await?;
            let of_account = votes.accounts().get(&voter.account);
            let reached = of_account.map_or(0, |votes| votes.reached);
            if 2 * confirmed > reached {
                return Ok(Some(name.clone()));
            }
        }

        Ok(None)
    }

    /// Starts a trial on the rejecting proxy, or defers it.
    pub(super) fn start_trial(
        &mut self,
        nack: Nack,
        rejection: Rejection,
        candidates: Vec<ObjectRef>,
    ) {
        let namespace = rejection.voter.account.namespace.clone();
        let must_wait = self.trials.len() >= MAX_TRIALS
            || self.tried.contains_key(&namespace)
            || self.is_paused(&namespace);
        if must_wait {
            let deferred = self.deferred.entry(namespace).or_insert_with(|| Deferred {
                since: Instant::now(),
                nacks: BTreeSet::new(),
            });
            if deferred.nacks.len() < MAX_DEFERRED {
                deferred.nacks.insert(nack);
            }
            return;
        }

        let context = self.push.context();
        let account = &rejection.voter.account;
        let charged = candidates.iter().filter_map(|name| {
            let case = self.cases.get(name)?;
            let is_charged = case.is_current(&context) && !case.rejecters.is_empty();
            is_charged.then(|| (case.rejected_by(account), name))
        });
        // Of those that as many workloads of the account reject, the first one.
        let suspect = charged.rev().max_by_key(|(rejected, _)| *rejected);
        let trial = Trial {
            push: self.push.clone(),
            connections: self.connections.clone(),
            info: rejection.info.clone(),
            kind: rejection.kind,
            suspect: suspect.map(|(_, name)| name.clone()),
            candidates,
            computing: self.computing.clone(),
            time_left: TIMEOUT,
        };

        self.tried
            .insert(namespace, (rejection.info.proxy_id, rejection.kind));
        self.trials.spawn(async move {
            Finished {
                rejection,
                found: trial.run().await,
            }
        });
    }

    /// Handles the end of a trial.
    pub(super) async fn finish(&mut self, finished: Finished) -> Result<(), Ended> {
        let Finished { rejection, found } = finished;
        let namespace = rejection.voter.account.namespace.clone();
        let factor = if found.object.is_some() {
            PAUSE_FACTOR
        } else {
            FAILED_PAUSE_FACTOR
        };
        self.paused_until
            .insert(namespace.clone(), Instant::now() + factor * found.took);
        self.tried.remove(&namespace);

        match found.object {
            Some(name) => self.charge(name, &rejection, true).await,
            None => {
                self.mark_looked_into(&rejection);
                not_attributed(&rejection, "no single object is the cause");
                self.end_trial(rejection.info.proxy_id, rejection.shown.clone())
                    .await
            }
        }
    }

    /// Sends the current resources to a proxy again after a trial.
    pub(super) async fn end_trial(
        &self,
        proxy: ProxyId,
        shown: Arc<Collection>,
    ) -> Result<(), Ended> {
        let revision = self
            .push
            .inspect(|inspect| inspect.engine.revision())
            .await?;
        self.connections.offer(proxy, shown, revision);
        Ok(())
    }
}

//! Which rejections get a [`Trial`], and what follows from it. [`places`](super::places) says when.

use std::sync::Arc;

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

/// Maximum number of trials that compute a version for their proxy at the same time.
pub(super) const MAX_COMPUTING: usize = 4;
/// Number of workloads of an account whose trials found the same object, after which that object is
/// taken for the cause at the account's other workloads.
const MIN_CONFIRMED: usize = 2;
/// A trial that has ended.
pub(super) struct Finished {
    rejection: Rejection,
    found: Found,
}

impl QuarantineWork {
    /// Looks at one deferred rejection of each namespace that may have another trial.
    pub(super) async fn look_at_deferred(&mut self) -> Result<(), Ended> {
        let now = Instant::now();

        for namespace in self.places.ready(now) {
            if let Some(nack) = self.places.take(&namespace, now) {
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
        let now = Instant::now();
        if !self.places.is_free(&namespace, now) {
            self.places.defer(namespace, nack, now);
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
            resource_type: rejection.resource_type,
            suspect: suspect.map(|(_, name)| name.clone()),
            candidates,
            computing: self.computing.clone(),
            time_left: TIMEOUT,
        };

        let subscription = (rejection.info.proxy_id, rejection.resource_type);
        self.places.start(namespace, subscription);
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
        let namespace = &rejection.voter.account.namespace;
        let has_found = found.object.is_some();
        self.places
            .end(namespace, has_found, found.took, Instant::now());

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

//! Watches who comes and goes while an object is quarantined: the decision must not outlive those
//! who made it.
//!
//! Each replica sees its own clients: which deciders are left, and who of them the object would
//! reach. Replicas store that for each other, so that all count alike.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use navarch_api::any_object::AnyObject;
use navarch_api::object::{NamespacedName, ObjectRef};
use navarch_push::context::PushContext;
use navarch_push::quarantine::judgement::{Ballot, Judgement, Verdict, Watched};
use navarch_push::quarantine::jury::{Connected, Jury, StoredJury};
use navarch_push::quarantine::keeps_reach;
use navarch_push::quarantine::turnout::Turnout;
use navarch_push::quarantine::votes::Votes;
use navarch_push::worker::Ended;
use serde_json::Value;
use tokio::time::Instant;

use super::case::{Case, Clients, Streams, votes};
use super::decisions::{REACHES_OTHERS, subject};
use super::stored::SharedTurnout;
use super::{POLL_FACTOR, QuarantineWork};

/// Minimum interval of looks, and the time that one may take, so that judgements do not wait for it.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
const MAX_WATCH_TIME: Duration = Duration::from_millis(100);
/// Time after the start of the process in which no quarantine ends: all proxies connect again.
const RECONNECT_TIME: Duration = Duration::from_secs(60);
/// The same after another replica has decided: it is not known yet who was connected here.
const FOLLOW_TIME: Duration = Duration::from_secs(5);

/// A decision that another replica, or this process before a restart, has stored.
#[derive(Debug)]
pub(super) struct StoredDecision {
    /// The accounts that decided, if they are of other namespaces than the object's.
    pub(super) others: Option<Vec<NamespacedName>>,
    /// The number of workloads of the object's namespace that rejected it, if these decided.
    pub(super) rejecting: Option<usize>,
    /// The workloads that decided.
    pub(super) jury: Option<Value>,
    /// The version that is served.
    pub(super) before: Option<AnyObject>,
    /// How often the object was judged again before.
    pub(super) rejudged: u32,
}

impl QuarantineWork {
    /// Looks whether quarantines are over, of as many as there is time for; the next look begins
    /// with the others.
    pub(super) async fn watch_all(&mut self) -> Result<(), Ended> {
        let begun = Instant::now();
        if begun < self.watches_at {
            return Ok(());
        }

        let all = self.cases.iter();
        let mut all: Vec<ObjectRef> = all
            .filter(|(_, case)| case.judgement.is_quarantined())
            .map(|(name, _)| name.clone())
            .collect();
        let last = self.watched_last.take();
        let seen = all.partition_point(|name| last.as_ref().is_some_and(|last| name <= last));
        all.rotate_left(seen);

        let streams = Arc::new(self.streams());
        let clients = Clients::of(&streams);
        for name in all {
            let connected = clients.of_namespace(&name.name.namespace);
            self.watch(&name, connected, &streams).await?;
            self.watched_last = Some(name);
            if begun.elapsed() >= MAX_WATCH_TIME {
                break;
            }
        }

        self.watches_at = Instant::now() + WATCH_INTERVAL.max(POLL_FACTOR * begun.elapsed());
        Ok(())
    }

    /// Looks whether a quarantine is over; `connected` are the clients of the object's namespace.
    async fn watch(
        &mut self,
        name: &ObjectRef,
        connected: &Connected,
        streams: &Arc<Streams>,
    ) -> Result<(), Ended> {
        let context = self.push.context();
        let now = self.started.elapsed();
        let Some(case) = self.cases.get_mut(name) else {
            return Ok(());
        };

        // If nothing can have changed, the push thread is spared.
        let is_watching = case.judgement.is_watching(connected, now);
        let shared = self.shared.as_ref();
        let is_shared = shared.is_some_and(|shared| shared.has_other_replicas(name));
        if !is_watching && !is_shared {
            case.judgement.see(connected, now);
            return Ok(());
        }

        let object = case.object.clone();
        let own = if is_watching {
            let rejecters = BTreeMap::new();
            votes(&self.push, object.clone(), rejecters, streams.clone()).await?
        } else {
            Votes::default()
        };
        let served = context.objects.any(name);
        let elsewhere = match &self.shared {
            Some(shared) => shared.elsewhere(&context, &object),
            None => SharedTurnout {
                turnout: Turnout::default(),
                is_complete: true,
            },
        };
        let ballot = Ballot {
            votes: &own,
            is_complete: elsewhere.is_complete,
            keeps_reach: served.is_some_and(|served| keeps_reach(&served, &object)),
            connected,
            elsewhere: &elsewhere.turnout,
        };

        let subject = subject(&context, name);
        let Some(case) = self.cases.get_mut(name) else {
            return Ok(());
        };
        let before = case.judgement.clone();
        let Watched { verdict, turnout } = case.judgement.watch(&subject, &ballot, now);
        match verdict {
            Verdict::JudgeAgain => self.judge_again(name, before).await,
            Verdict::Release => self.end(name, REACHES_OTHERS, before).await,
            Verdict::Nothing | Verdict::Keep | Verdict::Quarantine(_) => {
                if let (Some(shared), Some(turnout)) = (&mut self.shared, turnout) {
                    shared.report_turnout(&context, &object, &turnout).await;
                }
                Ok(())
            }
        }
    }

    /// Takes over a stored decision, unless the object is quarantined already, by this decision or
    /// a later one.
    pub(super) fn follow_quarantine(
        &mut self,
        context: &PushContext,
        object: &AnyObject,
        decision: &StoredDecision,
    ) {
        let name = object.object_ref();
        let known = self
            .cases
            .get(&name)
            .filter(|case| case.is_current(context))
            .map(|case| &case.judgement);
        let is_followed =
            |known: &Judgement| known.is_quarantined() && known.rejudged() >= decision.rejudged;
        if known.is_some_and(is_followed) {
            return;
        }

        // It has counted how often it was judged again.
        let mut judgement = known.cloned().unwrap_or_else(Judgement::kept);
        let stored = decision.jury.as_ref().and_then(StoredJury::from_json);
        let others = decision.others.as_ref();
        let others: Option<BTreeSet<NamespacedName>> =
            others.map(|accounts| accounts.iter().cloned().collect());
        let before = decision.before.as_ref();
        let now = self.started.elapsed();
        let jury = Jury::stored(
            stored.as_ref(),
            others,
            decision.rejecting.unwrap_or(1),
            before.is_some_and(|before| keeps_reach(before, object)),
            now,
            RECONNECT_TIME.max(now + FOLLOW_TIME),
        );

        judgement.follow(jury, decision.rejudged);
        self.cases
            .insert(name, Case::new(object.clone(), judgement));
    }
}

//! Applies judgements: those of this replica, of others, and of operators.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use navarch_api::any_object::AnyObject;
use navarch_api::names::Namespace;
use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::Change;
use navarch_push::quarantine::judgement::{Ballot, Grounds, Judgement, Subject, Verdict};
use navarch_push::quarantine::turnout::Turnout;
use navarch_push::quarantine::{RestoredQuarantine, excerpt, keeps_reach};
use navarch_push::worker::Ended;
use navarch_status::{KeptQuarantine, QuarantineOutcome};
use tokio::time::Instant;

use super::case::{Case, Clients, votes, written};
use super::stored::{NotStored, SharedVotes, is_of, rejudged_of};
use super::turns::{OpenCase, in_turn};
use super::watch::StoredDecision;
use super::{QuarantineRelease, QuarantineWork, ReleaseError};

/// How long a round of judgements may take; the next one begins with the other objects.
const MAX_JUDGING_TIME: Duration = Duration::from_millis(100);
/// How long a change may take until it is in force.
const APPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Why a quarantine ended.
const RELEASED: &str = "released by an operator";
pub(super) const REACHES_OTHERS: &str =
    "the object reaches proxies that did not take part in the judgement";

impl QuarantineWork {
    /// Judges rejected objects by the current answers, as many as there is time for, and looks
    /// whether quarantines are over.
    pub(super) async fn judge_all(&mut self) -> Result<(), Ended> {
        let context = self.push.context();
        self.cases.retain(|_, case| case.is_current(&context));
        let open = self
            .cases
            .iter()
            .filter(|(_, case)| case.judgement.is_open())
            .map(|(name, case)| OpenCase {
                name: name.clone(),
                rejecting: case.rejecting.clone(),
                looked_at: case.looked_at,
            })
            .collect();

        let begun = Instant::now();
        for name in in_turn(open) {
            if let Some(case) = self.cases.get_mut(&name) {
                case.looked_at = Some(Instant::now());
            }
            self.judge(&name).await?;
            if begun.elapsed() >= MAX_JUDGING_TIME {
                break;
            }
        }
        self.watch_all().await
    }

    /// Judges one object.
    async fn judge(&mut self, name: &ObjectRef) -> Result<(), Ended> {
        // Of one moment: a client that is connected and not reached would count as apart.
        let streams = Arc::new(self.streams());
        let clients = Clients::of(&streams);
        let connected = clients.of_namespace(&name.name.namespace);

        let Some(case) = self.cases.get_mut(name) else {
            return Ok(());
        };
        let object = case.object.clone();
        let own = votes(&self.push, object.clone(), case.rejecters.clone(), streams).await?;

        let context = self.push.context();
        let known = match &mut self.shared {
            Some(shared) => {
                let is_open = case.judgement.is_open();
                shared.report(&context, &object, &own, is_open).await;
                shared.sum(&context, &object, &own)
            }
            None => SharedVotes {
                votes: own,
                is_complete: true,
            },
        };

        let subject = subject(&context, name);
        let served = previous(&self.push, name).await?;
        let ballot = Ballot {
            votes: &known.votes,
            is_complete: known.is_complete,
            keeps_reach: served.is_some_and(|before| keeps_reach(&before, &object)),
            connected,
            elsewhere: &Turnout::default(),
        };
        let before = case.judgement.clone();
        let verdict = case
            .judgement
            .step(&subject, &ballot, self.started.elapsed());

        match verdict {
            Verdict::Nothing => Ok(()),
            Verdict::Keep => self.keep(name).await,
            Verdict::Quarantine(grounds) => self.quarantine(name, grounds, before).await,
            Verdict::Release => self.end(name, REACHES_OTHERS, before).await,
            Verdict::JudgeAgain => self.judge_again(name, before).await,
        }
    }

    /// The object stays in force: proxies with a trial get their resources back.
    async fn keep(&mut self, name: &ObjectRef) -> Result<(), Ended> {
        let Some(case) = self.cases.get_mut(name) else {
            return Ok(());
        };
        let object = case.object.clone();
        let trials = std::mem::take(&mut case.trials);
        tracing::warn!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name,
            error = %excerpt(&case.error), rejecting = case.rejecters.len(),
            "proxies reject the configuration of the object, too few for a quarantine; it stays in force"
        );

        for ((proxy, _), shown) in trials {
            self.end_trial(proxy, shown).await?;
        }
        if let Some(shared) = &mut self.shared {
            shared.close(&object).await;
        }
        Ok(())
    }

    /// Quarantines an object. If other replicas must know and do not, the judgement is as `before`.
    async fn quarantine(
        &mut self,
        name: &ObjectRef,
        grounds: Grounds,
        before: Judgement,
    ) -> Result<(), Ended> {
        let Some(case) = self.cases.get_mut(name) else {
            return Ok(());
        };
        let object = case.object.clone();
        let message = format!("{grounds}; one of them: {}", excerpt(&case.error));

        let rejudged = case.judgement.rejudged();
        let decided = case.judgement.jury();

        let others = decided
            .and_then(|jury| jury.others.as_ref())
            .map(|all| all.iter().cloned().collect());
        let of_namespace = decided.filter(|jury| jury.others.is_none());
        let rejecting = of_namespace.map(|jury| jury.rejected);
        let jury = decided.map(|jury| jury.to_json(rejudged));

        let shared = self.shared.as_mut();
        let change = match shared.filter(|shared| shared.is_writable(name)) {
            None => Change::Quarantine(name.clone(), message.as_str().into()),
            Some(shared) => {
                let previous = previous(&self.push, name).await?;
                let outcome = QuarantineOutcome::Quarantined {
                    message: message.clone(),
                    others,
                    rejecting,
                    jury,
                    before: previous.clone(),
                };
                match shared.quarantine(&object, outcome, rejudged).await {
                    Ok(()) => restore_change(&object, previous, &message),
                    Err(error) if error.is_forbidden() => {
                        Change::Quarantine(name.clone(), message.as_str().into())
                    }
                    Err(error) => {
                        case.judgement = before;
                        if !error.is_concurrent() {
                            tracing::warn!(%error, object = %name, "failed to store a quarantine; it does not apply yet");
                        }
                        return Ok(());
                    }
                }
            }
        };

        tracing::warn!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name,
            generation = object.meta().generation, error = %message,
            "quarantined: proxies reject the configuration of the object; the previous version is served until it is edited"
        );
        case.trials.clear();
        self.apply(name, change, true).await
    }

    /// Ends a quarantine without an edit. If other replicas must know and do not, or an operator or
    /// another replica has decided since, the judgement is as `before`.
    pub(super) async fn end(
        &mut self,
        name: &ObjectRef,
        reason: &str,
        before: Judgement,
    ) -> Result<(), Ended> {
        let Some(case) = self.cases.get_mut(name) else {
            return Ok(());
        };

        let object = case.object.clone();
        let rejudged = case.judgement.rejudged();
        let shared = self.shared.as_mut();
        if let Some(shared) = shared.filter(|shared| shared.is_writable(name))
            && let Err(error) = shared.end(&object, reason, rejudged).await
            && !error.is_forbidden()
        {
            tracing::debug!(%error, object = %name, "failed to store the end of a quarantine");
            // What is stored would be followed, and so the object go back and forth.
            case.judgement = before;
            return Ok(());
        }
        self.apply_release(name, object, reason).await
    }

    /// The rejected version is in force again, and another rejection is judged anew. If other
    /// replicas must know and do not, or have decided since, the judgement is as `before`.
    pub(super) async fn judge_again(
        &mut self,
        name: &ObjectRef,
        before: Judgement,
    ) -> Result<(), Ended> {
        let Some(case) = self.cases.get_mut(name) else {
            return Ok(());
        };

        let rejudged = case.judgement.rejudged();
        let shared = self.shared.as_mut();
        if let Some(shared) = shared.filter(|shared| shared.is_writable(name))
            && let Err(error) = shared.judge_again(&case.object, rejudged).await
            && !error.is_forbidden()
        {
            tracing::debug!(%error, object = %name, "failed to store that an object is judged again");
            case.judgement = before;
            return Ok(());
        }
        self.apply_judge_again(name).await
    }

    /// The rejected version is in force again, and another rejection is judged anew.
    async fn apply_judge_again(&mut self, name: &ObjectRef) -> Result<(), Ended> {
        tracing::warn!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name,
            "no longer quarantined: those who rejected the object are no longer most of those that it reaches; \
             another rejection is judged by the answers of all"
        );

        if let Some(case) = self.cases.get_mut(name) {
            // Rejections of the time before are no evidence any more; new ones are looked into.
            let rejecters = std::mem::take(&mut case.rejecters);
            case.trials.clear();
            self.looked_into
                .retain(|(proxy, _), _| !rejecters.contains_key(proxy));
        }
        self.apply(name, Change::ReleaseQuarantine(name.clone()), false)
            .await
    }

    /// The rejected version is in force again, until it is edited.
    async fn apply_release(
        &mut self,
        name: &ObjectRef,
        object: AnyObject,
        reason: &str,
    ) -> Result<(), Ended> {
        tracing::warn!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name, reason,
            "no longer quarantined: the rejected version is in force again"
        );
        self.cases
            .insert(name.clone(), Case::new(object, Judgement::released()));
        self.apply(name, Change::ReleaseQuarantine(name.clone()), false)
            .await
    }

    /// Runs an operator's command.
    pub(super) async fn release(&mut self, command: QuarantineRelease) -> Result<(), Ended> {
        let name = command.object;
        let context = self.push.context();
        let rejected = context
            .quarantined
            .get(&name)
            .map(|one| one.rejected.clone());
        let outcome = match rejected {
            None => Err(ReleaseError::Unknown(name)),
            Some(object) => match self.store_release(&object).await {
                Ok(()) => {
                    self.apply_release(&name, object, RELEASED).await?;
                    Ok(())
                }
                Err(error) => Err(ReleaseError::NotKept(error.to_string())),
            },
        };

        // The caller may have disconnected.
        command.answer.send(outcome).ok();
        Ok(())
    }

    /// Stores an operator's command for other replicas.
    async fn store_release(&mut self, object: &AnyObject) -> Result<(), NotStored> {
        let name = object.object_ref();
        let shared = self.shared.as_mut();
        let Some(shared) = shared.filter(|shared| shared.is_writable(&name)) else {
            return Ok(());
        };
        match shared.release(object, RELEASED).await {
            Err(error) if !error.is_forbidden() => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Applies the judgements of other replicas, and gives them the answers of this one's proxies.
    pub(super) async fn follow_others(&mut self) -> Result<(), Ended> {
        let Some(shared) = &mut self.shared else {
            return Ok(());
        };
        shared.read().await;
        let all = shared.all();
        let context = self.push.context();

        if self.push.is_synced() {
            let is_left_over = |kept: &KeptQuarantine| {
                written(&context, &kept.object).is_none_or(|object| !is_of(kept, &object))
            };
            shared.remove_left_over(is_left_over).await;
            shared.close_abandoned().await;
        }

        for kept in all {
            if let Some(object) = written(&context, &kept.object)
                && is_of(&kept, &object)
            {
                self.follow(&context, kept, object).await?;
            }
        }
        Ok(())
    }

    /// Applies what is stored about the current version of an object.
    async fn follow(
        &mut self,
        context: &Arc<PushContext>,
        kept: KeptQuarantine,
        object: AnyObject,
    ) -> Result<(), Ended> {
        let name = kept.object.clone();
        let is_quarantined = context.quarantined.contains_key(&name);
        let rejudged = rejudged_of(&kept);

        match kept.outcome {
            // What this replica has decided since could not be stored.
            Some(QuarantineOutcome::Quarantined { .. })
                if !self.is_shared(&name) && self.has_decided_otherwise(context, &name) =>
            {
                Ok(())
            }
            Some(QuarantineOutcome::Quarantined {
                message,
                others,
                rejecting,
                jury,
                before,
            }) => {
                let decision = StoredDecision {
                    others,
                    rejecting,
                    jury,
                    before,
                    rejudged,
                };
                self.follow_quarantine(context, &object, &decision);

                if !is_quarantined {
                    let change = restore_change(&object, decision.before, &message);
                    self.apply(&name, change, true).await?;
                }
                Ok(())
            }
            Some(QuarantineOutcome::Released { reason }) if is_quarantined => {
                self.apply_release(&name, object, &reason).await
            }
            Some(QuarantineOutcome::Released { .. }) => {
                self.cases
                    .insert(name, Case::new(object, Judgement::released()));
                Ok(())
            }
            None if is_quarantined && self.is_shared(&name) => {
                let judgement = &mut self.case_of(context, &object).judgement;
                judgement.judge_again();
                judgement.remember(rejudged);
                self.apply_judge_again(&name).await
            }
            None => {
                if kept.votes.is_empty() {
                    return Ok(());
                }

                let rejecters = self
                    .cases
                    .get(&name)
                    .filter(|case| case.is_current(context))
                    .map_or_else(BTreeMap::new, |case| case.rejecters.clone());
                let streams = Arc::new(self.streams());
                let own = votes(&self.push, object.clone(), rejecters, streams).await?;

                if let Some(shared) = &mut self.shared {
                    shared.report(context, &object, &own, false).await;
                }
                Ok(())
            }
        }
    }

    /// The case of the current version of an object; a new one, without rejections, if there is none.
    fn case_of(&mut self, context: &PushContext, object: &AnyObject) -> &mut Case {
        let new = || Case::new(object.clone(), Judgement::kept());
        let case = self.cases.entry(object.object_ref());
        let case = case.or_insert_with(new);
        if !case.is_current(context) {
            *case = new();
        }
        case
    }

    /// Whether an operator or this replica has decided that the current version is in force.
    fn has_decided_otherwise(&self, context: &PushContext, name: &ObjectRef) -> bool {
        let case = self.cases.get(name);
        case.is_some_and(|case| case.is_current(context) && !case.judgement.is_quarantined())
    }

    /// Whether other replicas know what this one decides about an object.
    fn is_shared(&self, name: &ObjectRef) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|shared| shared.is_writable(name))
    }

    /// Sends a change, and waits until it is in force.
    async fn apply(
        &mut self,
        name: &ObjectRef,
        change: Change,
        is_quarantined: bool,
    ) -> Result<(), Ended> {
        self.push.change(vec![change]).await?;
        let is_done =
            |context: &Arc<PushContext>| context.quarantined.contains_key(name) == is_quarantined;
        let mut contexts = self.push.contexts();
        // An edit may come first.
        match tokio::time::timeout(APPLY_TIMEOUT, contexts.wait_for(is_done)).await {
            Ok(Err(_)) => Err(Ended),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }
}

/// What is judged.
pub(super) fn subject(context: &PushContext, name: &ObjectRef) -> Subject {
    Subject {
        object: name.clone(),
        root: Namespace::new(&context.mesh.config.root_namespace),
    }
}

/// The version before the last change of an object, as far as it is remembered.
async fn previous(
    push: &navarch_push::worker::PushHandle,
    name: &ObjectRef,
) -> Result<Option<AnyObject>, Ended> {
    let name = name.clone();
    push.inspect(move |inspect| {
        let before = inspect.mesh_state.before();
        let found = before.iter().rev().find(|(known, _)| *known == name);
        found.and_then(|(_, version)| version.clone())
    })
    .await
}

/// The change that serves a stored version in place of the rejected one.
pub(super) fn restore_change(
    rejected: &AnyObject,
    before: Option<AnyObject>,
    message: &str,
) -> Change {
    let meta = rejected.meta();
    let restored = RestoredQuarantine {
        generation: meta.generation,
        uid: meta.uid.clone(),
        before,
        message: message.into(),
    };
    Change::RestoreQuarantine(rejected.object_ref(), Arc::new(restored))
}

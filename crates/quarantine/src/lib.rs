//! Quarantines objects whose configuration proxies reject, so that one invalid object does not
//! block others.
//!
//! ```text
//! a proxy rejects a response ─▶ what of it changed ─▶ the objects behind that ─▶ which of them is it? ─▶ Judgement ─▶ quarantine
//!                                                                      tried on that proxy ─┘              └── the answers of all proxies
//! ```
//!
//! A rejection counts only with an identity ([`navarch_push::quarantine::voter`]); what it takes
//! for a quarantine is in [`navarch_push::quarantine::judgement`], and how long it lasts in
//! [`navarch_push::quarantine::jury`]. This crate collects the answers and applies the judgement:
//!
//! | module | what it decides |
//! | --- | --- |
//! | `candidates` | which objects a rejection may be due to |
//! | `trials`, `trial` | which of them it is, tried on the proxy |
//! | `places` | whose rejection is tried next, and when |
//! | `room` | whether there is a place for the object |
//! | `case` | what each proxy answered to it |
//! | `turns` | whose answers are looked at next |
//! | `decisions` | what follows: quarantine, release, another judgement |
//! | `watch` | whether those who decided are still there |
//! | `shared`, `stored` | what other replicas know: ConfigMaps ([`navarch_status::QuarantineStore`]), and what may be written to them |

mod candidates;
mod case;
mod control;
mod decisions;
mod places;
mod replicas;
mod room;
mod shared;
mod start;
mod stored;
mod trial;
mod trials;
mod turns;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use control::{QuarantineControl, QuarantineRelease, ReleaseError};
pub use replicas::Replicas;
pub use start::{Parts, start};

use candidates::{accepted_at, candidates};
use case::{Case, Rejecter, Streams, Subscription, voices, voter_of};
use navarch_api::names::Namespace;
use navarch_api::object::ObjectRef;
use navarch_push::context::facts_of;
use navarch_push::fact::FactKey;
use navarch_push::quarantine::excerpt;
use navarch_push::quarantine::judgement::Judgement;
use navarch_push::quarantine::votes::Voter;
use navarch_push::resource::{Collection, ResourceType};
use navarch_push::worker::{Ended, PushHandle};
use navarch_xds::connections::{ConnectionInfo, Connections};
use navarch_xds::standing::Answers;
use navarch_xds::{Nack, NackQueue};
use places::Places;
use shared::Shared;
use trials::Finished;

/// Maximum number of rejections that are remembered as looked into.
const MAX_LOOKED_INTO: usize = 8_192;
/// Minimum interval between looks at the answers, and the interval as a multiple of the duration of
/// the last look.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const POLL_FACTOR: u32 = 9;
/// The longest pause after a look, which may have waited for the API server.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The same while no judgement waits for answers.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The interval without an expected event.
const IDLE: Duration = Duration::from_secs(3_600);

/// Attributes rejections to objects, and judges them.
struct QuarantineWork {
    push: PushHandle,
    connections: Arc<Connections>,
    /// Rejected objects.
    cases: BTreeMap<ObjectRef, Case>,
    /// Number of cases so far.
    case_count: u64,
    /// Rejected responses that were looked into: they are not looked into again.
    looked_into: BTreeMap<Subscription, Arc<Collection>>,
    /// Trials in progress.
    trials: JoinSet<Finished>,
    /// The streams that they run on, and the rejections that wait for one.
    places: Places,
    /// The places of trials for computing.
    computing: Arc<Semaphore>,
    /// The state that replicas share; `None` without an API server.
    shared: Option<Shared>,
    /// When the log last said that there is no room for a rejected object.
    no_room_logged_at: Option<Instant>,
    /// When answers are looked at next.
    polls_at: Instant,
    /// The end of the pause after the last look: a rejection does not end it, as a client can send
    /// arbitrarily many.
    rests_until: Instant,
    /// When quarantined objects are looked at next, and the last one that was.
    watches_at: Instant,
    watched_last: Option<ObjectRef>,
    /// The start: the zero of the judgements' time.
    started: Instant,
}

/// A rejected response of a client with a voice.
struct Rejection {
    info: ConnectionInfo,
    resource_type: ResourceType,
    voter: Voter,
    /// The rejected resources.
    shown: Arc<Collection>,
    message: Arc<str>,
    /// The snapshot that the client had last accepted.
    accepted: u64,
}

/// What the task waits for.
enum Event {
    Nack(Nack),
    Tried(Box<Finished>),
    Released(QuarantineRelease),
    Due,
}

impl QuarantineWork {
    /// Runs until `stop` is cancelled.
    async fn run(
        mut self,
        nacks: NackQueue,
        mut releases: mpsc::Receiver<QuarantineRelease>,
        stop: CancellationToken,
    ) {
        loop {
            let due = self.due();
            let next = async {
                tokio::select! {
                    nack = nacks.next() => Some(Event::Nack(nack)),
                    Some(finished) = self.trials.join_next() => {
                        // Tasks are not aborted, and a trial that panics returns `None`.
                        Some(finished.map_or(Event::Due, |one| Event::Tried(Box::new(one))))
                    }
                    Some(release) = releases.recv() => Some(Event::Released(release)),
                    () = tokio::time::sleep_until(due) => Some(Event::Due),
                }
            };

            let Some(Some(event)) = stop.run_until_cancelled(next).await else {
                return;
            };

            let done = match event {
                // It is looked at when its namespace may have a trial.
                Event::Nack(nack) if self.places.is_deferred(&nack) => Ok(()),
                Event::Nack(nack) => self.look(nack).await,
                Event::Tried(finished) => self.finish(*finished).await,
                Event::Released(release) => self.release(release).await,
                Event::Due => self.tick().await,
            };

            if done.is_err() {
                // The process is shutting down.
                stop.cancelled().await;
                return;
            }
        }
    }

    /// When something is to be done without an event.
    fn due(&self) -> Instant {
        let mut due = Instant::now() + IDLE;
        if self.is_judging()
            || self
                .cases
                .values()
                .any(|case| case.judgement.is_quarantined())
        {
            due = due.min(self.polls_at);
        }

        if let Some(trial) = self.places.next(Instant::now()) {
            due = due.min(trial);
        }

        if let Some(shared) = &self.shared {
            due = due.min(shared.next_read(self.is_judging()));
        }
        due
    }

    /// Whether a judgement waits for answers.
    fn is_judging(&self) -> bool {
        self.cases.values().any(|case| case.judgement.is_open())
    }

    /// Does what is due.
    async fn tick(&mut self) -> Result<(), Ended> {
        self.look_at_deferred().await?;

        let is_time = |at: Instant| at <= Instant::now();
        if self
            .shared
            .as_ref()
            .is_some_and(|shared| is_time(shared.next_read(self.is_judging())))
        {
            self.follow_others().await?;
        }

        if is_time(self.polls_at) {
            let begun = Instant::now();
            self.judge_all().await?;
            let interval = if self.is_judging() {
                POLL_INTERVAL
            } else {
                IDLE_POLL_INTERVAL
            };
            let pause = MAX_PAUSE.min(POLL_FACTOR * begun.elapsed());
            self.rests_until = Instant::now() + pause;
            self.polls_at = Instant::now() + interval.max(pause);
        }

        Ok(())
    }

    /// Handles one rejection.
    async fn look(&mut self, nack: Nack) -> Result<(), Ended> {
        let Some(rejection) = self.rejection(nack).await? else {
            return Ok(());
        };

        let Rejection {
            info,
            resource_type,
            ..
        } = &rejection;
        let watch = info
            .types
            .iter()
            .find(|watch| watch.resource_type == *resource_type)
            .cloned();
        let accepted = watch.as_ref().and_then(accepted_at);
        let (Some(watch), Some(accepted)) = (watch, accepted) else {
            // It may reject everything, and could blame any object.
            self.mark_looked_into(&rejection);
            not_attributed(&rejection, "it has accepted no response of this type yet");
            return Ok(());
        };

        let rejection = Rejection {
            accepted,
            ..rejection
        };
        let candidates = candidates(&self.push, &rejection.info, &watch, accepted).await;
        let known = self
            .charged_by_account(&candidates, &rejection.voter)
            .await?;
        match (candidates.as_slice(), known) {
            ([], _) => {
                self.mark_looked_into(&rejection);
                not_attributed(&rejection, "no object behind it has changed");
                Ok(())
            }
            ([only], _) => self.charge(only.clone(), &rejection, false).await,
            // Workloads of one account are alike.
            (_, Some(known)) => self.charge(known, &rejection, false).await,
            _ => {
                self.start_trial(nack, rejection, candidates);
                Ok(())
            }
        }
    }

    /// The rejection, if it counts and was not looked into yet.
    async fn rejection(&self, nack: Nack) -> Result<Option<Rejection>, Ended> {
        let id = nack.proxy;
        let resource_type = nack.resource_type;
        let Some(info) = self.connections.of_id(id) else {
            return Ok(None);
        };
        let Some(watch) = info
            .types
            .iter()
            .find(|watch| watch.resource_type == resource_type)
        else {
            return Ok(None);
        };

        // The proxy may have accepted something newer since.
        let Some(message) = watch
            .rejected
            .as_ref()
            .map(|rejected| rejected.message.clone())
        else {
            return Ok(None);
        };
        let Some(voter) = voter_of(&self.push.context(), &info) else {
            tracing::debug!(
                proxy = &*info.id,
                "a rejection does not count: its client has no identity of a workload at its address"
            );
            return Ok(None);
        };

        // It may be about an older response, or about a trial.
        let shown = self
            .push
            .inspect(move |inspect| inspect.engine.published(id, resource_type))
            .await?;
        let Some(shown) = shown.filter(|shown| {
            let rejected = watch.rejected_collection.as_ref();
            rejected.is_some_and(|rejected| Arc::ptr_eq(rejected, shown))
        }) else {
            return Ok(None);
        };

        // The proxy rejects it again whenever it is sent again.
        let is_known = self
            .looked_into
            .get(&(id, resource_type))
            .is_some_and(|known| Arc::ptr_eq(known, &shown));
        let is_tried = self
            .places
            .tried()
            .any(|tried| tried == (id, resource_type));
        let namespace = &voter.account.namespace;
        if is_known || is_tried || self.stops_rollout(&info, resource_type, namespace).await? {
            return Ok(None);
        }

        Ok(Some(Rejection {
            info,
            resource_type,
            voter,
            shown,
            message,
            accepted: 0,
        }))
    }

    /// Whether the rejected response contains the new version of an object in a rollout of the
    /// client's namespace. That rollout is stopped, and the proxy gets another response. It stops
    /// none of another namespace, whose users could else keep all rejections of clients that their
    /// object reaches from being looked into.
    async fn stops_rollout(
        &self,
        info: &ConnectionInfo,
        resource_type: ResourceType,
        namespace: &Namespace,
    ) -> Result<bool, Ended> {
        let context = self.push.context();
        let seen = context.rollouts.iter().filter(|(name, rollout)| {
            name.name.namespace == *namespace && rollout.is_seen_by(&info.proxy.name)
        });
        let facts: Vec<FactKey> = seen
            .filter_map(|(name, _)| context.new_versions.any(name))
            .flat_map(|object| facts_of(&object))
            .collect();
        if facts.is_empty() {
            return Ok(false);
        }

        let id = info.proxy_id;
        let reached = self
            .push
            .inspect(move |inspect| inspect.engine.affected_proxies(&facts))
            .await?;
        Ok(reached
            .get(&id)
            .is_some_and(|types| types.contains(&resource_type)))
    }

    /// Remembers that a rejection was looked into.
    fn mark_looked_into(&mut self, rejection: &Rejection) {
        if self.looked_into.len() >= MAX_LOOKED_INTO {
            let connections = &self.connections;
            self.looked_into
                .retain(|(proxy, _), _| connections.of_id(*proxy).is_some());
        }
        if self.looked_into.len() < MAX_LOOKED_INTO {
            let subscription = (rejection.info.proxy_id, rejection.resource_type);
            self.looked_into
                .insert(subscription, rejection.shown.clone());
        }
    }

    /// Attributes a rejection to an object; `is_trial`: the proxy has a trial now.
    async fn charge(
        &mut self,
        name: ObjectRef,
        rejection: &Rejection,
        is_trial: bool,
    ) -> Result<(), Ended> {
        self.mark_looked_into(rejection);
        let context = self.push.context();
        let object = context
            .objects
            .any(&name)
            .filter(|_| !context.quarantined.contains_key(&name));
        let is_known = self
            .cases
            .get(&name)
            .is_some_and(|case| case.is_current(&context));
        let (Some(object), true) = (
            object.filter(|_| !context.rollouts.contains_key(&name)),
            is_known || self.has_room(&rejection.voter.account.namespace),
        ) else {
            return match is_trial {
                true => {
                    self.end_trial(rejection.info.proxy_id, rejection.shown.clone())
                        .await
                }
                false => Ok(()),
            };
        };

        if !is_known {
            self.case_count += 1;
            let mut judgement = Judgement::kept();
            if let Some(shared) = &self.shared {
                // It decides how long a quarantine lasts, also after a restart.
                judgement.remember(shared.rejudged(&object));
            }
            let case = Case {
                rejecting: rejection.voter.account.namespace.clone(),
                number: self.case_count,
                ..Case::new(object, judgement)
            };
            self.cases.insert(name.clone(), case);
        }

        let now = self.started.elapsed();
        let Some(case) = self.cases.get_mut(&name) else {
            return Ok(());
        };
        let rejecter = Rejecter {
            account: rejection.voter.account.clone(),
            workload: rejection.voter.workload.clone(),
            accepted: rejection.accepted,
        };
        let is_own = rejecter.account.namespace == name.name.namespace;
        if case.rejecters.is_empty() || is_own {
            case.error = rejection.message.clone();
            case.rejecting = rejecter.account.namespace.clone();
        }
        case.rejecters.insert(rejection.info.proxy_id, rejecter);
        if is_trial {
            let subscription = (rejection.info.proxy_id, rejection.resource_type);
            case.trials.insert(subscription, rejection.shown.clone());
        }

        case.judgement.reject(now);
        self.polls_at = self.polls_at.min(self.rests_until);
        Ok(())
    }

    /// The state of this process's streams.
    fn streams(&self) -> Streams {
        let streams = self.connections.list();
        Streams {
            voices: voices(&self.push.context(), &streams),
            answers: Answers::of(&streams),
            streams,
            tried: self.places.tried().collect(),
            looked_into: self.looked_into.clone(),
        }
    }
}

/// Logs that the cause of a rejection is not known.
fn not_attributed(rejection: &Rejection, why: &'static str) {
    tracing::warn!(
        proxy = &*rejection.info.id,
        resource_type = rejection.resource_type.short_name(),
        error = %excerpt(&rejection.message),
        why,
        "failed to attribute a rejected response to one object"
    );
}

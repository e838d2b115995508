//! The proxies of this process by their state of a new version: sent, acknowledged, rejected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use navarch_api::any_object::AnyObject;
use navarch_api::names::Namespace;
use navarch_push::context::{PushContext, facts_of};
use navarch_push::engine::ProxyId;
use navarch_push::fact::FactKey;
use navarch_push::progress::last_change;
use navarch_push::quarantine::judgement::{Ballot, Judgement, MAX_WAIT, Subject, Verdict};
use navarch_push::quarantine::jury::Connected;
use navarch_push::quarantine::turnout::Turnout;
use navarch_push::quarantine::votes::{Answer, VoteCounter, Voter};
use navarch_push::quarantine::{excerpt, voter};
use navarch_push::resource::ResourceType;
use navarch_push::rollout::Rollout;
use navarch_push::worker::Inspect;
use navarch_xds::connections::ConnectionInfo;
use navarch_xds::standing::{Answers, ObjectChange, Rejecting, Standing, Standings, Subscription};

use navarch_answers::rollout::NAMED;

/// Numbers of proxies by their state of a new version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProxyCounts {
    /// Proxies that see the new version and get a resource that depends on it.
    pub(super) reached: usize,
    /// Proxies that have acknowledged it.
    pub(super) taken: usize,
    /// Proxies that have not acknowledged it, and hold the stage until they do.
    pub(super) pending: usize,
    /// Proxies that have not acknowledged it, and hold the stage for a limited time.
    pub(super) pending_for_a_time: usize,
    /// Clients without an identity that have not acknowledged it, and do not hold the stage.
    pub(super) without_identity: usize,
    /// The first of the proxies that hold the stage.
    pub(super) pending_proxies: Vec<String>,
    /// Why it is stopped: proxies that decide reject it, with the error of one.
    pub(super) rejected: Option<String>,
    /// The first proxy that rejects it, with its error, if that does not decide, but holds the
    /// stage.
    pub(super) contested: Option<String>,
    /// The same of a proxy that holds the stage for a limited time.
    pub(super) contested_for_a_time: Option<String>,
}

/// How long a proxy that has not acknowledged the new version holds a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Until it acknowledges it.
    Unlimited,
    /// At most [`MAX_FOREIGN_WAIT`](super::stage::MAX_FOREIGN_WAIT).
    Limited,
    /// Not at all.
    None,
}

/// A proxy that sees the new version.
#[derive(Clone, Debug)]
struct Member {
    name: Arc<str>,
    /// Its voice; `None` without an identity.
    voter: Option<Voter>,
}

/// What a proxy has said of the new version, by all types with a resource that depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ProxyAnswer {
    /// Whether it has not acknowledged it.
    is_pending: bool,
    /// The first type of which it has rejected what the new version may be in.
    rejected: Option<ResourceType>,
}

/// The answers of proxies that see the new version.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    /// The namespaces of this replica's clients with a voice, whatever version they see.
    voices: BTreeSet<Namespace>,
    proxies: BTreeMap<ProxyId, Member>,
    answers: Answers,
}

impl Members {
    /// The connected proxies that see the new version, with their answers.
    pub(super) fn of(
        rollout: &Rollout,
        context: &PushContext,
        connections: &[ConnectionInfo],
    ) -> Self {
        let voter_of =
            |info: &ConnectionInfo| voter(context, &info.proxy, info.peer.map(|peer| peer.ip()));
        let seeing = || {
            let all = connections.iter();
            all.filter(|info| rollout.is_seen_by(&info.proxy.name))
        };
        let member = |info: &ConnectionInfo| {
            let member = Member {
                name: info.proxy.name.clone(),
                voter: voter_of(info),
            };
            (info.proxy_id, member)
        };

        Self {
            voices: connections
                .iter()
                .filter_map(voter_of)
                .map(|voter| voter.account.namespace.clone())
                .collect(),
            proxies: seeing().map(member).collect(),
            answers: Answers::of(seeing()),
        }
    }

    /// Counts the proxies by state; `is_shared`: whether other replicas may have further ones.
    /// `before` is what proxies rejected before the stage began: what they do not acknowledge since the
    /// new version may be in that counts, as that of others does, only if they reject another resource
    /// with the new version. The rejection of a proxy of the object's own namespace stops the rollout;
    /// those of others only as they would quarantine it, and those of clients without an identity never.
    /// The time for which the others hold it depends on their namespace ([`hold_of`],
    /// [`hold_of_strangers`]). The cost depends on the resources that depend on the object.
    pub(super) fn tally(
        &self,
        inspect: &Inspect<'_>,
        object: &AnyObject,
        before: &Rejecting,
        is_shared: bool,
    ) -> ProxyCounts {
        let mut tally = ProxyCounts::default();
        let facts = facts_of(object);
        let change = ObjectChange {
            facts: &facts,
            revision: last_change(inspect, &FactKey::Rollout(object.object_ref())),
        };
        let mut standings = Standings::new(inspect, &self.answers);
        let mut counter = VoteCounter::default();
        let subject = Subject {
            object: object.object_ref(),
            root: Namespace::new(&inspect.engine.context().mesh.config.root_namespace),
        };

        let strangers = hold_of_strangers(&self.voices, &subject, is_shared);

        for (proxy, types) in inspect.engine.affected_proxies(&facts) {
            let Some(Member { name, voter }) = self.proxies.get(&proxy) else {
                continue;
            };

            tally.reached += 1;
            let subscriptions = types.into_iter().map(|resource_type| Subscription {
                proxy,
                resource_type,
            });
            let ProxyAnswer {
                is_pending,
                rejected,
            } = ProxyAnswer::of(subscriptions, &change, before, &mut standings);
            let rejection = rejected.map(|resource_type| {
                let error = self.answers.error(Subscription {
                    proxy,
                    resource_type,
                });
                let error = excerpt(error.map_or("", |error| &**error));
                format!("{name} rejected {}: {error}", resource_type.short_name())
            });

            let answer = match (&rejection, is_pending) {
                (Some(_), _) => Answer::Rejected,
                (None, true) => Answer::Pending,
                (None, false) => Answer::Accepted,
            };
            match voter {
                Some(voter) => counter.add(voter.clone(), answer),
                None => counter.add_stranger(),
            }

            let namespace = voter.as_ref().map(|voter| &voter.account.namespace);
            let hold = namespace.map_or(strangers, |namespace| hold_of(namespace, &subject));
            if let Some(text) = rejection {
                let is_own = namespace == Some(&subject.object.name.namespace);
                tally.add_rejection(text, is_own, hold);
            }
            if is_pending {
                tally.add_pending(name, hold);
            } else {
                tally.taken += 1;
            }
        }

        let is_contested = tally.contested.is_some() || tally.contested_for_a_time.is_some();
        if tally.rejected.is_none() && is_contested {
            let ballot = Ballot {
                votes: &counter.votes(),
                is_complete: !is_shared,
                // The stage has few of the proxies that the new version would reach: those of
                // other namespaces hold it, and do not stop it.
                keeps_reach: false,
                connected: &Connected::default(),
                elsewhere: &Turnout::default(),
            };
            let verdict = Judgement::open(Duration::ZERO).step(&subject, &ballot, MAX_WAIT);
            if matches!(verdict, Verdict::Quarantine(_)) {
                let contested = tally.contested.take();
                tally.rejected = contested.or_else(|| tally.contested_for_a_time.take());
            }
        }
        tally
    }
}

impl ProxyAnswer {
    /// That of the proxy with these subscriptions, which rejected something `before` the change.
    fn of(
        subscriptions: impl Iterator<Item = Subscription>,
        change: &ObjectChange<'_>,
        before: &Rejecting,
        standings: &mut Standings<'_>,
    ) -> Self {
        let mut answer = Self::default();
        for subscription in subscriptions {
            let Some(standing) = standings.of_change_after(before, subscription, change) else {
                continue;
            };
            answer.is_pending |= standing != Standing::Acknowledged;
            if standing == Standing::Rejected {
                answer.rejected.get_or_insert(subscription.resource_type);
            }
        }
        answer
    }
}

impl ProxyCounts {
    /// Adds the rejection of a proxy; `is_own`: whether it is of the object's namespace.
    fn add_rejection(&mut self, text: String, is_own: bool, hold: Hold) {
        let place = match (is_own, hold) {
            (true, _) => &mut self.rejected,
            (false, Hold::Unlimited) => &mut self.contested,
            (false, Hold::Limited) => &mut self.contested_for_a_time,
            (false, Hold::None) => return,
        };
        place.get_or_insert(text);
    }

    /// Adds a proxy that has not acknowledged the new version.
    fn add_pending(&mut self, name: &str, hold: Hold) {
        match hold {
            Hold::Unlimited => self.pending += 1,
            Hold::Limited => self.pending_for_a_time += 1,
            Hold::None => {
                self.without_identity += 1;
                return;
            }
        }
        if self.pending_proxies.len() < NAMED {
            self.pending_proxies.push(name.to_owned());
        }
    }
}

/// How long a proxy of this namespace holds a stage: those of the object's own namespace and of the
/// root namespace, where gateways are, until they acknowledge it. Whoever runs one pod in any other
/// namespace could else hold the rollouts of all namespaces.
fn hold_of(namespace: &Namespace, subject: &Subject) -> Hold {
    if *namespace == subject.object.name.namespace || *namespace == subject.root {
        Hold::Unlimited
    } else {
        Hold::Limited
    }
}

/// How long a client without a voice holds a stage; `voices` are the namespaces of clients that
/// have one.
///
/// Anyone who reaches the plain-text port can be such a client. So none holds a stage where clients
/// of the object's namespace or of the root namespace have voices: there, proxies authenticate.
/// Only in a mesh without authentication, where all are of this kind, they hold it like proxies of
/// the object's namespace.
///
/// Voices of other namespaces alone show neither: they may be a mesh in which the object's
/// namespace has no proxy, or an attacker with one identity in a mesh without authentication. The
/// same holds with replicas, where the clients with voices may be connected to another one. Then
/// clients without a voice hold a stage for a limited time.
fn hold_of_strangers(voices: &BTreeSet<Namespace>, subject: &Subject, is_shared: bool) -> Hold {
    let decides = |namespace: &Namespace| hold_of(namespace, subject) == Hold::Unlimited;
    if voices.iter().any(decides) {
        Hold::None
    } else if is_shared || !voices.is_empty() {
        Hold::Limited
    } else {
        Hold::Unlimited
    }
}

#[cfg(test)]
mod tests {
    use navarch_api::object::{Kind, NamespacedName, ObjectRef};

    use super::*;

    fn subject() -> Subject {
        Subject {
            object: ObjectRef {
                kind: Kind::VirtualService,
                name: NamespacedName::new("shop", "reviews"),
            },
            root: Namespace::new("istio-system"),
        }
    }

    #[test]
    fn only_the_objects_namespace_and_the_root_namespace_hold_a_stage_without_a_limit() {
        let hold = |namespace: &str| hold_of(&Namespace::new(namespace), &subject());
        assert_eq!(hold("shop"), Hold::Unlimited);
        assert_eq!(hold("istio-system"), Hold::Unlimited);
        assert_eq!(hold("evil"), Hold::Limited);
    }

    #[test]
    fn clients_without_a_voice_hold_a_stage_only_where_its_namespaces_have_none() {
        let hold = |voices: &[&str], is_shared| {
            let voices = voices.iter().map(Namespace::new).collect();
            hold_of_strangers(&voices, &subject(), is_shared)
        };

        for is_shared in [false, true] {
            assert_eq!(hold(&["shop"], is_shared), Hold::None);
            assert_eq!(hold(&["evil", "istio-system"], is_shared), Hold::None);
            assert_eq!(
                hold(&["evil"], is_shared),
                Hold::Limited,
                "one identity of another namespace does not end the waiting for the others"
            );
        }
        assert_eq!(hold(&[], false), Hold::Unlimited);
        assert_eq!(
            hold(&[], true),
            Hold::Limited,
            "those with a voice may be at another replica"
        );
    }

    #[test]
    fn proxies_are_counted_by_how_long_they_hold_a_stage() {
        let mut counts = ProxyCounts::default();
        counts.add_pending("web.shop", Hold::Unlimited);
        counts.add_pending("x.evil", Hold::Limited);
        counts.add_pending("mute", Hold::None);
        let rejection = |who: &str| format!("{who} rejected rds: no");
        counts.add_rejection(rejection("x.evil"), false, Hold::Limited);
        counts.add_rejection(rejection("mute"), false, Hold::None);

        assert_eq!(
            counts,
            ProxyCounts {
                pending: 1,
                pending_for_a_time: 1,
                without_identity: 1,
                pending_proxies: vec!["web.shop".to_owned(), "x.evil".to_owned()],
                contested_for_a_time: Some(rejection("x.evil")),
                ..ProxyCounts::default()
            }
        );

        counts.add_rejection(rejection("gateway"), false, Hold::Unlimited);
        counts.add_rejection(rejection("web.shop"), true, Hold::Unlimited);
        assert_eq!(counts.contested, Some(rejection("gateway")));
        assert_eq!(counts.rejected, Some(rejection("web.shop")));
    }
}

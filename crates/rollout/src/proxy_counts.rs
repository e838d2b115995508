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
    /// Proxies that have not acknowledged it and are no evidence: before the stage began, they had
    /// rejected the resources that it may be in.
    pub(super) rejected_before: usize,
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
    /// The longest hold of those that have acknowledged it.
    taken_hold: Hold,
    /// The longest hold of those of `rejected_before`.
    rejected_before_hold: Hold,
}

/// How long a proxy that has not acknowledged the new version holds a stage, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    /// Not at all.
    #[default]
    None,
    /// At most [`MAX_LIMITED_WAIT`](super::stage::MAX_LIMITED_WAIT).
    Limited,
    /// Until it acknowledges it.
    Unlimited,
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
    /// Whether it is no evidence by some type, as it had rejected resources before that may contain
    /// the new version.
    has_rejected_before: bool,
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
    ///
    /// `before` is what proxies rejected before the stage began. Proxies that still reject it are no
    /// evidence, for the new version or against it, unless they reject another resource that it may
    /// be in.
    ///
    /// The rejection of a proxy of the object's own namespace stops the rollout; those of others only
    /// as they would quarantine it, and those of clients without an identity never. The time for which
    /// the others hold it depends on their namespace ([`hold_of`], [`hold_of_strangers`]). The cost
    /// depends on the resources that depend on the object.
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
            let said = ProxyAnswer::of(subscriptions, &change, before, &mut standings);
            let rejection = said.rejected.map(|resource_type| {
                let error = self.answers.error(Subscription {
                    proxy,
                    resource_type,
                });
                let error = excerpt(error.map_or("", |error| &**error));
                format!("{name} rejected {}: {error}", resource_type.short_name())
            });

            match voter {
                Some(voter) => counter.add(voter.clone(), said.answer()),
                None => counter.add_stranger(),
            }

            let namespace = voter.as_ref().map(|voter| &voter.account.namespace);
            let hold = namespace.map_or(strangers, |namespace| hold_of(namespace, &subject));
            if let Some(text) = rejection {
                let is_own = namespace == Some(&subject.object.name.namespace);
                tally.add_rejection(text, is_own, hold);
            }
            if said.is_pending {
                tally.add_pending(name, hold);
            } else if said.has_rejected_before {
                tally.add_rejected_before(hold);
            } else {
                tally.add_taken(hold);
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
                answer.has_rejected_before = true;
                continue;
            };
            answer.is_pending |= standing != Standing::Acknowledged;
            if standing == Standing::Rejected {
                answer.rejected.get_or_insert(subscription.resource_type);
            }
        }
        answer
    }

    /// As a vote.
    fn answer(&self) -> Answer {
        if self.rejected.is_some() {
            Answer::Rejected
        } else if self.is_pending {
            Answer::Pending
        } else if self.has_rejected_before {
            Answer::Unattributed
        } else {
            Answer::Accepted
        }
    }
}

impl ProxyCounts {
    /// The number of proxies without whose evidence the stage has none: those of `rejected_before`, if
    /// none that would hold it as long has acknowledged the new version.
    pub(super) fn without_evidence(&self) -> usize {
        if self.rejected_before_hold > self.taken_hold {
            self.rejected_before
        } else {
            0
        }
    }

    /// Adds a proxy that has acknowledged the new version.
    fn add_taken(&mut self, hold: Hold) {
        self.taken += 1;
        self.taken_hold = self.taken_hold.max(hold);
    }

    /// Adds a proxy that is no evidence for the new version, or against it.
    fn add_rejected_before(&mut self, hold: Hold) {
        if hold == Hold::None {
            self.without_identity += 1;
        } else {
            self.rejected_before += 1;
            self.rejected_before_hold = self.rejected_before_hold.max(hold);
        }
    }

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
    use jiff::Timestamp;
    use navarch_api::names::ResourceName;
    use navarch_api::object::{Kind, NamespacedName, ObjectRef};
    use navarch_api::testing::object;
    use navarch_push::engine::{Engine, Interest};
    use navarch_push::proxy::{Locality, Proxy};
    use navarch_push::testing::{NoSink, RulesAsClusters, changes, mesh_of, rule};
    use navarch_xds::connections::{TypeInfo, WithheldNames};
    use navarch_xds::{Protocol, Rejection};
    use serde_json::json;

    use super::*;

    const CDS: ResourceType = ResourceType::Cluster;

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

    /// The stream of a proxy that has rejected the cluster of the rule `a`.
    fn rejecting_a(proxy: &Arc<Proxy>, proxy_id: ProxyId) -> ConnectionInfo {
        let names = || -> WithheldNames { std::iter::once(ResourceName::new("a")).collect() };
        let rejection = Rejection {
            code: 13,
            message: Arc::from("no"),
        };
        let watch = TypeInfo {
            resource_type: CDS,
            wildcard: true,
            names: Arc::default(),
            sent: None,
            acked: None,
            rejected: Some(rejection),
            rejected_collection: None,
            resources: None,
            taken: None,
            rest: None,
            withheld: names(),
            in_doubt: WithheldNames::default(),
            withheld_last: names(),
            in_sync: false,
        };

        ConnectionInfo {
            id: Arc::from("web-1.shop-1"),
            peer: None,
            connected_at: Timestamp::UNIX_EPOCH,
            protocol: Protocol::Delta,
            proxy: proxy.clone(),
            proxy_id,
            types: vec![watch],
        }
    }

    #[test]
    fn a_proxy_that_had_rejected_the_resource_before_is_no_evidence_until_it_accepts_it() {
        let mut state = mesh_of(&rule("a", "first"));
        let mut engine = Engine::new(state.context(), Arc::new(RulesAsClusters));
        let node = "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local";
        let proxy = Arc::new(Proxy::parse(node, json!({}), Locality::default()).unwrap());
        let id = engine.connect(proxy.clone(), Arc::new(NoSink));
        let all = Interest {
            wildcard: true,
            names: Arc::default(),
        };
        engine.subscribe(id, CDS, all);
        let mut info = rejecting_a(&proxy, id);
        let before = Rejecting::of([&info]);

        let changed = state.apply(changes(&rule("a", "second")));
        engine.apply(state.context(), changed);
        let inspect = Inspect {
            mesh_state: &state,
            engine: &engine,
            pushes: &[].into(),
        };
        let tally = |info: &ConnectionInfo| {
            let member = Member {
                name: proxy.name.clone(),
                voter: None,
            };
            let members = Members {
                voices: BTreeSet::new(),
                proxies: BTreeMap::from([(id, member)]),
                answers: Answers::of([info]),
            };
            members.tally(&inspect, &object(&rule("a", "second")), &before, false)
        };

        let counts = tally(&info);
        assert_eq!((counts.reached, counts.taken), (1, 0));
        assert_eq!((counts.pending, counts.rejected_before), (0, 1));
        assert_eq!(counts.without_evidence(), 1);

        let accepted = (engine.published(id, CDS).unwrap(), engine.revision());
        info.types[0].taken = Some(accepted);
        let counts = tally(&info);
        assert_eq!((counts.taken, counts.without_evidence()), (1, 0));
    }

    #[test]
    fn only_proxies_that_hold_a_stage_as_long_are_evidence_for_others() {
        let mut counts = ProxyCounts::default();
        counts.add_rejected_before(Hold::None);
        assert_eq!((counts.without_identity, counts.without_evidence()), (1, 0));

        counts.add_rejected_before(Hold::Unlimited);
        for (taken, expected) in [(Hold::None, 1), (Hold::Limited, 1), (Hold::Unlimited, 0)] {
            counts.add_taken(taken);
            assert_eq!(counts.without_evidence(), expected, "{taken:?}");
        }
    }
}

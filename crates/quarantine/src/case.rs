//! Rejected objects, with the proxies that reject each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_api::any_object::AnyObject;
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, ObjectRef};
use navarch_push::context::{PushContext, facts_of};
use navarch_push::engine::ProxyId;
use navarch_push::progress::changed_at;
use navarch_push::quarantine::instance::{Instance, Mark};
use navarch_push::quarantine::judgement::Judgement;
use navarch_push::quarantine::jury::Connected;
use navarch_push::quarantine::voter;
use navarch_push::quarantine::votes::{Answer, VoteCounter, Voter, Votes};
use navarch_push::resource::{Collection, ResourceType};
use navarch_push::worker::{Ended, Inspect, PushHandle};
use navarch_xds::connections::{ConnectionInfo, Connections, TypeInfo};
use navarch_xds::standing::{self, ObjectChange, Standing, Standings};
use tokio::time::Instant;

/// A stream, and the type of its response.
pub(super) type Subscription = (ProxyId, ResourceType);

/// The version of an object that proxies reject.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) object: AnyObject,
    pub(super) judgement: Judgement,
    /// The streams whose rejection is attributed to it.
    pub(super) rejecters: BTreeMap<ProxyId, Rejecter>,
    /// The error of one of them, of the object's own namespace if there is one.
    pub(super) error: Arc<str>,
    /// Streams that have a trial in place of their resources.
    pub(super) trials: BTreeMap<Subscription, Arc<Collection>>,
    /// The namespace whose proxies reject it, to whose share it counts: the object's own if proxies
    /// of it do, otherwise that of the first.
    pub(super) rejecting: Namespace,
    /// Its place in the order in which objects were rejected.
    pub(super) number: u64,
    /// When its answers were last looked at.
    pub(super) looked_at: Option<Instant>,
}

/// A stream whose rejection is attributed to an object.
#[derive(Clone, Debug)]
pub(super) struct Rejecter {
    /// Namespace and name of its service account.
    pub(super) account: NamespacedName,
    /// Its pod, or the WorkloadEntry of its machine.
    pub(super) workload: NamespacedName,
    /// The snapshot that it had last accepted.
    pub(super) accepted: u64,
}

impl Case {
    /// Nobody of this process rejects it.
    pub(super) fn new(object: AnyObject, judgement: Judgement) -> Self {
        let object_namespace = object.object_ref().name.namespace.clone();
        Self {
            object,
            judgement,
            rejecters: BTreeMap::new(),
            error: Arc::from(""),
            trials: BTreeMap::new(),
            rejecting: object_namespace,
            number: 0,
            looked_at: None,
        }
    }

    /// Whether one of its rejecting streams is still open.
    pub(super) fn has_rejecters(&self, connections: &Connections) -> bool {
        let mut streams = self.rejecters.keys();
        streams.any(|proxy| connections.of_id(*proxy).is_some())
    }

    /// Number of workloads of an account that reject the object.
    pub(super) fn rejected_by(&self, account: &NamespacedName) -> usize {
        let of_account = self
            .rejecters
            .values()
            .filter(|one| one.account == *account);
        let workloads: BTreeSet<&NamespacedName> = of_account.map(|one| &one.workload).collect();
        workloads.len()
    }

    /// Number of workloads of an account whose own trial found the object. Several streams of one
    /// workload are one.
    pub(super) fn confirmed_by(&self, account: &NamespacedName) -> usize {
        let tried: BTreeSet<ProxyId> = self.trials.keys().map(|(proxy, _)| *proxy).collect();
        let workloads: BTreeSet<&NamespacedName> = self
            .rejecters
            .iter()
            .filter(|(proxy, one)| one.account == *account && tried.contains(*proxy))
            .map(|(_, one)| &one.workload)
            .collect();
        workloads.len()
    }

    /// Whether the object still has the version.
    pub(super) fn is_current(&self, context: &PushContext) -> bool {
        written(context, &self.object.object_ref())
            .is_some_and(|written| written.same_content(&self.object))
    }
}

/// The voices of streams. Workloads without a UID differ by their oldest stream.
pub(super) fn voices(
    context: &PushContext,
    streams: &[ConnectionInfo],
) -> BTreeMap<ProxyId, Voter> {
    let mut voices: BTreeMap<ProxyId, Voter> = streams
        .iter()
        .filter_map(|info| Some((info.proxy_id, voter_of(context, info)?)))
        .collect();

    // In the order of their ids, which is that of their start.
    let mut oldest: BTreeMap<Voter, ProxyId> = BTreeMap::new();
    for (id, voter) in &mut voices {
        if voter.mark == Mark::Unknown {
            let first = *oldest.entry(voter.clone()).or_insert(*id);
            voter.mark = Mark::Stream(first);
        }
    }
    voices
}

/// The connected clients that have acknowledged a response.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// Those of each namespace: that of their voice, or the one that they claim.
    by_namespace: BTreeMap<Namespace, Connected>,
    /// Those of a namespace without any.
    none: Connected,
}

impl Clients {
    /// The clients of some streams.
    pub(super) fn of(streams: &Streams) -> Self {
        let mut all = Self::default();
        let is_ready =
            |info: &&ConnectionInfo| info.types.iter().any(|watch| watch.taken.is_some());

        for info in streams.streams.iter().filter(is_ready) {
            let voter = streams.voices.get(&info.proxy_id);
            let namespace = voter.map_or(&info.proxy.namespace, |one| &one.account.namespace);
            let connected = all.by_namespace.entry(namespace.clone()).or_default();
            match voter {
                Some(voter) => _ = connected.workloads.insert(Instance::of(voter)),
                None => {
                    connected.strangers.insert(info.proxy_id);
                    all.none.voiceless += 1;
                }
            }
        }

        for connected in all.by_namespace.values_mut() {
            connected.voiceless = all.none.voiceless;
        }
        all
    }

    /// Those of a namespace.
    pub(super) fn of_namespace(&self, namespace: &Namespace) -> &Connected {
        self.by_namespace.get(namespace).unwrap_or(&self.none)
    }
}

/// The version of an object as its users wrote it.
pub(super) fn written(context: &PushContext, name: &ObjectRef) -> Option<AnyObject> {
    let quarantined = context.quarantined.get(name);
    quarantined
        .map(|one| one.rejected.clone())
        .or_else(|| context.objects.any(name))
}

/// The voice of a stream; `None` if it has none.
pub(super) fn voter_of(context: &PushContext, info: &ConnectionInfo) -> Option<Voter> {
    voter(context, &info.proxy, info.peer.map(|peer| peer.ip()))
}

/// The state of a process's streams.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) streams: Vec<ConnectionInfo>,
    /// What their clients have said.
    pub(super) answers: standing::Answers,
    /// The voices of those that have one.
    pub(super) voices: BTreeMap<ProxyId, Voter>,
    /// Streams on which trials are in progress.
    pub(super) tried: BTreeSet<Subscription>,
    /// Rejected responses that were looked into.
    pub(super) looked_into: BTreeMap<Subscription, Arc<Collection>>,
}

/// The answers of this process's proxies to an object.
pub(super) async fn votes(
    push: &PushHandle,
    object: AnyObject,
    rejecters: BTreeMap<ProxyId, Rejecter>,
    streams: Arc<Streams>,
) -> Result<Votes, Ended> {
    push.inspect(move |inspect| counted(inspect, &object, &rejecters, &streams))
        .await
}

/// The same, on the push thread.
fn counted(
    inspect: &Inspect<'_>,
    object: &AnyObject,
    rejecters: &BTreeMap<ProxyId, Rejecter>,
    streams: &Streams,
) -> Votes {
    let facts = facts_of(object);
    let reached = inspect.engine.affected_proxies(&facts);
    let change = ObjectChange {
        facts: &facts,
        revision: changed_at(inspect, &object.object_ref()),
    };
    let mut answers = Answers {
        change,
        rejecters,
        streams,
        standings: Standings::new(inspect, &streams.answers),
    };
    let mut counter = VoteCounter::default();

    for info in &streams.streams {
        let Some(types) = reached.get(&info.proxy_id) else {
            continue;
        };
        match streams.voices.get(&info.proxy_id) {
            Some(voter) => counter.add(voter.clone(), answers.of(info, types)),
            None => counter.add_stranger(),
        }
    }

    counter.votes()
}

/// Determines the answers of streams to an object.
struct Answers<'a> {
    /// The object's last change.
    change: ObjectChange<'a>,
    rejecters: &'a BTreeMap<ProxyId, Rejecter>,
    streams: &'a Streams,
    standings: Standings<'a>,
}

impl Answers<'_> {
    /// The answer of a stream, given the types with resources that depend on the object.
    fn of(&mut self, info: &ConnectionInfo, types: &BTreeSet<ResourceType>) -> Answer {
        let watches: Vec<Option<&TypeInfo>> = types
            .iter()
            .map(|resource_type| {
                info.types
                    .iter()
                    .find(|watch| watch.resource_type == *resource_type)
            })
            .collect();

        if let Some(rejecter) = self.rejecters.get(&info.proxy_id) {
            // After a trial it has the former snapshot.
            let is_newer = |watch: &Option<&TypeInfo>| {
                watch.is_some_and(|watch| {
                    watch.rejected.is_none()
                        && watch
                            .taken
                            .as_ref()
                            .is_some_and(|(_, revision)| *revision > rejecter.accepted)
                })
            };
            if !watches.iter().all(is_newer) {
                return Answer::Rejected;
            }
        }

        let mut all = Answer::Accepted;
        for watch in watches {
            let one = watch.map_or(Answer::Pending, |watch| self.of_type(info.proxy_id, watch));
            all = match (all, one) {
                (Answer::Pending, _) | (_, Answer::Pending) => Answer::Pending,
                (all, one) => all.min(one),
            };
        }
        all
    }

    /// The answer of a stream to the resources of one type. Resources that it has rejected do not count
    /// if the object's change is not in them.
    fn of_type(&mut self, proxy: ProxyId, watch: &TypeInfo) -> Answer {
        let resource_type = watch.resource_type;
        let subscription = (proxy, resource_type);
        if self.streams.tried.contains(&subscription) {
            return Answer::Pending;
        }

        let own = standing::Subscription {
            proxy,
            resource_type,
        };
        if self.standings.of(own, &self.change) == Standing::Acknowledged {
            return Answer::Accepted;
        }

        let looked_into = self.streams.looked_into.get(&subscription);
        let is_looked_into = looked_into
            .zip(watch.rejected_collection.as_ref())
            .is_some_and(|(known, rejected)| Arc::ptr_eq(known, rejected));
        match watch.rejected.is_some() && is_looked_into {
            true => Answer::Unattributed,
            false => Answer::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use navarch_api::names::ResourceName;
    use navarch_api::testing::object;
    use navarch_push::engine::{Engine, Interest};
    use navarch_push::proxy::{Locality, Proxy};
    use navarch_push::testing::{NoSink, RulesAsClusters, changes, mesh_of, rule};
    use navarch_xds::connections::{AcknowledgedRest, WithheldNames};
    use navarch_xds::{Protocol, Rejection};
    use serde_json::json;

    use super::*;

    const CDS: ResourceType = ResourceType::Cluster;

    #[test]
    fn a_proxy_that_rejects_another_resource_accepts_an_object_whose_resource_it_has() {
        let mut state = mesh_of(&(rule("a", "first") + &rule("b", "first")));
        let mut engine = Engine::new(state.context(), Arc::new(RulesAsClusters));
        let node = "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local";
        let proxy = Arc::new(Proxy::parse(node, json!({}), Locality::default()).unwrap());
        let id = engine.connect(proxy.clone(), Arc::new(NoSink));
        let all = Interest {
            wildcard: true,
            names: Arc::default(),
        };
        engine.subscribe(id, CDS, all);
        let taken = (engine.published(id, CDS).unwrap(), engine.revision());

        // Both rules are changed, and it rejects the cluster of one.
        let changed = state.apply(changes(&(rule("a", "second") + &rule("b", "second"))));
        engine.apply(state.context(), changed);
        let current = engine.published(id, CDS).unwrap();
        let info = rejecting_a(&proxy, id, taken, (current, engine.revision()));
        let name = |name: &str| NamespacedName::new("shop", name);
        let voter = Voter {
            account: name("web"),
            workload: name("web-1"),
            mark: Mark::Unknown,
        };
        let streams = Streams {
            answers: standing::Answers::of([&info]),
            streams: vec![info],
            voices: BTreeMap::from([(id, voter)]),
            tried: BTreeSet::new(),
            looked_into: BTreeMap::new(),
        };

        let inspect = Inspect {
            mesh_state: &state,
            engine: &engine,
            pushes: &[].into(),
        };
        let accepted = |changed: &str| {
            let object = object(&rule(changed, "second"));
            let votes = counted(&inspect, &object, &BTreeMap::new(), &streams);
            votes.accounts()[&name("web")].accepted
        };
        assert_eq!(accepted("a"), 0);
        assert_eq!(accepted("b"), 1);
    }

    /// The stream of a proxy that has acknowledged all of `current` but the cluster `a`.
    fn rejecting_a(
        proxy: &Arc<Proxy>,
        proxy_id: ProxyId,
        taken: (Arc<Collection>, u64),
        current: (Arc<Collection>, u64),
    ) -> ConnectionInfo {
        let without = || ["a"].iter().map(ResourceName::new).collect();
        let rest = AcknowledgedRest {
            collection: current.0.clone(),
            revision: current.1,
            without: without(),
        };
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
            rejected_collection: Some(current.0),
            resources: None,
            taken: Some(taken),
            rest: Some(rest),
            withheld: without(),
            in_doubt: WithheldNames::default(),
            withheld_last: without(),
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
}

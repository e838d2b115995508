//! Whether proxies have acknowledged an object: of each type with a resource that depends on it the
//! current collection, or one after the object's last change.
//!
//! Resources that a proxy has rejected hold back no others ([`TypeInfo::withheld`]). So a proxy that
//! has acknowledged the rest of a collection lacks, of its type, only the objects whose change may be
//! in what it has rejected.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_api::names::ResourceName;
use navarch_push::engine::ProxyId;
use navarch_push::fact::FactKey;
use navarch_push::progress::Compared;
use navarch_push::resource::{Collection, ResourceType};
use navarch_push::worker::Inspect;
use navarch_xds::Protocol;
use navarch_xds::connections::{AcknowledgedRest, ConnectionInfo, TypeInfo, WithheldNames};

/// Maximum number of facts that are looked up for all proxies. With more, a further rejected resource
/// counts as one that the change may be in: after a restart, thousands of proxies may reject a route
/// table that depends on each service.
const MAX_FACTS: usize = 200_000;

/// Maximum number of rejected resources of a proxy and type whose facts are looked up. With more, all
/// objects of the type count as rejected.
const MAX_REJECTED: usize = 32;

/// What a proxy has said of an object, by one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has acknowledged the last change.
    Acknowledged,
    /// It has not answered yet.
    Pending,
    /// It has rejected a resource that the change may be in.
    Rejected,
}

/// A change of an object.
pub(super) struct ObjectChange<'a> {
    /// The facts of the object.
    pub(super) facts: &'a [FactKey],
    /// The snapshot of the change.
    pub(super) revision: u64,
}

/// One type of one proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subscription {
    pub(super) proxy: ProxyId,
    pub(super) resource_type: ResourceType,
}

/// The answers of proxies to their responses.
pub(super) struct Answers(BTreeMap<Subscription, AnswerOfType>);

/// The answer of a proxy to the responses of one type.
struct AnswerOfType {
    /// The last acknowledged collection, and its snapshot.
    taken: Option<(Arc<Collection>, u64)>,
    rest: Option<AcknowledgedRest>,
    rejected: Rejected,
}

/// What a proxy rejects of a type.
enum Rejected {
    Nothing,
    These(WithheldNames),
    All,
}

/// The standing of proxies, of one state of the engine.
pub(super) struct Standings<'a> {
    inspect: &'a Inspect<'a>,
    answers: &'a Answers,
    compared: Compared,
    /// The facts that may be why a rejected resource is not the one that the proxy has.
    behind: BTreeMap<(Subscription, ResourceName), BTreeSet<FactKey>>,
    /// The number of these facts.
    facts: usize,
}

impl Answers {
    /// The answers of these streams.
    pub(super) fn of(connections: &[ConnectionInfo]) -> Self {
        let mut answers = BTreeMap::new();
        for info in connections {
            for watch in &info.types {
                let subscription = Subscription {
                    proxy: info.proxy_id,
                    resource_type: watch.resource_type,
                };
                let answer = AnswerOfType {
                    taken: watch.taken.clone(),
                    rest: watch.rest.clone(),
                    rejected: Rejected::by(watch, info.protocol),
                };
                answers.insert(subscription, answer);
            }
        }
        Self(answers)
    }
}

impl Rejected {
    /// What a client rejects. Of the state of the world it is all of a type.
    fn by(watch: &TypeInfo, protocol: Protocol) -> Self {
        match (&watch.rejected, protocol) {
            (None, _) => Self::Nothing,
            (Some(_), Protocol::StateOfTheWorld) => Self::All,
            (Some(_), Protocol::Delta) => Self::These(watch.withheld.clone()),
        }
    }
}

impl<'a> Standings<'a> {
    /// No object was looked up yet.
    pub(super) fn new(inspect: &'a Inspect<'a>, answers: &'a Answers) -> Self {
        Self {
            inspect,
            answers,
            compared: Compared::default(),
            behind: BTreeMap::new(),
            facts: 0,
        }
    }

    /// What a proxy has said of a change, by one type.
    pub(super) fn of(&mut self, subscription: Subscription, change: &ObjectChange<'_>) -> Standing {
        let answers = self.answers;
        let Some(answer) = answers.0.get(&subscription) else {
            return Standing::Pending;
        };

        let taken = answer.taken.as_ref();
        if taken.is_some_and(|(collection, revision)| {
            *revision >= change.revision || self.is_shown(subscription, collection)
        }) {
            return Standing::Acknowledged;
        }

        let since = taken.map_or(0, |(_, revision)| *revision);
        if let Some(rest) = &answer.rest {
            let has_rest =
                rest.revision >= change.revision || self.is_shown(subscription, &rest.collection);
            if has_rest && !self.is_in(change, subscription, &rest.without, since) {
                return Standing::Acknowledged;
            }
        }

        let is_rejected = match &answer.rejected {
            Rejected::Nothing => false,
            Rejected::These(names) => self.is_in(change, subscription, names, since),
            Rejected::All => true,
        };
        match is_rejected {
            true => Standing::Rejected,
            false => Standing::Pending,
        }
    }

    /// Whether a collection is equal to the one in force for a proxy.
    fn is_shown(&mut self, subscription: Subscription, collection: &Arc<Collection>) -> bool {
        let Subscription {
            proxy,
            resource_type,
        } = subscription;
        let shown = self.inspect.engine.published(proxy, resource_type);
        shown.is_some_and(|shown| self.compared.are_equal(&shown, collection))
    }

    /// Whether a change since a snapshot may be in one of these resources of a proxy.
    fn is_in(
        &mut self,
        change: &ObjectChange<'_>,
        subscription: Subscription,
        names: &WithheldNames,
        since: u64,
    ) -> bool {
        let names: Vec<&ResourceName> = names.iter().take(MAX_REJECTED + 1).collect();
        if names.len() > MAX_REJECTED {
            return true;
        }
        names.into_iter().any(|name| {
            let behind = match self.behind.entry((subscription, name.clone())) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(_) if self.facts > MAX_FACTS => return true,
                Entry::Vacant(unknown) => {
                    let behind = facts_behind(self.inspect, subscription, name, since);
                    self.facts += behind.len();
                    unknown.insert(behind)
                }
            };
            change.facts.iter().any(|fact| behind.contains(fact))
        })
    }
}

/// The facts that may be why a resource of a proxy is not the one of a snapshot; all that it depends
/// on if none is found.
fn facts_behind(
    inspect: &Inspect<'_>,
    subscription: Subscription,
    name: &ResourceName,
    since: u64,
) -> BTreeSet<FactKey> {
    let Subscription {
        proxy,
        resource_type,
    } = subscription;
    let engine = inspect.engine;
    let changed = engine.provenance_since(proxy, resource_type, name, since);
    let facts = match changed.is_empty() {
        true => engine.provenance(proxy, resource_type, name),
        false => changed,
    };
    facts.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use bytes::Bytes;
    use jiff::Timestamp;
    use navarch_api::any_object::AnyObject;
    use navarch_api::decode::{Format, Outcome, decode_documents};
    use navarch_api::istio::DestinationRule;
    use navarch_api::object::NamespacedName;
    use navarch_api::settings::Settings;
    use navarch_push::context::facts_of;
    use navarch_push::engine::{Engine, Interest, PushCause, Sink};
    use navarch_push::mesh_state::{Change, MeshState};
    use navarch_push::progress::changed_at;
    use navarch_push::proxy::{Locality, Proxy};
    use navarch_push::view::{Translator, View};
    use navarch_push::worker::PushRecord;
    use navarch_xds::Rejection;
    use tokio::time::Instant;

    use super::*;

    const CDS: ResourceType = ResourceType::Cluster;

    /// Two clusters, each with the host of the DestinationRule of its name.
    struct Rules;

    impl Translator for Rules {
        fn names(&self, _: ResourceType, _: &View<'_>) -> Vec<ResourceName> {
            ["a", "b"].map(ResourceName::new).to_vec()
        }

        fn resource(&self, _: ResourceType, name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
            let rule = NamespacedName::new("shop", name.as_str());
            let rule = view.object::<DestinationRule>(&rule)?;
            Some(Bytes::from(rule.spec.host.clone()))
        }
    }

    struct NoSink;

    impl Sink for NoSink {
        fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
    }

    /// A mesh with one proxy, whose state is that of a push thread.
    struct World {
        state: MeshState,
        engine: Engine,
        pushes: VecDeque<PushRecord>,
        proxy: Arc<Proxy>,
        id: ProxyId,
    }

    fn rule(name: &str, host: &str) -> AnyObject {
        let yaml = format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\n\
             metadata: {{name: {name}, namespace: shop}}\nspec: {{host: {host}}}\n"
        );
        match decode_documents(&yaml, Format::Yaml).remove(0).outcome {
            Outcome::Read { object, .. } => object,
            Outcome::Ignored | Outcome::Rejected(_) => panic!("it is valid"),
        }
    }

    fn names(all: &[&str]) -> WithheldNames {
        all.iter().map(ResourceName::new).collect()
    }

    impl World {
        fn new() -> Self {
            let mut state = MeshState::new(Settings::default());
            state.apply(["a", "b"].map(|name| Change::Put(rule(name, "first"))));
            let mut engine = Engine::new(state.context(), Arc::new(Rules));
            let id = "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local";
            let proxy = Proxy::parse(id, serde_json::json!({}), Locality::default()).unwrap();
            let proxy = Arc::new(proxy);
            let id = engine.connect(proxy.clone(), Arc::new(NoSink));
            let all = Interest {
                wildcard: true,
                names: Arc::default(),
            };
            engine.subscribe(id, CDS, all);

            Self {
                state,
                engine,
                pushes: VecDeque::new(),
                proxy,
                id,
            }
        }

        /// Changes a rule.
        fn change(&mut self, name: &str, host: &str) {
            let changed = self.state.apply([Change::Put(rule(name, host))]);
            let stats = self.engine.apply(self.state.context(), changed.clone());
            self.pushes.push_back(PushRecord {
                revision: self.engine.revision(),
                facts: changed.len(),
                changed,
                objects: Vec::new(),
                received_at: None,
                began: Instant::now(),
                taken_in: Duration::ZERO,
                stats,
                took: Duration::ZERO,
            });
        }

        /// The collection in force, and its snapshot.
        fn current(&self) -> (Arc<Collection>, u64) {
            let collection = self.engine.published(self.id, CDS).unwrap();
            (collection, self.engine.revision())
        }

        /// The stream of the proxy, which has rejected something since it had `taken`.
        fn stream(&self, protocol: Protocol, taken: &(Arc<Collection>, u64)) -> ConnectionInfo {
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
                rejected_collection: Some(self.current().0),
                resources: None,
                taken: Some(taken.clone()),
                rest: None,
                withheld: WithheldNames::default(),
                withheld_last: WithheldNames::default(),
                in_sync: false,
            };

            ConnectionInfo {
                id: Arc::from("web-1.shop-1"),
                peer: None,
                connected_at: Timestamp::UNIX_EPOCH,
                protocol,
                proxy: self.proxy.clone(),
                proxy_id: self.id,
                types: vec![watch],
            }
        }

        /// What the proxy has said of the rules `a` and `b`.
        fn standings(&self, stream: ConnectionInfo) -> [Standing; 2] {
            let inspect = Inspect {
                mesh_state: &self.state,
                engine: &self.engine,
                pushes: &self.pushes,
            };
            let answers = Answers::of(&[stream]);
            let mut standings = Standings::new(&inspect, &answers);
            ["a", "b"].map(|name| {
                let object = rule(name, "any");
                let change = ObjectChange {
                    facts: &facts_of(&object),
                    revision: changed_at(&inspect, &object.object_ref()),
                };
                let subscription = Subscription {
                    proxy: self.id,
                    resource_type: CDS,
                };
                standings.of(subscription, &change)
            })
        }
    }

    #[test]
    fn an_object_beside_a_rejected_one_is_acknowledged() {
        use Standing::{Acknowledged, Pending, Rejected};

        let mut world = World::new();
        let taken = world.current();
        world.change("a", "second");
        world.change("b", "second");
        let mut stream = world.stream(Protocol::Delta, &taken);
        stream.types[0].withheld = names(&["a"]);
        assert_eq!(world.standings(stream.clone()), [Rejected, Pending]);

        let (collection, revision) = world.current();
        stream.types[0].rest = Some(AcknowledgedRest {
            collection,
            revision,
            without: names(&["a"]),
        });
        assert_eq!(world.standings(stream.clone()), [Rejected, Acknowledged]);

        // While it is sent again it is not acknowledged.
        stream.types[0].withheld = names(&[]);
        assert_eq!(world.standings(stream.clone()), [Pending, Acknowledged]);

        world.change("b", "third");
        stream.types[0].withheld = names(&["a"]);
        assert_eq!(world.standings(stream), [Rejected, Pending]);
    }

    #[test]
    fn a_rejected_state_of_the_world_has_all_objects() {
        let mut world = World::new();
        let taken = world.current();
        world.change("a", "second");
        world.change("b", "second");
        let stream = world.stream(Protocol::StateOfTheWorld, &taken);
        assert_eq!(world.standings(stream), [Standing::Rejected; 2]);
    }

    #[test]
    fn with_many_rejected_resources_all_objects_are_rejected() {
        let mut world = World::new();
        let taken = world.current();
        world.change("a", "second");
        let many: Vec<String> = (0..=MAX_REJECTED).map(|at| at.to_string()).collect();
        let mut stream = world.stream(Protocol::Delta, &taken);
        stream.types[0].withheld = many.iter().map(ResourceName::new).collect();
        assert_eq!(world.standings(stream)[0], Standing::Rejected);
    }
}

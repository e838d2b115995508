//! What clients have said of changes of two objects, each with a cluster of its own.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use navarch_api::identity::Identity;
use navarch_api::testing::object;
use navarch_push::context::facts_of;
use navarch_push::engine::{Engine, Interest};
use navarch_push::mesh_state::MeshState;
use navarch_push::progress::changed_at;
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::testing::{NoSink, RulesAsClusters, changes, mesh_of, rule};
use navarch_push::worker::PushRecord;
use tokio::time::Instant;

use super::*;
use crate::session::discovery_request::Rejection;

const CDS: ResourceType = ResourceType::Cluster;

/// A mesh with one proxy, whose state is that of a push thread.
struct World {
    state: MeshState,
    engine: Engine,
    pushes: VecDeque<PushRecord>,
    proxy: Arc<Proxy>,
    id: ProxyId,
}

fn names(all: &[&str]) -> WithheldNames {
    all.iter().map(ResourceName::new).collect()
}

impl World {
    fn new() -> Self {
        let state = mesh_of(&(rule("a", "first") + &rule("b", "first")));
        let mut engine = Engine::new(state.context(), Arc::new(RulesAsClusters));
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
        let changed = self.state.apply(changes(&rule(name, host)));
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

    fn inspect(&self) -> Inspect<'_> {
        Inspect {
            mesh_state: &self.state,
            engine: &self.engine,
            pushes: &self.pushes,
        }
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
            in_doubt: WithheldNames::default(),
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
        self.looked_up(stream, |standings, subscription, change| {
            standings.of(subscription, change)
        })
    }

    /// The same, by a proxy that rejected something `before` the change.
    fn standings_after(&self, before: &Rejecting, stream: ConnectionInfo) -> [Option<Standing>; 2] {
        self.looked_up(stream, |standings, subscription, change| {
            standings.of_change_after(before, subscription, change)
        })
    }

    fn looked_up<T>(
        &self,
        stream: ConnectionInfo,
        look: impl Fn(&mut Standings<'_>, Subscription, &ObjectChange<'_>) -> T,
    ) -> [T; 2] {
        let inspect = self.inspect();
        let answers = Answers::of(&[stream]);
        let mut standings = Standings::new(&inspect, &answers);
        ["a", "b"].map(|name| {
            let object = object(&rule(name, "any"));
            let change = ObjectChange {
                facts: &facts_of(&object),
                revision: changed_at(&inspect, &object.object_ref()),
            };
            let subscription = Subscription {
                proxy: self.id,
                resource_type: CDS,
            };
            look(&mut standings, subscription, &change)
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
fn a_newer_change_of_a_rejected_object_is_pending_until_it_is_answered() {
    use Standing::{Pending, Rejected};

    let mut world = World::new();
    let taken = world.current();
    world.change("a", "second");
    let whole = world.stream(Protocol::StateOfTheWorld, &taken);
    let mut single = world.stream(Protocol::Delta, &taken);
    single.types[0].withheld = names(&["a"]);
    assert_eq!(world.standings(whole.clone())[0], Rejected);

    // The streams have not sent it yet.
    world.change("b", "second");
    assert_eq!(world.standings(single.clone()), [Rejected, Pending]);
    world.change("a", "third");
    assert_eq!(world.standings(single), [Pending; 2]);
    assert_eq!(world.standings(whole), [Pending; 2]);
}

#[test]
fn while_halves_are_tried_what_is_in_doubt_is_pending() {
    use Standing::{Pending, Rejected};

    let mut world = World::new();
    let taken = world.current();
    world.change("a", "second");
    world.change("b", "second");
    let mut stream = world.stream(Protocol::Delta, &taken);
    stream.types[0].withheld = names(&["a", "b"]);
    stream.types[0].in_doubt = names(&["a", "b"]);
    assert_eq!(world.standings(stream.clone()), [Pending; 2]);
    stream.types[0].in_doubt = names(&["b"]);
    assert_eq!(world.standings(stream), [Rejected, Pending]);
}

#[test]
fn what_was_rejected_before_says_nothing_about_a_change_of_it_alone() {
    use Standing::{Pending, Rejected};

    let mut world = World::new();
    let taken = world.current();
    world.change("a", "second");
    let mut stream = world.stream(Protocol::Delta, &taken);
    stream.types[0].withheld = names(&["a"]);
    let before = Rejecting::of([&stream]);
    let whole = world.stream(Protocol::StateOfTheWorld, &taken);
    let all_before = Rejecting::of([&whole]);

    world.change("b", "second");
    let standings = world.standings_after(&before, stream.clone());
    assert_eq!(standings, [None, Some(Pending)]);
    assert_eq!(world.standings_after(&all_before, whole), [None; 2]);

    stream.types[0].withheld = names(&["a", "b"]);
    stream.types[0].rejected_collection = Some(world.current().0);
    let standings = world.standings_after(&before, stream.clone());
    assert_eq!(standings, [None, Some(Rejected)]);
    let standings = world.standings_after(&Rejecting::default(), stream.clone());
    assert_eq!(standings, [Some(Rejected); 2]);

    // When the change came, it was being sent again.
    let mut retried = stream.clone();
    retried.types[0].withheld = names(&[]);
    retried.types[0].rest = Some(AcknowledgedRest {
        collection: taken.0,
        revision: taken.1,
        without: names(&["a"]),
    });
    let before = Rejecting::of([&retried]);
    let standings = world.standings_after(&before, stream);
    assert_eq!(standings, [None, Some(Rejected)]);
}

#[test]
fn a_change_of_a_resource_rejected_before_is_rejected_with_another_resource() {
    let mut world = World::new();
    let taken = world.current();
    world.change("a", "second");
    let mut stream = world.stream(Protocol::Delta, &taken);
    stream.types[0].withheld = names(&["a"]);
    let before = Rejecting::of([&stream]);

    // A change that is in both clusters.
    world.change("a", "third");
    world.change("b", "second");
    let facts = ["a", "b"].map(|name| facts_of(&object(&rule(name, "any"))));
    let facts = facts.concat();

    let inspect = world.inspect();
    let said = |stream: &ConnectionInfo| {
        let change = ObjectChange {
            facts: &facts,
            revision: world.engine.revision(),
        };
        let subscription = Subscription {
            proxy: world.id,
            resource_type: CDS,
        };
        let answers = Answers::of([stream]);
        Standings::new(&inspect, &answers).of_change_after(&before, subscription, &change)
    };

    stream.types[0].rejected_collection = Some(world.current().0);
    assert_eq!(said(&stream), None);
    stream.types[0].withheld = names(&["a", "b"]);
    assert_eq!(said(&stream), Some(Standing::Rejected));
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

/// Number of streams that reject [`MAX_REJECTED`] resources each, and have spent a share of this many
/// facts before the last one.
fn streams_of(share: usize) -> usize {
    share / FACTS_OF_LOOKUP / MAX_REJECTED + 2
}

impl World {
    /// Streams of proxies in these namespaces, each of which rejects [`MAX_REJECTED`] resources; without
    /// a namespace, of proxies without an identity.
    fn rejecting_streams(
        &mut self,
        namespaces: impl Iterator<Item = Option<&'static str>>,
        taken: &(Arc<Collection>, u64),
    ) -> Vec<ConnectionInfo> {
        let mut stream = self.stream(Protocol::Delta, taken);
        let names = (0..MAX_REJECTED).map(|at| ResourceName::new(at.to_string()));
        stream.types[0].withheld = names.collect();

        let identity = |namespace: &str| {
            Identity::parse(&format!("spiffe://cluster.local/ns/{namespace}/sa/web")).unwrap()
        };
        let of_namespace = |namespace: Option<&str>| ConnectionInfo {
            proxy: Arc::new(Proxy {
                identity: namespace.map(identity),
                ..(*self.proxy).clone()
            }),
            proxy_id: self.engine.connect(self.proxy.clone(), Arc::new(NoSink)),
            ..stream.clone()
        };
        namespaces.map(of_namespace).collect()
    }

    /// What these proxies have said of the rule `b`, in turn.
    fn said_by(&self, streams: &[ConnectionInfo]) -> Vec<Standing> {
        self.said_after(0, streams)
    }

    /// The same after this number of facts was looked up for others.
    fn said_after(&self, facts: usize, streams: &[ConnectionInfo]) -> Vec<Standing> {
        let inspect = self.inspect();
        let answers = Answers::of(streams);
        let mut standings = Standings::new(&inspect, &answers);
        standings.facts_of_all = facts;
        let object = object(&rule("b", "any"));
        let facts = facts_of(&object);
        let change = ObjectChange {
            facts: &facts,
            revision: changed_at(&inspect, &object.object_ref()),
        };

        let said = streams.iter().map(|stream| {
            let subscription = Subscription {
                proxy: stream.proxy_id,
                resource_type: CDS,
            };
            standings.of(subscription, &change)
        });
        said.collect()
    }
}

#[test]
fn resources_that_many_proxies_reject_are_looked_up_as_far_as_there_is_time() {
    let mut world = World::new();
    let taken = world.current();
    world.change("b", "second");

    let all = std::iter::repeat_n(None, streams_of(MAX_FACTS));
    let streams = world.rejecting_streams(all, &taken);
    let said = world.said_by(&streams);
    assert_eq!(said.first(), Some(&Standing::Pending));
    assert_eq!(said.last(), Some(&Standing::Rejected));
}

#[test]
fn a_namespace_that_rejects_without_end_takes_no_look_ups_of_others() {
    let mut world = World::new();
    let taken = world.current();
    world.change("b", "second");

    let evil = std::iter::repeat_n(Some("evil"), streams_of(MAX_FACTS));
    let strangers = std::iter::repeat_n(None, streams_of(MAX_FACTS));
    let all = evil.chain(strangers).chain([Some("shop")]);
    let streams = world.rejecting_streams(all, &taken);
    let said = world.said_by(&streams);

    let shops = said.len() - 1;
    assert_eq!(said[shops], Standing::Pending, "that of shop");
    assert_eq!(
        said[shops - 1],
        Standing::Rejected,
        "strangers have had their share"
    );
    assert_eq!(said[streams_of(MAX_FACTS) - 1], Standing::Rejected);
}

#[test]
fn what_all_namespaces_look_up_together_has_a_bound() {
    let mut world = World::new();
    let taken = world.current();
    world.change("b", "second");

    let streams = world.rejecting_streams([Some("shop")].into_iter(), &taken);
    assert_eq!(world.said_after(0, &streams), [Standing::Pending]);
    assert_eq!(
        world.said_after(MAX_FACTS_OF_ALL + 1, &streams),
        [Standing::Rejected]
    );
}

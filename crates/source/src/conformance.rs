//! What every source must do, whatever it reads: a suite to be run on each of them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Batch, Problem, ProblemKind, SourceEvent};
use navarch_api::any_object::AnyObject;
use navarch_api::object::ObjectRef;

/// How long to wait for what must come. Never waited out by a source that works.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A source with the place it reads.
pub(super) trait SourceUnderTest: Sized {
    /// Starts a source over a place that holds these objects.
    async fn start(objects: &[Value]) -> Self;

    /// Puts an object in place of the one of its name, or beside the others.
    async fn put(&mut self, object: &Value);

    /// Takes an object away.
    async fn delete(&mut self, object: &Value);

    /// The channel to which the source sends its events.
    fn events(&mut self) -> &mut mpsc::Receiver<Batch>;

    /// Puts a version of an object that cannot be read in its place: its name is good, its content
    /// is not.
    async fn put_broken(&mut self, object: &Value) {
        let mut broken = object.clone();
        broken["spec"] = json!("broken");
        self.put(&broken).await;
    }
}

/// Listens to a source, event by event.
pub(super) struct Listener<S> {
    pub(super) source: S,
    /// Events of a batch that the test has not read yet.
    waiting: VecDeque<SourceEvent>,
    /// What the events so far add up to.
    pub(super) objects: BTreeMap<ObjectRef, AnyObject>,
    /// The problems that the events so far add up to, by place.
    pub(super) problems: BTreeMap<String, Vec<Problem>>,
    /// Whether the source has said that it is in sync.
    synced: bool,
}

impl<S: SourceUnderTest> Listener<S> {
    /// Listens to a source over a place that holds these objects.
    pub(super) async fn start(objects: &[Value]) -> Self {
        Self::over(S::start(objects).await)
    }

    /// Listens to a source.
    pub(super) fn over(source: S) -> Self {
        let (waiting, objects, problems) = Default::default();
        Self {
            source,
            waiting,
            objects,
            problems,
            synced: false,
        }
    }

    /// The next event. An event that breaks a source's contract fails the test.
    pub(super) async fn next(&mut self) -> SourceEvent {
        while self.waiting.is_empty() {
            let batch = timeout(TIMEOUT, self.source.events().recv()).await;
            let batch = batch.unwrap_or_else(|_| {
                panic!(
                    "nothing came; so far: {:#?}, {:#?}",
                    self.objects.keys(),
                    self.problems
                )
            });
            self.waiting.extend(batch.expect("the source ended"));
        }

        let event = self.waiting.pop_front().unwrap();
        match &event {
            SourceEvent::Added(object) => {
                let before = self.objects.insert(object.object_ref(), object.clone());
                assert_eq!(before, None, "added twice");
            }
            SourceEvent::Updated(object) => {
                let before = self.objects.insert(object.object_ref(), object.clone());
                let before = before.expect("updated before it was added");
                assert!(!before.same_output(object), "updated to the same");
                // A generation or version that is sent is an update without a change of content.
                if before.same_content(object) {
                    return Box::pin(self.next()).await;
                }
            }
            SourceEvent::Deleted(reference) => {
                assert!(
                    self.objects.remove(reference).is_some(),
                    "deleted twice: {reference}"
                );
            }
            SourceEvent::Problems { place, problems } => {
                self.problems.insert(place.to_string(), problems.clone());
            }
            SourceEvent::FullSync => {
                assert!(!std::mem::replace(&mut self.synced, true), "in sync twice")
            }
            SourceEvent::MeshConfig(_) | SourceEvent::MeshNetworks(_) | SourceEvent::Keys(..) => {}
        }

        event
    }

    /// Listens until an event fits; gives all that came, it included.
    pub(super) async fn until(&mut self, fits: impl Fn(&SourceEvent) -> bool) -> Vec<SourceEvent> {
        let mut events = Vec::new();
        while !events.last().is_some_and(&fits) {
            events.push(self.next().await);
        }
        events
    }

    /// Listens until the source is in sync; gives all that came before.
    pub(super) async fn sync(&mut self) -> Vec<SourceEvent> {
        let mut events = self.until(|event| *event == SourceEvent::FullSync).await;
        events.pop();
        events
    }

    /// The next event about an object, problems left out, in brief: `+Namespace a` and the like.
    pub(super) async fn next_change(&mut self) -> String {
        let brief =
            |sign: char, reference: &dyn Debug| format!("{sign}{reference:?}").replace('"', "");
        loop {
            return match self.next().await {
                SourceEvent::Added(object) => brief('+', &object.object_ref().to_string()),
                SourceEvent::Updated(object) => brief('~', &object.object_ref().to_string()),
                SourceEvent::Deleted(reference) => brief('-', &reference.to_string()),
                SourceEvent::FullSync => "synced".to_owned(),
                SourceEvent::Problems { .. }
                | SourceEvent::MeshConfig(_)
                | SourceEvent::MeshNetworks(_)
                | SourceEvent::Keys(..) => continue,
            };
        }
    }

    /// Listens until the problems of all places fit.
    pub(super) async fn until_problems(&mut self, fits: impl Fn(&[&Problem]) -> bool) {
        while !fits(&self.problems.values().flatten().collect::<Vec<_>>()) {
            self.next().await;
        }
    }

    /// Puts a marker object and waits for its event: by then all events of earlier changes were
    /// sent.
    pub(super) async fn expect_quiet(&mut self, marker: &str) {
        self.source.put(&namespace(marker, "marker")).await;
        assert_eq!(self.next_change().await, format!("+Namespace {marker}"));
    }
}

pub(super) fn namespace(name: &str, label: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": { "l": label } } })
}

pub(super) fn virtual_service(name: &str, host: &str) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": { "name": name, "namespace": "shop" },
        "spec": { "hosts": [host], "http": [{ "route": [{ "destination": { "host": host } }] }] },
    })
}

/// The initial objects are sent before the source reports that it is in sync.
pub(super) async fn initial_objects_are_sent_before_sync<S: SourceUnderTest>() {
    let mut listener =
        Listener::<S>::start(&[namespace("shop", "1"), virtual_service("a", "a")]).await;
    let name = |event| {
        let SourceEvent::Added(object) = event else {
            panic!("{event:?}")
        };
        object.object_ref().to_string()
    };
    let mut added: Vec<_> = listener.sync().await.into_iter().map(name).collect();
    added.sort();
    assert_eq!(added, ["Namespace shop", "VirtualService shop/a"]);
}

/// An empty place is in sync too.
pub(super) async fn an_empty_place_is_in_sync<S: SourceUnderTest>() {
    assert_eq!(Listener::<S>::start(&[]).await.sync().await, []);
}

/// Objects come, change and go.
pub(super) async fn changes_are_reported<S: SourceUnderTest>() {
    let mut listener = Listener::<S>::start(&[namespace("shop", "1")]).await;
    listener.sync().await;
    listener.source.put(&virtual_service("a", "one")).await;
    assert_eq!(listener.next_change().await, "+VirtualService shop/a");
    listener.source.put(&virtual_service("a", "two")).await;
    assert_eq!(listener.next_change().await, "~VirtualService shop/a");
    assert_eq!(
        listener.hosts(),
        BTreeMap::from([("a".to_owned(), "two".to_owned())])
    );
    listener.source.delete(&virtual_service("a", "two")).await;
    assert_eq!(listener.next_change().await, "-VirtualService shop/a");
}

/// Content that equals the previous content causes no event.
pub(super) async fn equal_content_causes_no_event<S: SourceUnderTest>() {
    let mut listener = Listener::<S>::start(&[virtual_service("a", "a")]).await;
    listener.sync().await;
    listener.source.put(&virtual_service("a", "a")).await;
    listener.expect_quiet("m").await;
}

/// An invalid version is reported, and the last valid one stays until the object is repaired or
/// deleted.
pub(super) async fn a_broken_version_leaves_the_last_good_one<S: SourceUnderTest>() {
    let rejects = |problems: &[&Problem]| {
        matches!(
            problems,
            [Problem {
                fault: ProblemKind::Rejected(_),
                ..
            }]
        )
    };

    let good = virtual_service("a", "one");
    let mut listener = Listener::<S>::start(&[good.clone(), namespace("shop", "1")]).await;
    listener.sync().await;
    listener.source.put_broken(&good).await;
    listener.until_problems(rejects).await;
    listener.expect_quiet("m1").await;
    listener.source.put(&good).await;
    listener
        .until_problems(|problems| problems.is_empty())
        .await;

    listener.expect_quiet("m2").await;
    listener.source.put_broken(&good).await;
    listener.until_problems(rejects).await;
    listener.source.put(&virtual_service("a", "two")).await;
    assert_eq!(listener.next_change().await, "~VirtualService shop/a");
    listener
        .until_problems(|problems| problems.is_empty())
        .await;

    listener.source.put_broken(&good).await;
    listener.until_problems(rejects).await;
    listener.source.delete(&good).await;
    assert_eq!(listener.next_change().await, "-VirtualService shop/a");
    listener
        .until_problems(|problems| problems.is_empty())
        .await;
}

/// An object that is invalid from the start is reported and affects no other object.
pub(super) async fn a_broken_object_harms_no_other<S: SourceUnderTest>() {
    let mut broken = virtual_service("b", "b");
    broken["spec"]["hosts"] = json!({ "no": "list" });
    let mut listener =
        Listener::<S>::start(&[virtual_service("a", "a"), broken, virtual_service("c", "c")]).await;
    listener.sync().await;
    assert_eq!(listener.objects.len(), 2);
    let problems: Vec<_> = listener.problems.values().flatten().collect();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].subject.to_string(), "VirtualService shop/b");
    assert!(
        matches!(&problems[0].fault, ProblemKind::Rejected(error) if error.path == "spec.hosts"),
        "{problems:?}"
    );
}

/// An unknown field is reported and ignored.
pub(super) async fn unknown_fields_are_reported<S: SourceUnderTest>() {
    let mut odd = virtual_service("a", "a");
    odd["spec"]["hots"] = json!(["b"]);
    let mut listener = Listener::<S>::start(&[odd]).await;
    listener.sync().await;
    let faults: Vec<_> = listener
        .problems
        .values()
        .flatten()
        .map(|problem| problem.fault.clone())
        .collect();
    assert_eq!(faults, [ProblemKind::UnknownField("spec.hots".to_owned())]);
    assert_eq!(listener.objects.len(), 1);
}

/// After any changes, in any order and at any speed, the sum of the events equals the current
/// objects.
pub(super) async fn reported_events_add_up<S: SourceUnderTest>() {
    for seed in 1..=4_u64 {
        let mut random = seed;
        let mut below = |bound: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(random >> 33).unwrap() % bound
        };

        let mut listener = Listener::<S>::start(&[]).await;
        listener.sync().await;
        let mut held: BTreeMap<String, String> = BTreeMap::new();

        for step in 0..60 {
            let name = format!("v{}", below(6));
            let host = format!("h{}", below(3));
            let object = virtual_service(&name, &host);

            match below(4) {
                0 if held.contains_key(&name) => {
                    listener.source.delete(&object).await;
                    held.remove(&name);
                }
                // Where something good stands, it stays in force; so a broken one is no change.
                1 if held.contains_key(&name) && step % 2 == 0 => {
                    listener.source.put_broken(&object).await;
                    let good = virtual_service(&name, &held[&name]);
                    listener.source.put(&good).await;
                }
                _ => {
                    listener.source.put(&object).await;
                    held.insert(name, host);
                }
            }
        }

        listener.until_contains(&held).await;
        listener.expect_quiet("m").await;
    }
}

impl<S: SourceUnderTest> Listener<S> {
    /// The hosts of the VirtualServices that are held, by name.
    pub(super) fn hosts(&self) -> BTreeMap<String, String> {
        let hosts = |object: &AnyObject| {
            let AnyObject::VirtualService(service) = object else {
                return None;
            };
            Some((
                service.meta.key.name.to_string(),
                service.spec.hosts.concat(),
            ))
        };
        self.objects.values().filter_map(hosts).collect()
    }

    /// Listens until these hosts are what is held.
    async fn until_contains(&mut self, hosts: &BTreeMap<String, String>) {
        while self.hosts() != *hosts {
            self.next().await;
        }
    }
}

/// Runs the whole suite on a source.
macro_rules! suite {
    ($name:ident, $source:ty) => {
        mod $name {
            use super::*;

            $crate::conformance::suite! { @tests $source:
                initial_objects_are_sent_before_sync an_empty_place_is_in_sync changes_are_reported
                equal_content_causes_no_event a_broken_version_leaves_the_last_good_one a_broken_object_harms_no_other
                unknown_fields_are_reported reported_events_add_up
            }
        }
    };
    (@tests $source:ty: $($test:ident)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                $crate::conformance::$test::<$source>().await;
            }
        )*
    };
}

pub(super) use suite;

//! Invariants of the engine for random meshes, with the real translator and with one that reads
//! everything.
//!
//! An incremental result equals a fresh start, whatever the order of changes; a change is pushed
//! exactly to the proxies whose resources it changes; proxies share resources unless these would
//! differ. `PROPTEST_CASES=<n>` runs more cases, `make laws` ten times as many with new seeds.
//! Failed cases are stored in main.proptest-regressions, and run first.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::print_stdout,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly, print, spawn and read its switches from the environment"
)]

mod mesh;
mod policies;
mod probe;
mod universe;

use std::collections::BTreeSet;
use std::sync::Arc;

use mesh::{
    Interests, MESHES, Mesh, PROXIES, Shown, State, TYPES, difference, first_interests, learned,
    mesh_config,
};
use navarch::envoy::EnvoyTranslator;
use navarch::push::learned::LearnedChange;
use navarch::push::mesh_state::Change;
use navarch::push::resource::ResourceType;
use navarch::push::view::Translator;
use navarch_tests::world;
use probe::Probe;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use universe::{HOSTS, places};

/// A random event.
#[derive(Clone, Debug)]
enum Event {
    /// An object is written: slot and variant.
    Put(usize, u32),
    /// An object is written again with another resource version.
    Rewrite(usize),
    /// An object is deleted.
    Delete(usize),
    /// Another mesh config is read.
    Mesh(u8),
    /// A workload has used a host.
    Learn(usize),
    /// An operator has deleted a host that a workload has used.
    Forget(usize),
    /// A proxy connects, or reconnects.
    Connect(usize),
    /// A proxy disconnects.
    Disconnect(usize),
    /// A proxy subscribes to the names in its resources.
    Follow(usize),
    /// The batched changes are pushed.
    Push,
}

fn cases(few: u32) -> ProptestConfig {
    let given = ProptestConfig::default();
    // 256 is proptest's default, when PROPTEST_CASES is not set.
    let cases = if given.cases == 256 { few } else { given.cases };
    // The default is one file for the `main.rs` of all programs of tests.
    let beside = FileFailurePersistence::WithSource("proptest-regressions");

    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(beside)),
        max_shrink_iters: 2_000,
        ..given
    }
}

fn event() -> impl Strategy<Value = Event> {
    let place = 0..places().len();
    prop_oneof![
        12 => (place.clone(), any::<u32>()).prop_map(|(place, variant)| Event::Put(place, variant)),
        1 => place.clone().prop_map(Event::Rewrite),
        3 => place.prop_map(Event::Delete),
        1 => (0..MESHES).prop_map(Event::Mesh),
        2 => (0..HOSTS.len()).prop_map(Event::Learn),
        1 => (0..HOSTS.len()).prop_map(Event::Forget),
        2 => (0..PROXIES).prop_map(Event::Connect),
        1 => (0..PROXIES).prop_map(Event::Disconnect),
        3 => (0..PROXIES).prop_map(Event::Follow),
        5 => Just(Event::Push),
    ]
}

fn objects(least: usize) -> impl Strategy<Value = Vec<(usize, u32)>> {
    vec((0..places().len(), any::<u32>()), least..60)
}

fn state_of(objects: &[(usize, u32)], mesh: u8) -> State {
    let places = places();
    let objects = objects
        .iter()
        .map(|(place, variant)| (places[*place], places[*place].object(*variant, 1)));
    State {
        objects: objects.collect(),
        mesh,
        learned: BTreeSet::new(),
    }
}

fn translators() -> [(&'static str, Arc<dyn Translator>); 2] {
    [
        ("envoy", Arc::new(EnvoyTranslator)),
        ("probe", Arc::new(Probe)),
    ]
}

/// The collections of a proxy that connects to a new control plane with these subscriptions.
fn fresh(
    state: &State,
    translator: &Arc<dyn Translator>,
    proxy: usize,
    interests: &Interests,
) -> Shown {
    let mut mesh = Mesh::on(state.changes(), translator);
    mesh.connect(proxy, interests.clone());
    mesh.shown(proxy)
}

/// All proxies, connected and subscribed to the names in their resources.
fn all_connected(state: &State, translator: &Arc<dyn Translator>) -> Mesh {
    let mut mesh = Mesh::on(state.changes(), translator);
    for proxy in 0..PROXIES {
        mesh.connect(proxy, first_interests());
        mesh.follow(proxy);
    }
    mesh
}

/// A mesh that processes events.
struct Walk {
    mesh: Mesh,
    state: State,
    pending: Vec<Change>,
    version: u32,
}

impl Walk {
    fn step(&mut self, event: &Event) {
        let places = places();
        self.version += 1;

        match event {
            Event::Put(place, variant) => {
                let object = places[*place].object(*variant, self.version);
                self.state.objects.insert(places[*place], object.clone());
                self.pending.push(Change::Put(object));
            }
            Event::Rewrite(place) => {
                if let Some(object) = self.state.objects.get(&places[*place]) {
                    self.pending.push(Change::Put(object.clone()));
                }
            }
            Event::Delete(place) => {
                self.state.objects.remove(&places[*place]);
                self.pending
                    .push(Change::Removed(places[*place].reference()));
            }
            Event::Mesh(mesh) => {
                self.state.mesh = *mesh;
                self.pending.push(mesh_config(*mesh));
            }
            Event::Learn(host) => {
                self.state.learned.insert(*host);
                self.pending.push(learned(LearnedChange::Add, *host));
            }
            Event::Forget(host) => {
                self.state.learned.remove(host);
                self.pending.push(learned(LearnedChange::Forget, *host));
            }
            Event::Connect(proxy) => self.mesh.connect(*proxy, first_interests()),
            Event::Disconnect(proxy) => self.mesh.disconnect(*proxy),
            Event::Follow(proxy) => self.mesh.follow(*proxy),
            Event::Push => _ = self.mesh.apply(std::mem::take(&mut self.pending)),
        }
    }

    /// Compares with a fresh start.
    fn check(&mut self, name: &str, translator: &Arc<dyn Translator>) -> Result<(), TestCaseError> {
        self.step(&Event::Push);
        let connected: Vec<usize> = self.mesh.clients.keys().copied().collect();
        let mut fresh = Mesh::on(self.state.changes(), translator);
        for proxy in connected {
            self.mesh.follow(proxy);
            fresh.connect(proxy, self.mesh.clients[&proxy].interests.clone());
            let expected = fresh.shown(proxy);
            let actual = self.mesh.shown(proxy);
            if let Some(difference) =
                difference(&format!("{name}, proxy {proxy}"), &expected, &actual)
            {
                return Err(TestCaseError::fail(difference));
            }
            prop_assert_eq!(
                self.mesh.has_large_routes(proxy),
                fresh.has_large_routes(proxy),
                "{}: whether proxy {} has large routes",
                name,
                proxy
            );
        }
        let faults = self.mesh.engine.faults();
        prop_assert!(faults.is_empty(), "{name}: {faults:#?}");
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn incremental_results_equal_a_fresh_start(
        events in vec(event(), 0..120),
        checked in 20..60_usize,
        first in vec(0..PROXIES, 0..PROXIES),
    ) {
        for (name, translator) in translators() {
            let mesh = Mesh::new(&translator);
            let mut walk = Walk {
                mesh,
                state: State::default(),
                pending: vec![mesh_config(0)],
                version: 1,
            };
            first.iter().for_each(|proxy| walk.step(&Event::Connect(*proxy)));
            for events in events.chunks(checked) {
                events.iter().for_each(|event| walk.step(event));
                walk.check(name, &translator)?;
            }
        }
    }

    #[test]
    fn order_and_batches_of_objects_do_not_matter(
        objects in objects(10), mesh in 0..MESHES, seed in any::<u64>(), batch in 1..20_usize,
    ) {
        let state = state_of(&objects, mesh);

        for (name, translator) in translators() {
            let mut reference = all_connected(&state, &translator);
            let mut changes = state.changes();
            shuffle(&mut changes, seed);
            let mut other = Mesh::new(&translator);
            for proxy in 0..PROXIES {
                other.connect(proxy, reference.clients[&proxy].interests.clone());
            }

            let mut changes = changes.into_iter().peekable();
            while changes.peek().is_some() {
                let batch = changes.by_ref().take(batch).collect();
                other.apply(batch);
            }

            for proxy in 0..PROXIES {
                reference.follow(proxy);
                let found = difference(&format!("{name}, proxy {proxy}"), &reference.shown(proxy), &other.shown(proxy));
                prop_assert!(found.is_none(), "{}", found.unwrap_or_default());
            }
        }
    }

    #[test]
    fn a_change_is_pushed_only_to_proxies_whose_resources_change(
        objects in objects(20),
        mesh in 0..MESHES,
        changed in any::<prop::sample::Index>(),
        to in any::<Option<u32>>(),
    ) {
        let before = state_of(&objects, mesh);
        let place = changed.get(&objects).0;
        let place = places()[place];
        let mut after = before.clone();
        let change = match to {
            Some(variant) => {
                let object = place.object(variant, 2);
                after.objects.insert(place, object.clone());
                Change::Put(object)
            }
            None => {
                after.objects.remove(&place);
                Change::Removed(place.reference())
            }
        };

        for (name, translator) in translators() {
            let mut mesh = all_connected(&before, &translator);
            let was: Vec<Shown> = (0..PROXIES).map(|proxy| mesh.shown(proxy)).collect();
            let pushed = mesh.apply(vec![change.clone()]);
            let mut differ: BTreeSet<(usize, ResourceType)> = BTreeSet::new();
            for (proxy, was) in was.iter().enumerate() {
                let now = fresh(&after, &translator, proxy, &mesh.clients[&proxy].interests);
                let found = difference(&format!("{name}, proxy {proxy}"), &now, &mesh.shown(proxy));
                prop_assert!(found.is_none(), "{}", found.unwrap_or_default());
                let types = TYPES
                    .into_iter()
                    .filter(|resource_type| was.get(resource_type) != now.get(resource_type));
                differ.extend(types.map(|resource_type| (proxy, resource_type)));
            }
            prop_assert_eq!(pushed, differ, "{}: the pushed collections are not those that differ, by proxy and type", name);
        }
    }

    #[test]
    fn a_rewrite_of_equal_content_computes_nothing(objects in objects(10), mesh in 0..MESHES) {
        let state = state_of(&objects, mesh);
        let again: Vec<Change> =
            objects.iter().map(|(place, variant)| (places()[*place], *variant)).filter_map(|(place, variant)| {
                let object = place.object(variant, 2);
                state.objects.get(&place).is_some_and(|first| first.same_output(&object)).then_some(Change::Put(object))
            }).chain([mesh_config(mesh)]).collect();
        let mut mesh = Mesh::on(state.changes(), &translators()[1].1);
        prop_assert_eq!(mesh.mesh_state.apply(again), []);
        // Deleting and recreating an object in one batch is no change either.
        let there_and_back: Vec<Change> = state.objects.iter().flat_map(|(place, object)| {
            [Change::Removed(place.reference()), Change::Put(object.clone())]
        }).collect();
        prop_assert_eq!(mesh.mesh_state.apply(there_and_back), []);
    }

    #[test]
    fn proxies_share_only_resources_that_are_equal(objects in objects(20), mesh in 0..MESHES) {
        let state = state_of(&objects, mesh);
        for (name, translator) in translators() {
            let shared = all_connected(&state, &translator);
            for proxy in 0..PROXIES {
                let alone = fresh(&state, &translator, proxy, &shared.clients[&proxy].interests);
                let found = difference(&format!("{name}, proxy {proxy}"), &alone, &shared.shown(proxy));
                prop_assert!(found.is_none(), "{}", found.unwrap_or_default());
            }
        }
    }
}

/// Shuffles items, reproducibly for a seed.
fn shuffle<T>(items: &mut [T], mut seed: u64) {
    for last in (1..items.len()).rev() {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let other = usize::try_from(seed >> 33).expect("31 bits") % (last + 1);
        items.swap(last, other);
    }
}

#[test]
fn a_newer_version_of_equal_content_equals_a_fresh_start() {
    let mut sent = 0;
    let mut kinds = BTreeSet::new();
    for place in places() {
        if !kinds.insert(place.reference().kind) {
            continue;
        }
        let objects: Vec<_> = (0..places().len()).map(|place| (place, 7)).collect();
        let before = state_of(&objects, 0);
        let mut after = before.clone();
        let Some(old) = before.objects.get(&place) else {
            continue;
        };
        let newer = place.object(7, 2);
        assert!(old.same_content(&newer), "{place:?}");
        sent += usize::from(!old.same_output(&newer));
        after.objects.insert(place, newer.clone());

        let (_, translator) = &translators()[0];
        let mut mesh = all_connected(&before, translator);
        mesh.apply(vec![Change::Put(newer)]);
        for proxy in 0..PROXIES {
            let expected = fresh(&after, translator, proxy, &mesh.clients[&proxy].interests);
            let found = difference("envoy", &expected, &mesh.shown(proxy));
            assert!(
                found.is_none(),
                "{place:?}, proxy {proxy}: {}",
                found.unwrap_or_default()
            );
        }
    }
    assert!(sent > 0, "no resource contains an object's version");
}

#[test]
fn every_generated_object_is_valid() {
    for place in places() {
        for variant in 0..2_000_u32 {
            // Spread over all digits by which options are chosen.
            let _ = place.object(variant.wrapping_mul(2_654_435_761), 1);
        }
    }
}

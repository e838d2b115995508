//! The laws, with a small sheet: cells that depend on others, on readers, and on both.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::notice::NoticeChange;

/// Cells that are inputs; their values are numbers.
const INPUTS: usize = 6;
/// Computed cells: each depends on lower ones.
const CELLS: usize = 24;
/// A value of an input that computations cannot read.
const BROKEN: usize = 99;

/// The inputs of the tests.
enum Sheet {}

/// Values of input cells. The first input decides whether the group of a reader matters.
type Cells = BTreeMap<usize, usize>;

/// A property of a reader.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Property {
    Group,
    Name,
}

/// A group and a name.
#[derive(Clone, Copy)]
struct Reader {
    group: usize,
    name: usize,
}

impl Inputs for Sheet {
    type Snapshot = Cells;
    type Fact = usize;
    type Subscriber = Reader;
    type Attribute = Property;
    type AttributeValue = usize;
    type Topic = u8;
    type Published = Vec<usize>;
    type Notice = usize;
    type Environment = ();

    fn attribute(reader: &Reader, property: &Property) -> usize {
        match property {
            Property::Group => reader.group,
            Property::Name => reader.name,
        }
    }
}

impl crate::notice::Notice for usize {
    type Occurrence = ();

    fn occurrence(&self) -> Option<()> {
        None
    }
}

fn input(view: &View<'_, Sheet>, number: usize) -> usize {
    let number = number % INPUTS;
    let value = view.read(number).get(&number).copied().unwrap_or_default();
    assert!(value != BROKEN, "the cell is broken");
    value
}

/// A number computed from an input, from lower cells, and for some cells from the reader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cell(usize);

impl Computes<Cell> for Sheet {
    type Value = usize;

    fn compute(Cell(place): &Cell, view: &View<'_, Self>) -> usize {
        let own = input(view, *place);
        let mut sum = own;
        if *place > 0 {
            // Which cell is read depends on a value that was read, so dependencies change.
            sum += *view.get(&Cell((place * 7 + own * 5) % place));
            sum += *view.get(&Cell((place * 3 + sum) % place));
        }
        if sum % 5 == 1 {
            sum += *view.derived(&GroupIfItMatters);
        }
        // Few values, so that many changes have no effect.
        sum % 3
    }
}

/// The group of the reader, or zero if groups do not matter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupIfItMatters;

impl Computes<GroupIfItMatters> for Sheet {
    type Value = usize;

    fn compute(_: &GroupIfItMatters, view: &View<'_, Self>) -> usize {
        match input(view, 0) {
            0 => 0,
            _ => view.attribute(&Property::Group).unwrap_or_default(),
        }
    }
}

/// The last good value of a cell, in case that it cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept(usize);

impl Computes<Kept> for Sheet {
    type Value = usize;

    fn compute(Kept(place): &Kept, view: &View<'_, Self>) -> usize {
        let value = *view.get(&Cell(*place));
        if value == 2 {
            view.remark("a two");
            view.notice(*place);
        }
        value
    }

    fn fallback(_: &Kept, previous: Option<&usize>) -> Option<usize> {
        Some(previous.copied().unwrap_or_default())
    }
}

/// Several cells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Page(Vec<usize>);

impl Computes<Page> for Sheet {
    type Value = Vec<usize>;

    fn compute(Page(cells): &Page, view: &View<'_, Self>) -> Vec<usize> {
        cells.iter().map(|cell| *view.get(&Kept(*cell))).collect()
    }
}

/// The name of the reader, which no other has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnName;

impl Computes<OwnName> for Sheet {
    type Value = Vec<usize>;

    fn compute(_: &OwnName, view: &View<'_, Self>) -> Vec<usize> {
        view.attribute(&Property::Name).into_iter().collect()
    }
}

/// The name of the reader, read as a derived attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DerivedName;

impl Computes<DerivedName> for Sheet {
    type Value = Vec<usize>;

    fn compute(_: &DerivedName, view: &View<'_, Self>) -> Vec<usize> {
        view.derived(&OwnName).to_vec()
    }
}

/// A page with cells from the top.
fn page(number: usize) -> Page {
    Page(
        (0..4)
            .map(|n| CELLS - 1 - (number * 5 + n * 3) % CELLS)
            .collect(),
    )
}

/// An engine in which two dependents make a gate, and a sweep can stop after each step.
fn engine(cells: Cells) -> Engine<Sheet> {
    let config = EngineConfig {
        gate_min_dependents: 2,
        steps_per_time_check: 1,
    };
    Engine::with_config(config, Arc::new(cells), Arc::new(()))
}

/// A new reader of some pages, by topic.
fn come(engine: &mut Engine<Sheet>, reader: Reader, pages: u8) -> SubscriberId {
    let id = engine.connect(Arc::new(reader));
    for topic in 0..pages {
        engine.subscribe(id, topic, &page(topic.into()), &mut |_, _, _| {});
    }
    id
}

/// Changes inputs, and returns who got what.
fn set(
    engine: &mut Engine<Sheet>,
    inputs: &[(usize, usize)],
) -> (PushStats, Vec<(SubscriberId, u8)>) {
    let mut cells = Cells::clone(engine.snapshot());
    // As the engine demands, only facts that differ.
    let changed: Vec<usize> = inputs
        .iter()
        .filter(|(number, value)| cells.insert(*number, *value) != Some(*value))
        .map(|(number, _)| *number)
        .collect();

    let mut published = Vec::new();
    let stats = engine.apply(Arc::new(cells), &changed, &mut |id, topic, _| {
        published.push((id, topic));
    });
    (stats, published)
}

/// What a reader has.
fn shown(engine: &Engine<Sheet>, id: SubscriberId, pages: u8) -> Vec<Vec<usize>> {
    (0..pages)
        .map(|topic| engine.published(id, topic).unwrap().to_vec())
        .collect()
}

/// What a reader has that is the only one of a new engine.
fn fresh(cells: &Cells, reader: Reader, pages: u8) -> Vec<Vec<usize>> {
    let mut engine = engine(cells.clone());
    let id = come(&mut engine, reader, pages);
    shown(&engine, id, pages)
}

fn sweep_all(engine: &mut Engine<Sheet>) {
    engine.continue_sweep(|| true);
    engine.begin_sweep();
    engine.continue_sweep(|| true);
}

/// A random event.
#[derive(Clone, Debug)]
enum Turn {
    /// Inputs change to these values, in one batch.
    Set(Vec<(usize, usize)>),
    /// A reader of this group connects.
    Come(usize),
    /// The reader that has been connected longest disconnects.
    Go,
    /// A sweep begins, or goes on for some steps.
    Sweep(usize),
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        6 => prop::collection::vec((0..INPUTS, 0..4_usize), 1..4).prop_map(Turn::Set),
        1 => (0..3_usize).prop_map(Turn::Come),
        1 => Just(Turn::Go),
        3 => (1..60_usize).prop_map(Turn::Sweep),
    ]
}

proptest! {
    // Miri takes a thousand times as long.
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 100 }))]

    #[test]
    fn incremental_equals_from_scratch(turns in prop::collection::vec(turn(), 1..24)) {
        let mut engine = engine(Cells::new());
        let reader = |group| Reader { group, name: 0 };
        let mut readers = vec![(come(&mut engine, reader(1), 3), reader(1))];

        for turn in turns {
            match turn {
                Turn::Set(inputs) => {
                    set(&mut engine, &inputs);
                }
                Turn::Come(group) => readers.push((come(&mut engine, reader(group), 3), reader(group))),
                Turn::Go if readers.is_empty() => {}
                Turn::Go => engine.disconnect(readers.remove(0).0),
                Turn::Sweep(mut steps) => {
                    engine.begin_sweep();
                    engine.continue_sweep(|| {
                        steps -= 1;
                        steps > 0
                    });
                }
            }

            prop_assert!(engine.core.get_mut().gates.is_empty());
            for (id, reader) in &readers {
                prop_assert_eq!(shown(&engine, *id, 3), fresh(engine.snapshot(), *reader, 3));
            }
        }
    }
}

#[test]
fn readers_alike_share_results_and_one_evaluation() {
    let mut engine = engine(Cells::from([(0, 1)]));
    let ids: Vec<SubscriberId> = (0..50)
        .map(|name| come(&mut engine, Reader { group: 1, name }, 2))
        .collect();
    let first = engine.published(ids[0], 0).unwrap();
    assert!(
        ids.iter()
            .all(|id| Arc::ptr_eq(&first, &engine.published(*id, 0).unwrap()))
    );

    let computed = |engine: &Engine<Sheet>| engine.reads().computed;
    let before = computed(&engine);
    come(&mut engine, Reader { group: 1, name: 50 }, 2);
    assert_eq!(computed(&engine), before, "all of it is known");

    let id = engine.connect(Arc::new(Reader { group: 1, name: 7 }));
    engine.subscribe(id, 0, &OwnName, &mut |_, _, name| assert_eq!(**name, [7]));
}

#[test]
fn a_change_of_an_unread_fact_costs_nothing() {
    let mut engine = engine(Cells::new());
    let id = engine.connect(Arc::new(Reader { group: 1, name: 1 }));
    engine.subscribe(id, 0, &Page(vec![0]), &mut |_, _, _| {});
    assert_eq!(
        set(&mut engine, &[(3, 2)]),
        (PushStats::default(), Vec::new())
    );
    assert!(engine.reach(&[3]).is_empty());
    assert_eq!(engine.reach(&[0]), [(id, [0].into())].into());
    assert_eq!(set(&mut engine, &[(0, 2)]).1, [(id, 0)]);
}

#[test]
fn an_attribute_that_depends_on_facts_moves_its_readers_only() {
    let mut engine = engine(Cells::from([(0, 0), (1, 1)]));
    let at = |group| Reader { group, name: 0 };
    let ids = [0, 1, 2].map(|group| come(&mut engine, at(group), 4));
    let all = |engine: &Engine<Sheet>| ids.map(|id| shown(engine, id, 4));
    let same = all(&engine);
    assert!(
        same[0] == same[1] && same[1] == same[2],
        "groups do not matter"
    );

    let (_, published) = set(&mut engine, &[(0, 3)]);
    let now = all(&engine);
    for (id, group) in ids.into_iter().zip(0..) {
        assert_eq!(now[group], fresh(engine.snapshot(), at(group), 4));
        let is_told = published.iter().any(|(to, _)| *to == id);
        assert_eq!(is_told, now[group] != same[group]);
    }
}

#[test]
fn a_panic_keeps_the_last_good_value_names_the_fact_and_heals() {
    let mut engine = engine(Cells::from([(0, 1)]));
    let id = engine.connect(Arc::new(Reader { group: 0, name: 0 }));
    engine.subscribe(id, 0, &Page(vec![0]), &mut |_, _, _| {});
    let before = engine.published(id, 0);

    let (_, published) = set(&mut engine, &[(0, BROKEN)]);
    assert_eq!((published, engine.published(id, 0)), (Vec::new(), before));
    let faults = engine.faults();
    assert_eq!(faults.len(), 1);
    assert_eq!(
        (&*faults[0].message, &*faults[0].facts),
        ("the cell is broken", &[0][..])
    );

    assert_eq!(set(&mut engine, &[(0, 2)]).1, [(id, 0)]);
    assert_eq!(engine.faults(), []);
}

#[test]
fn only_a_change_that_passed_to_a_result_is_behind_it() {
    let mut engine = engine(Cells::new());
    let id = engine.connect(Arc::new(Reader { group: 0, name: 0 }));
    let query = Page(vec![1]);
    engine.subscribe(id, 0, &query, &mut |_, _, _| {});
    let before = engine.revision();
    assert!(engine.provenance_since(id, &query, before).is_empty());

    // The lower cell has the same value as before.
    let (_, published) = set(&mut engine, &[(0, 3), (1, 2)]);
    assert_eq!(published, [(id, 0)]);
    assert_eq!(engine.provenance_in_order(id, &query), [1, 0]);
    assert_eq!(engine.provenance_since(id, &query, before), [1]);

    // It has another value, but the result has not.
    let between = engine.revision();
    let (_, published) = set(&mut engine, &[(0, 2), (1, 1)]);
    assert_eq!(published, []);
    assert!(engine.provenance_since(id, &query, between).is_empty());
    assert!(!engine.provenance_since(id, &query, before).is_empty());
}

#[test]
fn all_facts_are_behind_a_result_for_another_attribute_value() {
    // The group does not matter, so that both have the same result.
    let mut engine = engine(Cells::from([(0, 0), (1, 1)]));
    let query = Page(vec![1]);
    let ids = [0, 2].map(|group| {
        let id = engine.connect(Arc::new(Reader { group, name: 0 }));
        engine.subscribe(id, 0, &query, &mut |_, _, _| {});
        id
    });

    // It matters for a while: one of them comes back to the result that the other one has kept.
    assert_eq!(set(&mut engine, &[(0, 3)]).1, [(ids[1], 0)]);
    let before = engine.revision();
    assert_eq!(set(&mut engine, &[(0, 0)]).1, [(ids[1], 0)]);
    assert_eq!(engine.provenance_since(ids[1], &query, before), [1, 0]);
}

#[test]
fn remarks_and_notices_last_as_long_as_their_results() {
    let changed = |notice, is_in_force| NoticeChange {
        notice,
        is_in_force,
    };
    let mut engine = engine(Cells::from([(0, 2)]));
    let id = engine.connect(Arc::new(Reader { group: 0, name: 0 }));
    engine.subscribe(id, 0, &Page(vec![0]), &mut |_, _, _| {});
    assert_eq!(engine.take_changed_notices(), [changed(0, true)]);
    assert_eq!(engine.take_fresh_remarks().len(), 1);
    assert_eq!(engine.remarks()[0].queries, ["Kept(0)"]);

    set(&mut engine, &[(0, 3)]);
    assert_eq!(engine.take_changed_notices(), [changed(0, false)]);
    assert_eq!(
        (engine.take_fresh_remarks().len(), engine.remarks()),
        (0, Vec::new())
    );
}

#[test]
fn a_copy_is_independent() {
    let mut engine = engine(Cells::from([(0, 1), (1, 2)]));
    let reader = Reader { group: 1, name: 0 };
    let id = come(&mut engine, reader, 3);
    let before = shown(&engine, id, 3);
    let sizes = engine.sizes();
    let mut copy = engine.copy();
    assert_eq!(copy.subscribers(), engine.subscribers());

    let tried = set(&mut copy, &[(0, 3), (1, 1)]);
    assert_eq!((shown(&engine, id, 3), engine.sizes()), (before, sizes));
    assert_eq!(set(&mut engine, &[(0, 3), (1, 1)]), tried);
    assert_eq!(shown(&engine, id, 3), shown(&copy, id, 3));
}

#[test]
fn held_results_outlive_sweeps_until_they_are_released() {
    let mut engine = engine(Cells::from([(0, 1)]));
    let id = engine.connect(Arc::new(Reader { group: 0, name: 0 }));
    assert!(!engine.is_known(id, &Kept(5)));
    engine.hold(id, &Kept(5));
    engine.hold(id, &Kept(7));
    sweep_all(&mut engine);
    assert!(engine.is_known(id, &Kept(5)) && engine.is_known(id, &Kept(7)));

    engine.hold_instead(id, 1, &Page(vec![8]));
    assert_eq!(engine.held(id), 2);
    sweep_all(&mut engine);
    assert!(engine.is_known(id, &Kept(5)) && engine.is_known(id, &Page(vec![8])));

    engine.release(id);
    sweep_all(&mut engine);
    assert_eq!((engine.held(id), engine.sizes().results), (0, 0));
}

#[test]
fn a_value_that_is_read_once_is_left_to_the_next_sweep() {
    let mut engine = engine(Cells::from([(0, 1)]));
    let id = engine.connect(Arc::new(Reader { group: 0, name: 7 }));
    assert_eq!(*engine.query(id, &OwnName).unwrap(), [7]);
    assert!(!engine.has_orphans());

    assert_eq!(*engine.query_once(id, &OwnName).unwrap(), [7]);
    assert!(engine.has_orphans(), "a sweep is due");
    sweep_all(&mut engine);
    assert_eq!((engine.has_orphans(), engine.sizes().results), (false, 0));

    engine.disconnect(id);
    assert!(engine.query_once(id, &OwnName).is_none());
}

#[test]
fn a_query_for_a_reader_that_is_not_connected_returns_at_once() {
    let mut engine = engine(Cells::new());
    let reader = Reader { group: 1, name: 7 };
    let stays = engine.connect(Arc::new(reader));
    let gone = engine.connect(Arc::new(reader));
    let unknown = SubscriberId::of(1_000);

    // Results that are found by a plain and by a derived attribute.
    for id in [stays, gone] {
        assert_eq!(*engine.query(id, &OwnName).unwrap(), [7]);
        assert_eq!(*engine.query(id, &DerivedName).unwrap(), [7]);
    }
    engine.disconnect(gone);
    let before = engine.sizes();

    for id in [gone, unknown] {
        assert!(engine.query(id, &OwnName).is_none());
        assert!(engine.query(id, &DerivedName).is_none());
        assert!(engine.view(id).is_none());
        assert!(!engine.is_known(id, &DerivedName));

        engine.hold(id, &DerivedName);
        assert_eq!(engine.held(id), 0);
        engine.subscribe(id, 0, &DerivedName, &mut |_, _, _| unreachable!());
        assert!(engine.published(id, 0).is_none());
    }
    assert_eq!(engine.sizes().results, before.results);
    assert_eq!(*engine.query(stays, &DerivedName).unwrap(), [7]);
}

#[test]
fn nothing_is_left_of_subscribers_that_went() {
    let mut engine = engine(Cells::from([(0, 1), (1, 2), (2, 1)]));
    for name in 0..20 {
        let id = come(
            &mut engine,
            Reader {
                group: name % 4,
                name,
            },
            5,
        );
        engine.subscribe(id, 9, &OwnName, &mut |_, _, _| {});
        assert!(!engine.provenance(id, &page(0)).is_empty());
        engine.disconnect(id);
    }

    assert!(engine.has_orphans());
    sweep_all(&mut engine);
    assert_eq!(
        (engine.sizes(), engine.has_orphans()),
        (EngineSizes::default(), false)
    );
    assert_eq!(engine.facts(), Vec::<usize>::new());
}

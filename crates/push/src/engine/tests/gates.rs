//! Marking waits at results with many dependents: the outcome must equal a fresh start, and
//! unchanged results must cost no recomputation.

use proptest::prelude::*;

use super::soundness::{accounts, engine_by, set, shown};
use super::*;

/// Endpoint sets that the cells read.
const INPUTS: usize = 6;
/// Cells: each depends on lower ones.
const CELLS: usize = 24;
/// Resources that depend on cells.
const RESOURCES: usize = 8;

/// A number computed from an input, from lower cells that depend on it, and for some cells from the
/// proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cell(usize);

impl Query for Cell {
    type Value = usize;

    fn compute(&self, view: &View<'_>) -> usize {
        let Self(place) = *self;
        let input = accounts(view, &input(place)).len();
        let mut sum = input;
        if place > 0 {
            // The index of the read cell depends on a value that was read, so dependencies change.
            sum += *view.get(&Cell((place * 7 + input * 5) % place));
            sum += *view.get(&Cell((place * 3 + sum) % place));
        }
        if sum % 5 == 1 {
            sum += view.proxy().namespace().as_str().len();
        }
        // Few values, so that many changes have no effect.
        sum % 3
    }
}

/// The name of an input.
fn input(number: usize) -> String {
    format!("input{}", number % INPUTS)
}

/// The name of a resource.
fn resource(number: usize) -> String {
    format!("r{number:02}")
}

/// The content of a resource: several cells from the top.
fn body(view: &View<'_>, name: &str) -> String {
    let number: usize = name.trim_start_matches('r').parse().unwrap();
    let cells = (0..4).map(|n| Cell(CELLS - 1 - (number * 5 + n * 3) % CELLS));
    cells
        .map(|cell| view.get(&cell).to_string())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The accounts that encode a number as an input.
fn of_number(number: usize) -> Vec<&'static str> {
    ["a", "b", "c", "d"].into_iter().take(number).collect()
}

/// A random event.
#[derive(Clone, Debug)]
enum Turn {
    /// Inputs change to these numbers, in one batch.
    Set(Vec<(usize, usize)>),
    /// A proxy connects.
    Come(usize),
    /// The proxy that has been connected longest disconnects.
    Go,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        6 => prop::collection::vec((0..INPUTS, 0..4_usize), 1..4).prop_map(Turn::Set),
        1 => (0..3_usize).prop_map(Turn::Come),
        1 => Just(Turn::Go),
    ]
}

/// The resources of a proxy of this namespace in a new engine with these inputs.
fn fresh(numbers: &[usize], namespace: &str) -> Vec<String> {
    let mut engine = engine_by(&[], body);
    for (place, number) in numbers.iter().enumerate() {
        set(&mut engine, &input(place), &of_number(*number));
    }
    let id = come(&mut engine, namespace);
    shown(&engine, id)
}

fn come(engine: &mut Engine, namespace: &str) -> ProxyId {
    let id = engine.connect(
        proxy("p", namespace, "web"),
        Arc::new(RecordingSink::default()),
    );
    let all: Vec<String> = (0..RESOURCES).map(resource).collect();
    engine.subscribe(
        id,
        ResourceType::Route,
        names(&all.iter().map(String::as_str).collect::<Vec<_>>()),
    );
    id
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn interrupted_sweeps_give_the_same_result_as_a_fresh_start(
        turns in prop::collection::vec(turn(), 1..12),
    ) {
        let namespaces = ["a", "bb", "ccc"];
        let mut numbers = [0; INPUTS];
        let mut engine = engine_by(&[], body);
        let mut proxies: Vec<(ProxyId, &str)> = Vec::new();

        for (place, namespace) in namespaces.into_iter().enumerate() {
            if place < 2 {
                proxies.push((come(&mut engine, namespace), namespace));
            }
        }

        for turn in turns {
            match turn {
                Turn::Set(inputs) => {
                    let mut context = engine.context().clone();
                    let mut facts = Vec::new();
                    for (place, number) in inputs {
                        let (next, changed) =
                            with_endpoints(&context, &input(place), &of_number(number));
                        // The mesh state reports only facts that differ.
                        if numbers[place] != number {
                            facts.extend(changed);
                        }
                        context = next;
                        numbers[place] = number;
                    }
                    engine.apply(context, facts);
                }
                Turn::Come(which) => {
                    let namespace = namespaces[which];
                    proxies.push((come(&mut engine, namespace), namespace));
                }
                Turn::Go if !proxies.is_empty() => engine.disconnect(proxies.remove(0).0),
                Turn::Go => {}
            }

            for (id, namespace) in &proxies {
                prop_assert_eq!(shown(&engine, *id), fresh(&numbers, namespace));
            }
        }
    }
}

/// Whether there is any account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IsAnybody;

impl Query for IsAnybody {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        !accounts(view, "all").is_empty()
    }
}

#[test]
fn dependents_of_an_unchanged_result_are_not_recomputed() {
    let mut engine = engine_by(&[("all", &["x"])], |view, name| {
        format!("{name}: {}", view.get(&IsAnybody))
    });
    let wanted: Vec<String> = (0..1000).map(|n| format!("a{n}")).collect();
    let id = engine.connect(
        proxy("p", "shop", "web"),
        Arc::new(RecordingSink::default()),
    );

    engine.subscribe(
        id,
        ResourceType::Route,
        names(&wanted.iter().map(String::as_str).collect::<Vec<_>>()),
    );
    let stats = set(&mut engine, "all", &["x", "y"]);
    assert_eq!((stats.computed, stats.groups, stats.published), (1, 0, 0));

    assert!(stats.visited < 10, "{stats:?}");
    let stats = set(&mut engine, "all", &[]);
    assert_eq!((stats.groups, stats.published), (1, 1));
    assert_eq!(shown(&engine, id)[..2], ["a0: false", "a1: false"]);
}

#[test]
fn a_result_that_no_proxy_is_shown_any_more_is_none_to_wait_for() {
    let mut engine = engine_by(&[("all", &["x"])], |view, name| {
        format!(
            "{name}: {} in {}",
            view.get(&IsAnybody),
            view.proxy().namespace()
        )
    });
    let gone = come_for_two(&mut engine, "shop");
    engine.disconnect(gone);
    assert_eq!(set(&mut engine, "all", &[]).computed, 0);
    let id = come_for_two(&mut engine, "shop");
    assert_eq!(
        shown(&engine, id),
        ["a0: false in shop", "a1: false in shop"]
    );
}

fn come_for_two(engine: &mut Engine, namespace: &str) -> ProxyId {
    let id = engine.connect(
        proxy("p", namespace, "web"),
        Arc::new(RecordingSink::default()),
    );
    engine.subscribe(id, ResourceType::Route, names(&["a0", "a1"]));
    id
}

#[test]
fn a_failure_below_reaches_those_above() {
    let mut engine = engine_by(&[("all", &["x"])], |view, name| {
        format!("{name}: {}", view.get(&Fragile))
    });
    let id = come_for_two(&mut engine, "shop");
    assert_eq!(set(&mut engine, "all", &["boom"]).published, 0);
    assert_eq!(engine.faults().len(), 2);
    set(&mut engine, "all", &["x", "y"]);
    assert_eq!(shown(&engine, id), ["a0: 2", "a1: 2"]);
    assert_eq!(engine.faults(), []);
}

/// The number of accounts; panics for one value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Fragile;

impl Query for Fragile {
    type Value = usize;

    fn compute(&self, view: &View<'_>) -> usize {
        let all = accounts(view, "all");
        assert!(!all.iter().any(|account| account == "boom"), "boom");
        all.len()
    }
}

//! A sweep frees unused results step by step, and never changes a proxy's resources.

use proptest::prelude::*;

use super::soundness::{AppIfOn, By, accounts, relabel, set, shown};
use super::*;
use crate::query::ProxyQuery;

/// Resources that depend on each other's inputs, on attributes of the proxy, and on attributes that
/// depend on inputs.
const RESOURCES: [&str; 4] = ["a", "b", "c", "d"];
const PODS: [&str; 3] = ["p", "q", "r"];

/// A number that several resources share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Size(String);

impl Query for Size {
    type Value = usize;

    fn compute(&self, view: &View<'_>) -> usize {
        let own = accounts(view, &self.0);
        own.iter()
            .filter(|other| **other != self.0)
            .map(|other| accounts(view, other).len())
            .sum::<usize>()
            + own.len()
    }
}

/// An attribute that depends on another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AppOrNone;

impl Query for AppOrNone {
    type Value = String;

    fn compute(&self, view: &View<'_>) -> String {
        let app = view.derived(&AppIfOn);
        if app.ends_with('5') {
            "none".to_owned()
        } else {
            app.to_string()
        }
    }
}

impl ProxyQuery for AppOrNone {}

fn body(view: &View<'_>, name: &str) -> String {
    let size = *view.get(&Size(name.to_owned()));
    let app = match (size % 2, name) {
        (0, "c" | "d") => (*view.derived(&AppOrNone)).clone(),
        (0, _) => (*view.derived(&AppIfOn)).clone(),
        _ => view
            .proxy()
            .meta("app")
            .map(|app| app.to_string())
            .unwrap_or_default(),
    };
    // Facts, queries and attributes that are used for some time only.
    format!(
        "{size} {app} {:?} {:?}",
        accounts(view, &app),
        view.proxy().meta(&app)
    )
}

/// A random event.
#[derive(Clone, Debug)]
enum Turn {
    /// An input changes to these endpoints.
    Set(usize, Vec<usize>),
    /// Attributes that depend on the switch change.
    Switch(bool),
    /// A pod gets another app.
    Relabel(usize, usize),
    /// A proxy of this pod connects, with some subscriptions.
    Come(usize, usize),
    /// A proxy changes its subscription.
    Want(usize, usize),
    /// A proxy disconnects.
    Go(usize),
    /// A sweep starts.
    Begin,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        3 => (0..4_usize, prop::collection::vec(0..4_usize, 0..3))
            .prop_map(|(input, names)| Turn::Set(input, names)),
        1 => any::<bool>().prop_map(Turn::Switch),
        2 => (0..3_usize, 0..6_usize).prop_map(|(pod, app)| Turn::Relabel(pod, app)),
        2 => (0..3_usize, 1..16_usize).prop_map(|(pod, some)| Turn::Come(pod, some)),
        3 => (0..3_usize, 0..16_usize).prop_map(|(which, some)| Turn::Want(which, some)),
        1 => (0..3_usize).prop_map(Turn::Go),
        2 => Just(Turn::Begin),
    ]
}

/// The subscription encoded by these bits.
fn some(bits: usize) -> Interest {
    let chosen = RESOURCES
        .iter()
        .enumerate()
        .filter(|(place, _)| bits & (1 << place) != 0);
    names(&chosen.map(|(_, name)| *name).collect::<Vec<_>>())
}

/// A new engine with the same inputs and proxies.
fn fresh(
    context: &Arc<PushContext>,
    proxies: &[(ProxyId, usize, usize)],
) -> (Engine, Vec<ProxyId>) {
    let mut engine = Engine::with_config(SMALL, context.clone(), Arc::new(By(body)));
    let come = |(_, pod, bits): &(ProxyId, usize, usize)| {
        let id = engine.connect(
            proxy(PODS[*pod], "shop", "web"),
            Arc::new(RecordingSink::default()),
        );
        engine.subscribe(id, ResourceType::Route, some(*bits));
        id
    };
    let ids = proxies.iter().map(come).collect();
    (engine, ids)
}

/// Runs a number of sweep steps.
fn sweep(engine: &mut Engine, mut steps: usize) {
    engine.continue_sweep(|| {
        steps = steps.saturating_sub(1);
        steps > 0
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_sweep_in_slices_removes_exactly_the_unused_results(
        turns in prop::collection::vec((turn(), 1..12_usize), 1..40),
    ) {
        play(turns)?;
    }
}

/// Runs events, each followed by this number of sweep steps, and compares with a new engine.
fn play(turns: Vec<(Turn, usize)>) -> Result<(), TestCaseError> {
    let mut engine = Engine::with_config(SMALL, Arc::default(), Arc::new(By(body)));
    set(&mut engine, "switch", &["on"]);
    let mut proxies: Vec<(ProxyId, usize, usize)> = Vec::new();

    for (turn, steps) in turns {
        match turn {
            Turn::Set(input, names) => {
                let names: Vec<&str> = names.into_iter().map(|name| RESOURCES[name]).collect();
                set(&mut engine, RESOURCES[input], &names);
            }
            Turn::Switch(on) => _ = set(&mut engine, "switch", &[if on { "on" } else { "off" }]),
            Turn::Relabel(pod, app) => _ = relabel(&mut engine, PODS[pod], &format!("app{app}")),
            Turn::Come(pod, bits) => {
                let id = engine.connect(
                    proxy(PODS[pod], "shop", "web"),
                    Arc::new(RecordingSink::default()),
                );
                engine.subscribe(id, ResourceType::Route, some(bits));
                proxies.push((id, pod, bits));
            }
            Turn::Want(which, bits) => {
                if let Some((id, _, now)) = proxies.get_mut(which) {
                    *now = bits;
                    engine.subscribe(*id, ResourceType::Route, some(bits));
                }
            }
            Turn::Go(which) if which < proxies.len() => engine.disconnect(proxies.remove(which).0),
            Turn::Go(_) => {}
            Turn::Begin => engine.begin_sweep(),
        }

        sweep(&mut engine, steps);
        let (other, ids) = fresh(engine.context(), &proxies);
        for ((id, ..), fresh) in proxies.iter().zip(ids) {
            prop_assert_eq!(shown(&engine, *id), shown(&other, fresh));
        }
    }

    for (id, ..) in proxies {
        engine.disconnect(id);
    }

    sweep_all(&mut engine);
    prop_assert_eq!(engine.sizes(), EngineSizes::default());
    Ok(())
}

#[test]
fn an_answer_stays_current_if_its_subscription_comes_back_during_a_sweep() {
    // A sweep visits results in random order, so the results visited before the subscription
    // returns are random as well.
    for before in 1..20 {
        for after in [1, 2, 4, 8, 16] {
            let turns = [
                (Turn::Come(1, 8), 1),
                (Turn::Want(0, 0), 1),
                (Turn::Begin, before),
                (Turn::Want(0, 8), after),
                (Turn::Relabel(1, 1), 1),
                (Turn::Switch(false), 1),
                (Turn::Switch(true), 1),
            ];
            for _ in 0..8 {
                play(turns.to_vec()).unwrap();
            }
        }
    }
}

//! A copy of the engine behaves like the original, and does not affect it.

use super::soundness::{AppIfOn, accounts, engine_by, relabel, set, shown};
use super::*;

/// Two proxies of each of some apps, with routes that contain the endpoints and the proxy's app.
fn mesh() -> (Engine, Vec<ProxyId>, Vec<Arc<RecordingSink>>) {
    let mut engine = engine_by(
        &[("a", &["x"]), ("b", &["x"]), ("switch", &["on"])],
        |view, name| {
            assert!(accounts(view, name) != ["boom"], "boom");
            format!("{:?} of {}", accounts(view, name), view.derived(&AppIfOn))
        },
    );

    let sinks: Vec<Arc<RecordingSink>> =
        (0..6).map(|_| Arc::new(RecordingSink::default())).collect();
    let ids: Vec<ProxyId> = sinks
        .iter()
        .enumerate()
        .map(|(n, sink)| {
            let id = engine.connect(
                proxy(&format!("p{n}"), "shop", ["web", "api"][n % 2]),
                sink.clone(),
            );
            engine.subscribe(id, ResourceType::Route, names(&["a", "b"]));
            id
        })
        .collect();

    sinks.iter().for_each(|sink| drop(sink.take()));
    (engine, ids, sinks)
}

fn all_shown(engine: &Engine, ids: &[ProxyId]) -> Vec<Vec<String>> {
    ids.iter().map(|id| shown(engine, *id)).collect()
}

#[test]
fn a_trial_on_a_copy_costs_the_same_and_does_not_leak() {
    let moves: [fn(&mut Engine) -> PushStats; 7] = [
        |engine| set(engine, "a", &["y"]),
        |engine| set(engine, "a", &["boom"]),
        |engine| relabel(engine, "p1", "v2"),
        |engine| set(engine, "switch", &["off"]),
        |engine| set(engine, "switch", &["boom"]),
        |engine| set(engine, "switch", &["on"]),
        |engine| set(engine, "a", &["x"]),
    ];

    let (mut engine, ids, sinks) = mesh();

    for (at, step) in moves.into_iter().enumerate() {
        let before = all_shown(&engine, &ids);
        let sizes = engine.sizes();
        let mut copy = engine.copy();
        let tried = step(&mut copy);
        assert_eq!(
            (all_shown(&engine, &ids), engine.sizes()),
            (before, sizes),
            "move {at}"
        );

        assert!(
            sinks.iter().all(|sink| sink.take().is_empty()),
            "a copy publishes to no proxy"
        );
        let done = step(&mut engine);
        assert_eq!(
            (tried.groups, tried.computed, tried.visited),
            (done.groups, done.computed, done.visited),
            "move {at}"
        );

        assert_eq!(
            all_shown(&copy, &ids),
            all_shown(&engine, &ids),
            "move {at}"
        );

        assert_eq!(
            (copy.faults(), copy.sizes()),
            (engine.faults(), engine.sizes()),
            "move {at}"
        );
        sinks.iter().for_each(|sink| drop(sink.take()));
    }
}

#[test]
fn a_copy_made_during_a_sweep_has_all_used_results() {
    let (mut engine, ids, _) = mesh();
    let gone = ids[5];
    let kept = &ids[..5];
    engine.disconnect(gone);

    for steps in 1..200_i32 {
        engine.begin_sweep();
        let mut left = steps;
        let is_done = engine.continue_sweep(|| {
            left -= 1;
            left > 0
        });
        let mut copy = engine.copy();
        set(&mut copy, "a", &["y"]);

        set(&mut copy, "a", &["x"]);
        assert_eq!(all_shown(&copy, kept), all_shown(&engine, kept));
        assert_eq!(copy.proxies().len(), kept.len());
        if is_done {
            return;
        }
    }

    panic!("the sweep does not end");
}

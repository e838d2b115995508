//! Subscriptions with which a client could monopolize the engine.

use navarch_tables::colliding_names::colliding_names;
use tokio::time::Instant;

use super::*;
use crate::engine::collect::ResourceOf;

#[test]
fn names_chosen_to_collide_are_interned_as_fast_as_others() {
    let time = |names: Vec<String>| {
        let (mut engine, _) = engine(&[]);
        let id = engine.connect(
            proxy("p", "shop", "web"),
            Arc::new(RecordingSink::default()),
        );
        let began = Instant::now();
        for name in &names {
            let name = ResourceName::new(name);
            let resource = ResourceOf {
                resource_type: ResourceType::Endpoint,
                name,
                is_on_demand: false,
            };
            assert!(engine.query(id, &resource).unwrap().is_none());
        }
        began.elapsed()
    };

    let usual = time(
        (0..50_000)
            .map(|number| format!("outbound|80||service-{number:08}.shop.svc.cluster.local"))
            .collect(),
    );
    let colliding = time(colliding_names(50_000));

    // With an unkeyed hash the ratio is above a thousand.
    assert!(colliding < usual * 20, "{colliding:?} against {usual:?}");
}

#[test]
fn resources_of_an_ended_stream_are_released_without_a_change() {
    let (mut engine, _) = engine(&[("a", &["x"])]);
    let stays = engine.connect(
        proxy("p", "shop", "web"),
        Arc::new(RecordingSink::default()),
    );
    engine.subscribe(stays, ResourceType::Endpoint, names(&["a"]));
    let before = engine.sizes();

    // So few that no table grows beyond its size after the last sweep.
    let many: Vec<String> = (0..3_000)
        .map(|number| format!("{}{number}", "n".repeat(200)))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let goes = engine.connect(
        proxy("q", "shop", "web"),
        Arc::new(RecordingSink::default()),
    );
    engine.subscribe(goes, ResourceType::Endpoint, names(&many));

    assert!(!engine.has_orphans());
    assert!(engine.sizes().facts > 2_000, "{:?}", engine.sizes());
    engine.disconnect(goes);
    assert!(engine.has_orphans());
    engine.begin_sweep();
    assert!(engine.continue_sweep(|| true));
    assert_eq!((engine.sizes(), engine.has_orphans()), (before, false));

    // Another client with the same subscription leaves no state either.
    let same = engine.connect(
        proxy("r", "shop", "web"),
        Arc::new(RecordingSink::default()),
    );
    engine.subscribe(same, ResourceType::Endpoint, names(&["a"]));
    engine.disconnect(same);
    assert!(!engine.has_orphans());

    let (next, changed) = with_endpoints(engine.context(), "a", &["x", "y"]);
    assert_eq!(
        engine.apply(next, changed).published,
        1,
        "the remaining resources are complete"
    );
}

/// Counts the pushes.
#[derive(Default)]
struct Answers(Mutex<Vec<(u32, usize)>>);

impl Sink for Answers {
    fn publish(&self, _: ResourceType, collection: Arc<Collection>, cause: &Arc<PushCause>) {
        self.0
            .lock()
            .push((cause.answers, collection.resources.len()));
    }
}

#[test]
fn a_large_subscription_is_computed_in_slices_between_other_clients() {
    let services: Vec<String> = (0..1000).map(|number| format!("s{number:04}")).collect();
    let services: Vec<(&str, &[&str])> = services
        .iter()
        .map(|name| (name.as_str(), &["x"][..]))
        .collect();
    let (mut engine, toy) = engine(&services);
    let large = Arc::new(Answers::default());
    let small = Arc::new(Answers::default());

    let slow = engine.connect(proxy("p", "shop", "web"), large.clone());
    let quick = engine.connect(proxy("q", "shop", "web"), small.clone());
    let all: Vec<&str> = services.iter().map(|(name, _)| *name).collect();
    let all = names(&all);
    let one = names(&["s0999"]);
    let mut slices = 0;

    while !engine.subscribe_in_slices(slow, ResourceType::Endpoint, &all, 3, || false) {
        slices += 1;
        // A prepared subscription is kept although a sweep runs.
        sweep_all(&mut engine);
        if slices == 10 {
            assert!(engine.subscribe_in_slices(quick, ResourceType::Endpoint, &one, 1, || false));
            assert_eq!(*small.0.lock(), [(1, 1)]);
        }
        if slices == 500 {
            let (next, changed) = with_endpoints(engine.context(), "s0001", &["x", "y"]);
            engine.apply(next, changed);
        }
    }

    assert!(slices >= 990, "{slices}");
    assert_eq!(
        *large.0.lock(),
        [(3, 1000)],
        "one push, once everything is computed"
    );

    // Each once, and the changed one twice.
    assert_eq!(toy.translated.load(Ordering::Relaxed), 1001);
    let again = engine.connect(proxy("r", "shop", "web"), large.clone());
    assert!(
        engine.subscribe_in_slices(again, ResourceType::Endpoint, &all, 1, || false),
        "other proxies share the results immediately"
    );
}

#[test]
fn a_cancelled_subscription_leaves_no_state() {
    let (mut engine, _) = engine(&[("a", &["x"])]);
    let id = engine.connect(
        proxy("p", "shop", "web"),
        Arc::new(RecordingSink::default()),
    );
    let absent: Vec<String> = (0..500).map(|number| format!("absent-{number}")).collect();
    let absent = names(&absent.iter().map(String::as_str).collect::<Vec<_>>());
    for _ in 0..300 {
        assert!(!engine.subscribe_in_slices(id, ResourceType::Endpoint, &absent, 1, || false));
    }
    engine.disconnect(id);
    sweep_all(&mut engine);
    assert_eq!((engine.sizes().results, engine.sizes().facts), (0, 0));
}

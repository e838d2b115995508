use navarch_push::engine::ProxyId;
use navarch_push::resource::ResourceType;

use super::*;

/// The rejection of a proxy's clusters.
fn nack(number: u64) -> Nack {
    Nack {
        proxy: ProxyId::of(number),
        resource_type: ResourceType::Cluster,
    }
}

/// The stream of a rejection.
fn subscription(nack: Nack) -> Subscription {
    (nack.proxy, nack.resource_type)
}

fn namespace(name: &str) -> Namespace {
    Namespace::new(name)
}

/// The namespaces whose trials take all places.
fn crowd() -> Vec<Namespace> {
    (0..MAX_TRIALS)
        .map(|number| namespace(&format!("crowd-{number}")))
        .collect()
}

/// Places that the trials of [`crowd`] take.
fn full() -> Places {
    let mut places = Places::default();
    for (number, namespace) in (0..).zip(crowd()) {
        places.start(namespace, subscription(nack(number)));
    }
    places
}

#[test]
fn a_namespace_has_one_trial_at_a_time_and_delays_no_other() {
    let now = Instant::now();
    let mut places = Places::default();
    let noisy = namespace("noisy");
    let other = namespace("other");

    places.start(noisy.clone(), subscription(nack(1)));
    for number in 2..40 {
        places.defer(noisy.clone(), nack(number), now);
    }

    assert!(!places.is_free(&noisy, now), "its trial is in progress");
    assert!(places.is_free(&other, now));
    assert_eq!(places.next(now), None, "only the end of the trial helps");
    assert!(places.ready(now).is_empty());
    assert!(places.tried().eq([subscription(nack(1))]));
}

#[test]
fn a_namespace_pauses_longer_after_a_trial_that_found_nothing() {
    let now = Instant::now();
    let took = Duration::from_secs(2);
    let pauses = [(true, 6), (false, 18)];

    for (has_found, seconds) in pauses {
        let mut places = Places::default();
        let noisy = namespace("noisy");
        places.start(noisy.clone(), subscription(nack(1)));
        places.defer(noisy.clone(), nack(2), now);
        places.end(&noisy, has_found, took, now);

        let ends = now + Duration::from_secs(seconds);
        let before = ends - Duration::from_millis(1);
        assert_eq!(places.next(now), Some(ends), "{has_found}");
        assert!(!places.is_free(&noisy, before), "{has_found}");
        assert!(places.ready(before).is_empty(), "{has_found}");
        assert!(places.is_free(&noisy, ends), "{has_found}");
        assert_eq!(places.ready(ends), [noisy], "{has_found}");
    }
}

#[test]
fn all_places_taken_means_waiting_for_the_end_of_a_trial() {
    let now = Instant::now();
    let mut places = full();
    let late = namespace("late");

    assert!(!places.is_free(&late, now));
    places.defer(late.clone(), nack(1_000), now);
    assert_eq!(places.next(now), None);
    assert_eq!(places.ready(now), std::slice::from_ref(&late));
    assert_eq!(places.take(&late, now), None, "it stays deferred");

    places.end(&crowd()[0], true, Duration::ZERO, now);
    assert_eq!(places.next(now), Some(now));
    assert_eq!(places.take(&late, now), Some(nack(1_000)));
    assert_eq!(places.next(now), None, "nothing waits");
}

#[test]
fn the_namespace_that_has_waited_longest_is_next_and_goes_to_the_end() {
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let mut places = Places::default();
    let early = namespace("z-early");
    let late = namespace("a-late");

    places.defer(early.clone(), nack(1), now);
    places.defer(early.clone(), nack(2), now + 2 * second);
    places.defer(late.clone(), nack(3), now + second);
    assert_eq!(
        places.ready(now + 3 * second),
        [early.clone(), late.clone()]
    );

    assert_eq!(places.take(&early, now + 3 * second), Some(nack(1)));
    assert_eq!(places.ready(now + 4 * second), [late, early]);
}

#[test]
fn the_rejections_that_wait_are_bounded_for_each_namespace() {
    let now = Instant::now();
    let mut places = Places::default();
    let noisy = namespace("noisy");
    let quiet = namespace("quiet");

    for number in (0..).take(10 * MAX_DEFERRED) {
        places.defer(noisy.clone(), nack(number), now);
    }
    places.defer(quiet.clone(), nack(7), now);
    places.defer(quiet.clone(), nack(7), now);

    assert!(places.is_deferred(&nack(1)), "another look is of no use");
    assert!(!places.is_deferred(&nack(1_000_000)));

    let mut taken = 0;
    while places.take(&noisy, now).is_some() {
        taken += 1;
    }
    assert_eq!(taken, MAX_DEFERRED);
    assert_eq!(places.take(&quiet, now), Some(nack(7)));
    assert_eq!(places.take(&quiet, now), None, "one stream counts once");
}

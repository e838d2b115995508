//! Each transition on its own.

use super::super::*;
use super::rig::*;

fn subscribes(effects: &[Effect]) -> Vec<(ResourceType, bool, Vec<String>)> {
    let one = |effect: &Effect| {
        let Effect::Subscribe(resource_type, interest) = effect else {
            return None;
        };
        let names = interest
            .names
            .iter()
            .map(|name| name.as_str().to_owned())
            .collect();
        Some((*resource_type, interest.wildcard, names))
    };
    effects.iter().filter_map(one).collect()
}

#[test]
fn the_first_request_sets_the_subscription() {
    let names = |names: &[&str]| strings(names);

    for (request, expected) in [
        (delta(CDS, &[], "", None), vec![(CDS, true, names(&[]))]),
        (delta(CDS, &["*"], "", None), vec![(CDS, true, names(&[]))]),
        (
            delta(CDS, &["a", "*"], "", None),
            vec![(CDS, true, names(&["a"]))],
        ),
        (
            delta(CDS, &["a"], "", None),
            vec![(CDS, false, names(&["a"]))],
        ),
        (delta(CDS, &["*", "-*"], "", None), vec![]),
        (delta(EDS, &[], "", None), vec![]),
        (
            delta(EDS, &["a"], "", None),
            vec![(EDS, false, names(&["a"]))],
        ),
        (
            delta(EDS, &["a", "b", "-b"], "", None),
            vec![(EDS, false, names(&["a"]))],
        ),
    ] {
        let shown = format!("{request:?}");
        let effects = Rig::new(Protocol::Delta).request(request);
        assert_eq!(subscribes(&effects), expected, "{shown}");
    }

    for (request, expected) in [
        (state(CDS, &[], "", None), vec![(CDS, true, names(&[]))]),
        (
            state(CDS, &["*", "a"], "", None),
            vec![(CDS, true, names(&["a"]))],
        ),
        (
            state(LDS, &["a"], "", None),
            vec![(LDS, false, names(&["a"]))],
        ),
        (state(EDS, &[], "", None), vec![]),
        (
            state(EDS, &["a"], "old", None),
            vec![(EDS, false, names(&["a"]))],
        ),
    ] {
        let shown = format!("{request:?}");
        let effects = Rig::new(Protocol::StateOfTheWorld).request(request);
        assert_eq!(subscribes(&effects), expected, "{shown}");
    }
}

#[test]
fn nothing_is_sent_before_the_answer_to_the_last_subscription() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(EDS, &["a"], "", None));
    rig.is_silent();
    rig.request(delta(EDS, &["b"], "", None));
    rig.answer(EDS, &[("a", "1")]);
    rig.change(EDS, &[("a", "2")]);
    rig.is_silent();
    rig.answer(EDS, &[("a", "2"), ("b", "1")]);
    rig.sends(EDS, &["a=2", "b=1"], &[]);
}

#[test]
fn one_response_of_a_type_is_in_flight_and_the_newest_follows() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(SDS, &["a"], "", None));
    rig.answer(SDS, &[("a", "1")]);
    let first = rig.sends(SDS, &["a=1"], &[]);
    rig.change(SDS, &[("a", "2")]);
    rig.change(SDS, &[("a", "3")]);
    rig.is_silent();
    // Other types do not wait.
    rig.request(delta(EDS, &["x"], "", None));
    rig.answer(EDS, &[]);
    rig.sends(EDS, &[], &["x"]);
    assert_eq!(rig.request(delta(SDS, &[], &first, None)), []);
    rig.sends(SDS, &["a=3"], &[]);
}

#[test]
fn a_client_that_does_not_answer_gets_changes_every_few_seconds() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(SDS, &["a"], "", None));
    rig.answer(SDS, &[("a", "1")]);
    let first = rig.sends(SDS, &["a=1"], &[]);
    assert_eq!(rig.session.wake_at(), None);
    rig.change(SDS, &[("a", "2")]);
    rig.is_silent();
    assert_eq!(rig.session.wake_at(), Some(seconds(5)));
    rig.now = seconds(5);
    let second = rig.sends(SDS, &["a=2"], &[]);
    // Late answers are still answers.
    assert_eq!(rig.request(delta(SDS, &[], &first, None)), []);
    rig.change(SDS, &[("a", "3")]);
    rig.is_silent();
    rig.request(delta(SDS, &[], &second, None));
    rig.sends(SDS, &["a=3"], &[]);
}

#[test]
fn equal_content_is_not_sent() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(LDS, &[], "", None));
    rig.answer(LDS, &[("a", "1")]);
    let nonce = rig.sends(LDS, &["a=1"], &[]);
    rig.request(delta(LDS, &[], &nonce, None));
    rig.change(LDS, &[("a", "1")]);
    rig.is_silent();
    assert!(rig.session.is_all_sent());
}

#[test]
fn nonces_classify_requests() {
    for (protocol, make) in [
        (
            Protocol::Delta,
            delta as fn(_, &[&str], &str, Option<&str>) -> _,
        ),
        (Protocol::StateOfTheWorld, state),
    ] {
        let mut rig = Rig::new(protocol);
        rig.request(make(RDS, &["r"], "", None));
        rig.answer(RDS, &[("r", "1")]);
        let first = rig.next().unwrap().nonce;
        assert_eq!(
            rig.request(make(RDS, &["r"], "nonsense", None)).first(),
            Some(&Effect::Stale(RDS))
        );

        let acked = |rig: &Rig| {
            rig.session.watches[&RDS]
                .history
                .acked
                .as_ref()
                .map(|response| response.nonce.to_string())
        };
        assert_eq!(acked(&rig), None);

        let same: &[&str] = if protocol == Protocol::Delta {
            &[]
        } else {
            &["r"]
        };
        assert_eq!(rig.request(make(RDS, same, &first, None)), []);
        assert_eq!(acked(&rig), Some(first.clone()));

        // A repeated request gets no response.
        assert_eq!(rig.request(make(RDS, same, &first, None)), []);

        rig.change(RDS, &[("r", "2")]);
        let second = rig.next().unwrap().nonce;
        assert_ne!(first, second);
        assert_eq!(
            rig.request(make(RDS, same, &first, None)),
            [Effect::Stale(RDS)]
        );
        assert_eq!(rig.request(make(RDS, same, &second, None)), []);
        assert_eq!(acked(&rig), Some(second));
    }
}

#[test]
fn an_answer_counts_once_whether_or_not_responses_are_remembered() {
    for history in [0, 20] {
        let mut rig = Rig::remembering(Protocol::Delta, history);
        rig.request(delta(RDS, &["r"], "", None));
        rig.answer(RDS, &[("r", "1")]);
        let nonce = rig.sends(RDS, &["r=1"], &[]);
        assert_eq!(rig.session.answered("nonsense", true, rig.now), None);
        assert_eq!(rig.session.answered(&nonce, true, rig.now), Some(RDS));
        rig.request(delta(RDS, &[], &nonce, None));
        assert_eq!(rig.session.answered(&nonce, true, rig.now), None);
        assert_eq!(rig.session.pushes.iter().count(), history.min(1));
    }
}

#[test]
fn a_rejection_is_kept_bars_the_type_and_is_lifted_by_an_answer() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(RDS, &["r"], "", None));
    rig.answer(RDS, &[("r", "bad")]);
    let nonce = rig.sends(RDS, &["r=bad"], &[]);
    let rejection = Rejection {
        code: 13,
        message: Arc::from("why"),
    };

    assert_eq!(
        rig.request(delta(RDS, &[], &nonce, Some("why"))),
        [Effect::Rejected(RDS, rejection.clone())]
    );
    assert_eq!(rig.session.watches[&RDS].history.rejected, Some(rejection));
    rig.is_silent();
    rig.now = seconds(60);
    rig.is_silent();

    assert_eq!(rig.session.wake_at(), Some(NO_RETRY));

    // A subscription by name gets the resource again.
    rig.request(delta(RDS, &["r"], "", None));
    let nonce = rig.sends(RDS, &["r=bad"], &[]);
    rig.request(delta(RDS, &[], &nonce, None));
    assert_eq!(rig.session.watches[&RDS].history.rejected, None);
}

#[test]
fn what_changed_before_a_rejection_arrived_is_sent() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(RDS, &["r"], "", None));
    rig.answer(RDS, &[("r", "bad")]);
    let nonce = rig.sends(RDS, &["r=bad"], &[]);

    // The client is slow, and a user mends the resource meanwhile.
    rig.change(RDS, &[("r", "good")]);
    rig.is_silent();
    rig.request(delta(RDS, &[], &nonce, Some("no")));
    rig.sends(RDS, &["r=good"], &[]);
}

#[test]
fn the_rejection_of_an_earlier_response_counts_after_a_later_one_was_sent() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(RDS, &["r", "s"], "", None));
    rig.answer(RDS, &[("r", "1"), ("s", "1")]);
    let first = rig.sends(RDS, &["r=1", "s=1"], &[]);
    rig.change(RDS, &[("r", "2"), ("s", "1")]);
    rig.now = seconds(5);
    let second = rig.sends(RDS, &["r=2"], &[]);
    rig.request(delta(RDS, &[], &first, Some("no")));
    rig.is_silent();
    rig.request(delta(RDS, &[], &second, None));
    // The client has got another content of what it may have rejected, so the rest is tried again.
    rig.sends(RDS, &["s=1"], &[]);
}

#[test]
fn parts_of_a_rejected_response_are_reverted() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(LDS, &[], "", None));
    rig.answer(LDS, &[("a", "1"), ("b", "1")]);
    let nonce = rig.sends(LDS, &["a=1", "b=1"], &[]);
    rig.request(delta(LDS, &[], &nonce, None));
    rig.change(LDS, &[("b", "2"), ("c", "1")]);
    let nonce = rig.sends(LDS, &["b=2", "c=1"], &["a"]);
    rig.request(delta(LDS, &[], &nonce, Some("no")));
    rig.change(LDS, &[("b", "1")]);
    rig.sends(LDS, &["b=1"], &["a", "c"]);
}

#[test]
fn resubscribed_names_are_sent_again() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(EDS, &["a", "b"], "", None));
    rig.answer(EDS, &[("a", "1"), ("b", "1")]);
    let nonce = rig.sends(EDS, &["a=1", "b=1"], &[]);
    rig.request(delta(EDS, &[], &nonce, None));
    rig.request(delta(EDS, &["-a"], "", None));
    rig.request(delta(EDS, &["a"], "", None));
    rig.answer(EDS, &[("b", "1")]);
    rig.is_silent();
    rig.answer(EDS, &[("a", "1"), ("b", "1")]);
    let nonce = rig.sends(EDS, &["a=1"], &[]);
    rig.request(delta(EDS, &[], &nonce, None));
    // The client subscribed twice, so it gets the resource again.
    assert_eq!(rig.request(delta(EDS, &["b"], "", None)), []);
    rig.sends(EDS, &["b=1"], &[]);
}

#[test]
fn a_type_left_for_a_while_keeps_its_count() {
    let mut rig = Rig::new(Protocol::StateOfTheWorld);
    rig.request(state(EDS, &["a"], "", None));
    assert_eq!(
        rig.request(state(EDS, &[], "", None)),
        [Effect::Unsubscribe(EDS)]
    );
    rig.request(state(EDS, &["b"], "", None));
    rig.answer(EDS, &[("a", "1")]);
    rig.is_silent();
    rig.answer(EDS, &[("b", "1")]);
    rig.sends(EDS, &["1"], &[]);
}

#[test]
fn replacing_a_wildcard_by_names_sends_those_names() {
    let mut rig = Rig::new(Protocol::StateOfTheWorld);
    rig.request(state(LDS, &[], "", None));
    rig.answer(LDS, &[("a", "a1"), ("b", "b1")]);
    let nonce = rig.sends(LDS, &["a1", "b1"], &[]);
    rig.request(state(LDS, &["b"], &nonce, None));
    rig.answer(LDS, &[("b", "b1")]);
    let nonce = rig.sends(LDS, &["b1"], &[]);
    rig.request(state(LDS, &["*"], &nonce, None));
    rig.answer(LDS, &[("a", "a1"), ("b", "b1")]);
    rig.sends(LDS, &["a1", "b1"], &[]);
}

#[test]
fn marks_are_never_used_twice() {
    let mut rig = Rig::new(Protocol::StateOfTheWorld);
    let mut nonces = std::collections::BTreeSet::new();
    for round in 0..10 {
        rig.request(state(LDS, &[], "", None));
        if round == 0 {
            rig.answer(LDS, &[("a", "1")]);
        }
        assert!(nonces.insert(rig.sends(LDS, &["1"], &[])));
    }
    assert!(nonces.contains("1.10"), "{nonces:?}");
}

#[test]
fn requests_above_the_limits_are_rejected() {
    let mut rig = Rig::new(Protocol::Delta);
    let unserved = |number: usize| Request::Unserved {
        url: format!("type.googleapis.com/t{number}"),
    };
    assert!((0..MAX_UNSERVED).all(|number| rig.request(unserved(number)).is_empty()));
    assert!(matches!(
        &*rig.request(unserved(MAX_UNSERVED)),
        [Effect::LimitExceeded(_)]
    ));

    let many: Vec<String> = (0..=MAX_WATCHED).map(|number| number.to_string()).collect();
    let mut is_exceeded = false;

    for some in many.chunks(50_000) {
        let names: Vec<&str> = some.iter().map(String::as_str).collect();
        is_exceeded |= rig
            .request(delta(EDS, &names, "", None))
            .iter()
            .any(|effect| matches!(effect, Effect::LimitExceeded(_)));
    }

    assert!(is_exceeded);
}

const A: &str = "outbound|80||a.example";
const B: &str = "outbound|80||b.example";

#[test]
fn a_cluster_that_is_requested_beside_the_wildcard_is_sent_changed_and_removed() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[("fixed", "1")]);
    let nonce = rig.sends(CDS, &["fixed=1"], &[]);
    rig.request(delta(CDS, &[], &nonce, None));

    // Nothing that it has is sent again; a name that does not exist is answered at once.
    let effects = rig.request(delta(CDS, &[A, B], "", None));
    assert_eq!(
        subscribes(&effects),
        [(CDS, true, strings(&[A, B]))],
        "the wildcard stays"
    );
    let wanted = BTreeSet::from([A, B].map(ResourceName::new));
    assert_eq!(rig.session.known_clusters(&wanted), None);
    rig.answer(CDS, &[("fixed", "1"), (A, "1")]);
    let known = BTreeSet::from([ResourceName::new(A)]);
    assert_eq!(rig.session.known_clusters(&wanted), Some(known));
    let nonce = rig.sends(CDS, &[&format!("{A}=1")], &[B]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.is_silent();

    // It is subscribed to what came later, too.
    rig.change(CDS, &[("fixed", "1"), (A, "2"), (B, "1")]);
    let nonce = rig.sends(CDS, &[&format!("{A}=2"), &format!("{B}=1")], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.change(CDS, &[("fixed", "1"), (B, "1")]);
    rig.sends(CDS, &[], &[A]);
}

#[test]
fn a_client_with_a_learned_scope_keeps_its_clusters_of_services() {
    let held = ["PassthroughCluster", A, B];
    let mut rig = Rig::new(Protocol::Delta);
    let effects = rig.request(come_back(CDS, &["*", A], &held));
    assert_eq!(subscribes(&effects), [(CDS, true, strings(&[A]))]);

    let mut rig = Rig::new(Protocol::Delta);
    rig.session.bounds.keeps_clusters = true;
    let effects = rig.request(come_back(CDS, &["*"], &held));
    assert_eq!(subscribes(&effects), [(CDS, true, strings(&[A, B]))]);

    // What no longer exists is removed, once listeners and routes are there.
    rig.request(delta(LDS, &[], "", None));
    rig.request(delta(RDS, &["80"], "", None));
    rig.answer(CDS, &[("PassthroughCluster", "1"), (A, "1")]);
    rig.answer(LDS, &[]);
    rig.answer(RDS, &[("80", "1")]);
    let mut removed = Vec::new();
    for _ in 0..5 {
        while let Some(response) = rig.next() {
            removed.extend(response.removed);
            rig.request(delta(response.resource_type, &[], &response.nonce, None));
        }
        rig.now += seconds(10);
    }
    assert_eq!(removed, [B]);
}

#[test]
fn a_client_with_a_learned_scope_loses_no_cluster_that_exists() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.session.bounds.keeps_clusters = true;
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[("fixed", "1"), ("other", "1"), (A, "1"), (B, "1")]);
    let nonce = rig.next().unwrap().nonce;
    rig.request(delta(CDS, &[], &nonce, None));

    // The workload is forgotten, and one of its services is deleted: nothing leaves before it is known
    // which clusters exist.
    rig.change(CDS, &[("fixed", "1")]);
    let kept = BTreeSet::from([A, B].map(ResourceName::new));
    assert_eq!(*rig.session.subscribed(CDS), kept);
    rig.is_silent();
    rig.answer(CDS, &[("fixed", "1"), (A, "1")]);
    let nonce = rig.sends(CDS, &[], &["other", B]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.change(CDS, &[("fixed", "1"), (A, "2")]);
    rig.sends(CDS, &[&format!("{A}=2")], &[]);

    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[("fixed", "1"), (A, "1")]);
    let nonce = rig.next().unwrap().nonce;
    rig.request(delta(CDS, &[], &nonce, None));
    rig.change(CDS, &[("fixed", "1")]);
    rig.sends(CDS, &[], &[A]);
}

#[test]
fn names_that_a_client_may_not_have_are_counted_until_it_answers() {
    let names: Vec<String> = (0..100).map(|number| format!("e{number:02}")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "1")).collect();
    let mut rig = Rig::new(Protocol::Delta);
    rig.session.bounds.retry_pause = seconds(10);
    rig.request(delta(EDS, &["*"], "", None));
    rig.answer(EDS, &all);
    let sent = rig.next().unwrap();
    assert_eq!(rig.session.uncertain_names(), 0);

    // A client that rejects one has got the others again, and does not answer.
    let about_one = "Error adding/updating cluster(s) e00: no";
    rig.request(delta(EDS, &[], &sent.nonce, Some(about_one)));
    let sent = rig.next().unwrap();
    assert_eq!(rig.session.uncertain_names(), all.len());
    rig.request(delta(EDS, &[], &sent.nonce, None));
    assert_eq!(rig.session.uncertain_names(), 1);

    rig.is_silent();
    rig.now = seconds(10);
    let sent = rig.next().unwrap();
    rig.request(delta(EDS, &[], &sent.nonce, None));
    assert_eq!(rig.session.uncertain_names(), 0);

    // With the wildcard anew it may have any of them.
    rig.request(delta(EDS, &["-*"], "", None));
    rig.request(delta(EDS, &["*"], "", None));
    assert_eq!(rig.session.uncertain_names(), all.len());
}

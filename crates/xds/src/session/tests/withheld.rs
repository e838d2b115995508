//! Rejected resources are sent again rarely, and hold back no others.

use super::super::*;
use super::rig::*;

const A: &str = "outbound|80||a.example";
const B: &str = "outbound|80||b.example";
const BAD: &str = "outbound|80||bad.example";
const WORSE: &str = "outbound|80||worse.example";

/// Envoy's message about clusters.
fn about(clusters: &[&str]) -> String {
    let errors: Vec<String> = clusters
        .iter()
        .map(|name| format!("{name}: no such extension"))
        .collect();
    format!("Error adding/updating cluster(s) {}", errors.join(", "))
}

/// The short form of a cluster in its first version.
fn first(name: &str) -> String {
    format!("{name}=1")
}

/// A client that has rejected one of its three clusters, and has got the others again.
fn with_one_rejected() -> Rig {
    one_rejected(Rig::new(Protocol::Delta))
}

/// The same, with this first pause.
fn with_one_rejected_for(pause: Duration) -> Rig {
    let mut rig = Rig::new(Protocol::Delta);
    rig.session.bounds.retry_pause = pause;
    one_rejected(rig)
}

fn one_rejected(mut rig: Rig) -> Rig {
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[(A, "1"), (BAD, "1"), ("fixed", "1")]);
    let nonce = rig.sends(CDS, &["fixed=1", &first(A), &first(BAD)], &[]);
    rig.request(delta(CDS, &[], &nonce, Some(&about(&[BAD]))));
    let nonce = rig.sends(CDS, &["fixed=1", &first(A)], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.is_silent();
    rig
}

/// Whether the newest collection of clusters counts as rejected.
fn is_newest_rejected(rig: &Rig) -> bool {
    let watch = &rig.session.watches[&CDS];
    let newest = watch.history.rejected_collection.as_ref();
    let both = newest.zip(watch.latest.as_ref());
    both.is_some_and(|(rejected, latest)| Arc::ptr_eq(rejected, latest))
}

/// Whether the client counts as having rejected its clusters, all of the newest collection included.
fn is_rejected(rig: &Rig) -> bool {
    let watch = &rig.session.watches[&CDS];
    let is_newest = is_newest_rejected(rig);
    let is_taken = watch.taken().zip(watch.latest.as_ref());
    let is_taken = is_taken.is_some_and(|((taken, _), latest)| Arc::ptr_eq(taken, latest));
    assert_ne!(is_newest, is_taken, "one of both");
    assert_eq!(is_newest, watch.history.rejected.is_some());
    assert_eq!(is_newest, watch.rest().is_some());
    is_newest
}

/// The names of the clusters that the client is shown to have.
fn shown(rig: &Rig) -> Vec<String> {
    let shown = rig.session.watches[&CDS].sent().unwrap();
    let names = shown.resources.iter();
    names.map(|cluster| cluster.name.to_string()).collect()
}

#[test]
fn a_rejected_cluster_is_withheld_and_requested_ones_are_sent() {
    let mut rig = with_one_rejected();
    assert!(is_rejected(&rig));
    assert_eq!(shown(&rig), ["fixed", A]);
    assert_eq!(rig.session.take_rejected_again(), BTreeSet::new());

    rig.request(delta(CDS, &[B], "", None));
    rig.answer(CDS, &[(A, "1"), (B, "1"), (BAD, "1"), ("fixed", "1")]);
    let nonce = rig.sends(CDS, &[&first(B)], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.is_silent();

    // The ACK of the others is none of the rejected one.
    assert!(is_rejected(&rig));
    assert_eq!(shown(&rig), ["fixed", A, B]);
    assert_eq!(rig.session.take_rejected_again(), BTreeSet::from([CDS]));
    assert_eq!(rig.session.take_rejected_again(), BTreeSet::new());
    let wanted = BTreeSet::from([B, BAD].map(ResourceName::new));
    let known = BTreeSet::from([ResourceName::new(B)]);
    assert_eq!(rig.session.known_clusters(&wanted), Some(known));

    // Neither is a collection whose only difference is withheld.
    rig.change(CDS, &[(A, "1"), (B, "1"), (BAD, "1"), ("fixed", "1")]);
    rig.is_silent();
    assert!(is_rejected(&rig));
    assert_eq!(rig.session.take_rejected_again(), BTreeSet::from([CDS]));
}

#[test]
fn a_requested_cluster_that_is_rejected_holds_back_no_other() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[("fixed", "1")]);
    let nonce = rig.sends(CDS, &["fixed=1"], &[]);
    rig.request(delta(CDS, &[], &nonce, None));

    rig.request(delta(CDS, &[A, BAD, "gone"], "", None));
    rig.answer(CDS, &[(A, "1"), (BAD, "1"), ("fixed", "1")]);
    let nonce = rig.sends(CDS, &[&first(A), &first(BAD)], &["gone"]);
    rig.request(delta(CDS, &[], &nonce, Some(&about(&[BAD]))));
    let nonce = rig.sends(CDS, &[&first(A)], &["gone"]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.is_silent();
    assert!(is_rejected(&rig));
}

#[test]
fn a_rejected_resource_is_sent_again_when_it_changes_and_may_be_rejected_again() {
    let mut rig = with_one_rejected();
    for version in ["2", "1"] {
        rig.change(CDS, &[(A, "1"), (BAD, version), ("fixed", "1")]);
        let nonce = rig.sends(CDS, &[&format!("{BAD}={version}")], &[]);
        rig.request(delta(CDS, &[], &nonce, Some("anything")));
        rig.is_silent();
        assert!(is_rejected(&rig));
    }

    rig.change(CDS, &[(A, "1"), (BAD, "3"), ("fixed", "1")]);
    let nonce = rig.sends(CDS, &[&format!("{BAD}=3")], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.is_silent();
    assert!(!is_rejected(&rig));
    assert_eq!(shown(&rig), ["fixed", A, BAD]);
}

#[test]
fn a_rejected_change_leaves_the_client_with_the_version_before() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[(A, "1"), (B, "1")]);
    let nonce = rig.sends(CDS, &[&first(A), &first(B)], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.change(CDS, &[(A, "2"), (B, "1")]);
    let nonce = rig.sends(CDS, &[&format!("{A}=2")], &[]);
    rig.request(delta(CDS, &[], &nonce, Some("no")));

    let shown = rig.session.watches[&CDS].sent().unwrap();
    let a = shown.resources.find(&ResourceName::new(A)).unwrap();
    assert_eq!(text_of(CDS, &a.body), "1");

    // The client has it already, and hears of it all the same: it may have accepted a part.
    rig.change(CDS, &[(A, "1"), (B, "1")]);
    let nonce = rig.sends(CDS, &[&first(A)], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    assert!(!is_rejected(&rig));
}

#[test]
fn a_rejected_resource_that_is_gone_is_removed() {
    let mut rig = with_one_rejected();
    rig.change(CDS, &[(A, "1"), ("fixed", "1")]);
    let nonce = rig.sends(CDS, &[], &[BAD]);
    rig.request(delta(CDS, &[], &nonce, None));
    assert!(!is_rejected(&rig));

    // It comes back as it was.
    rig.change(CDS, &[(A, "1"), (BAD, "1"), ("fixed", "1")]);
    rig.sends(CDS, &[&first(BAD)], &[]);
}

#[test]
fn a_client_that_subscribes_to_a_rejected_name_anew_gets_it_again() {
    let mut rig = with_one_rejected();
    rig.request(delta(CDS, &[BAD], "", None));
    rig.answer(CDS, &[(A, "1"), (BAD, "1"), ("fixed", "1")]);
    let nonce = rig.sends(CDS, &[&first(BAD)], &[]);
    rig.request(delta(CDS, &[], &nonce, Some("no")));
    rig.is_silent();

    // The wildcard may include what it unsubscribes from.
    rig.request(delta(CDS, &[&format!("-{BAD}")], "", None));
    rig.answer(CDS, &[(A, "1"), (BAD, "1"), ("fixed", "1")]);
    let nonce = rig.sends(CDS, &[&first(BAD)], &[]);
    rig.request(delta(CDS, &[], &nonce, Some("no")));
    rig.is_silent();
    assert!(is_rejected(&rig));

    // With the wildcard anew, it has to get everything.
    rig.request(delta(CDS, &["-*"], "", None));
    rig.request(delta(CDS, &["*"], "", None));
    rig.answer(CDS, &[(A, "1"), (BAD, "1"), ("fixed", "1")]);
    let nonce = rig.sends(CDS, &["fixed=1", &first(A), &first(BAD)], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    assert!(!is_rejected(&rig));
}

#[test]
fn a_rejected_name_may_be_unsubscribed_and_subscribed_again() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[A, BAD], "", None));
    rig.answer(CDS, &[(A, "1"), (BAD, "1")]);
    let nonce = rig.sends(CDS, &[&first(A), &first(BAD)], &[]);
    rig.request(delta(CDS, &[], &nonce, Some(&about(&[BAD]))));
    let nonce = rig.sends(CDS, &[&first(A)], &[]);
    rig.request(delta(CDS, &[], &nonce, None));

    rig.request(delta(CDS, &[&format!("-{BAD}")], "", None));
    rig.answer(CDS, &[(A, "1")]);
    rig.is_silent();
    assert!(!is_rejected(&rig), "it has all that it wants");

    rig.request(delta(CDS, &[BAD], "", None));
    rig.answer(CDS, &[(A, "1"), (BAD, "1")]);
    let nonce = rig.sends(CDS, &[&first(BAD)], &[]);
    rig.request(delta(CDS, &[], &nonce, Some("no")));
    rig.is_silent();
    assert!(is_rejected(&rig));
}

#[test]
fn without_a_name_halves_are_tried_until_the_rejected_one_is_found() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(EDS, &["a", "b", "c"], "", None));
    rig.answer(EDS, &[("a", "1"), ("b", "1"), ("c", "1")]);
    let nonce = rig.sends(EDS, &["a=1", "b=1", "c=1"], &[]);
    rig.request(delta(EDS, &[], &nonce, Some("no")));
    let nonce = rig.sends(EDS, &["a=1", "b=1"], &[]);
    rig.is_silent();
    let in_doubt = |rig: &Rig| rig.session.watches[&EDS].withheld.in_doubt().to_set();
    assert_eq!(in_doubt(&rig), BTreeSet::from([ResourceName::new("c")]));
    rig.request(delta(EDS, &[], &nonce, Some("no")));
    let nonce = rig.sends(EDS, &["a=1"], &[]);

    // Another is requested meanwhile.
    rig.request(delta(EDS, &["d"], &nonce, None));
    rig.answer(EDS, &[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
    let nonce = rig.sends(EDS, &["b=1", "d=1"], &[]);
    rig.request(delta(EDS, &[], &nonce, Some("no")));
    let nonce = rig.sends(EDS, &["b=1"], &[]);
    rig.request(delta(EDS, &[], &nonce, Some("no")));
    let nonce = rig.sends(EDS, &["d=1"], &[]);
    rig.request(delta(EDS, &[], &nonce, None));
    let nonce = rig.sends(EDS, &["c=1"], &[]);
    rig.request(delta(EDS, &[], &nonce, None));
    rig.is_silent();

    let watch = &rig.session.watches[&EDS];
    let rejected = BTreeSet::from([ResourceName::new("b")]);
    assert_eq!(watch.withheld.names().to_set(), rejected);
    assert_eq!(in_doubt(&rig), BTreeSet::new());
    assert_eq!(rig.session.rejection(EDS).unwrap().message, "no".into());

    rig.request(delta(EDS, &["-b"], "", None));
    rig.answer(EDS, &[("a", "1"), ("c", "1"), ("d", "1")]);
    rig.is_silent();
    assert!(rig.session.is_acknowledged(EDS));
    assert_eq!(rig.session.rejection(EDS), None);
}

#[test]
fn a_client_that_rejects_all_halves_gets_few() {
    let names: Vec<String> = (0..300).map(|number| format!("e{number:03}")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "1")).collect();
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(EDS, &["*"], "", None));
    rig.answer(EDS, &all);

    let mut responses = 0;
    let mut resources = 0;
    while let Some(sent) = rig.next() {
        rig.request(delta(EDS, &[], &sent.nonce, Some("no")));
        responses += 1;
        resources += sent.resources.len();
    }
    assert_eq!(responses, 17);
    assert!(resources < 3 * all.len(), "{resources}");
    let withheld = rig.session.watches[&EDS].withheld.names().to_set();
    assert_eq!(withheld.len(), all.len(), "none is lost");
}

#[test]
fn a_rejected_resource_is_sent_again_alone_after_growing_pauses() {
    let mut rig = with_one_rejected_for(seconds(10));
    for (at, error) in [
        (10, Some("port in use")),
        (30, Some("port in use")),
        (70, None),
    ] {
        assert_eq!(rig.session.wake_at(), Some(seconds(at)));
        rig.now = seconds(at - 1);
        rig.is_silent();
        assert!(is_rejected(&rig));
        rig.now = seconds(at);
        let nonce = rig.sends(CDS, &[&first(BAD)], &[]);
        rig.is_silent();
        rig.request(delta(CDS, &[], &nonce, error));
        rig.is_silent();
    }

    assert!(!is_rejected(&rig));
    assert_eq!(shown(&rig), ["fixed", A, BAD]);
    assert_eq!(rig.session.wake_at(), None);
    assert!(rig.session.is_at_rest());
}

#[test]
fn a_new_rejection_does_not_wait_for_as_long_as_an_old_one() {
    let mut rig = with_one_rejected_for(seconds(10));
    for at in [10, 30, 70] {
        rig.now = seconds(at);
        let nonce = rig.sends(CDS, &[&first(BAD)], &[]);
        rig.request(delta(CDS, &[], &nonce, Some("no")));
        rig.is_silent();
    }
    assert_eq!(rig.session.wake_at(), Some(seconds(150)));

    rig.now = seconds(80);
    rig.change(CDS, &[(A, "2"), (BAD, "1"), ("fixed", "1")]);
    let changed = format!("{A}=2");
    let nonce = rig.sends(CDS, &[&changed], &[]);
    rig.request(delta(CDS, &[], &nonce, Some("no such file")));
    rig.is_silent();
    rig.now = seconds(90);
    let nonce = rig.sends(CDS, &[&changed, &first(BAD)], &[]);
    rig.request(delta(CDS, &[], &nonce, Some(&about(&[BAD]))));
    let nonce = rig.sends(CDS, &[&changed], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.is_silent();
    assert_eq!(rig.session.wake_at(), Some(seconds(110)));

    // Rejections without end do not defer the end of the pause that the first of them began.
    for at in 91..=101 {
        rig.now = seconds(at);
        let version = at.to_string();
        rig.change(CDS, &[(A, &version), (BAD, "1"), ("fixed", "1")]);
        let nonce = rig.sends(CDS, &[&format!("{A}={version}")], &[]);
        rig.request(delta(CDS, &[], &nonce, Some("no")));
        if at < 101 {
            rig.is_silent();
        }
    }
    rig.sends(CDS, &[&format!("{A}=101"), &first(BAD)], &[]);
}

#[test]
fn a_pause_that_ends_while_a_stream_looks_is_not_missed() {
    let mut rig = with_one_rejected_for(seconds(10));
    rig.now = seconds(10) - Duration::from_nanos(1);
    rig.is_silent();

    // The clock goes on before the stream decides how long it waits.
    assert_eq!(rig.session.wake_at(), Some(seconds(10)));
    rig.now = seconds(11);
    rig.sends(CDS, &[&first(BAD)], &[]);
}

#[test]
fn a_rejected_state_of_the_world_is_sent_again_after_growing_pauses() {
    let mut rig = Rig::new(Protocol::StateOfTheWorld);
    rig.session.bounds.retry_pause = seconds(10);
    rig.request(state(LDS, &[], "", None));
    rig.answer(LDS, &[("a", "1"), ("b", "1")]);
    let mut nonce = rig.sends(LDS, &["1", "1"], &[]);
    for at in [10, 30] {
        rig.request(state(LDS, &[], &nonce, Some("port in use")));
        rig.is_silent();
        assert!(
            !rig.session.is_at_rest(),
            "it waits for the end of the pause"
        );
        assert_eq!(rig.session.wake_at(), Some(seconds(at)));
        rig.now = seconds(at - 1);
        rig.is_silent();
        rig.now = seconds(at);
        nonce = rig.sends(LDS, &["1", "1"], &[]);
        rig.is_silent();
    }

    rig.request(state(LDS, &[], &nonce, None));
    rig.is_silent();
    assert!(rig.session.is_at_rest());
    assert_eq!(rig.session.wake_at(), None);
    assert_eq!(rig.session.rejection(LDS), None);
}

#[test]
fn changes_and_requests_are_not_sent_with_what_is_tried_again() {
    let mut rig = with_one_rejected_for(seconds(10));
    rig.now = seconds(20);
    rig.change(CDS, &[(A, "2"), (BAD, "1"), ("fixed", "1")]);
    let nonce = rig.sends(CDS, &[&format!("{A}=2")], &[]);
    rig.is_silent();
    rig.request(delta(CDS, &[], &nonce, None));
    rig.sends(CDS, &[&first(BAD)], &[]);
}

#[test]
fn suspects_are_tried_again_before_what_is_rejected() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.session.bounds.retry_pause = seconds(10);
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[(BAD, "1"), (WORSE, "1")]);
    let nonce = rig.sends(CDS, &[&first(BAD), &first(WORSE)], &[]);
    rig.request(delta(CDS, &[], &nonce, Some(&about(&[WORSE, BAD]))));
    rig.is_silent();

    rig.now = seconds(10);
    let nonce = rig.sends(CDS, &[&first(BAD)], &[]);
    rig.request(delta(CDS, &[], &nonce, Some("no")));
    rig.is_silent();
    rig.now = seconds(30);
    let nonce = rig.sends(CDS, &[&first(BAD), &first(WORSE)], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.is_silent();
    assert!(!is_rejected(&rig));
}

#[test]
fn what_is_acknowledged_beside_a_rejected_cluster_is_not_blamed() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[(A, "1")]);
    let nonce = rig.sends(CDS, &[&first(A)], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.change(CDS, &[(A, "1"), (BAD, "1")]);
    let nonce = rig.sends(CDS, &[&first(BAD)], &[]);
    rig.request(delta(CDS, &[], &nonce, Some("no")));

    // The next response is about another cluster. It is no rejection before it is answered.
    rig.change(CDS, &[(A, "2"), (BAD, "1")]);
    let nonce = rig.sends(CDS, &[&format!("{A}=2")], &[]);
    assert_eq!(rig.session.take_rejected_again(), BTreeSet::new());
    assert!(!is_newest_rejected(&rig));
    rig.request(delta(CDS, &[], &nonce, Some(&about(&[A]))));
    assert!(is_newest_rejected(&rig));

    // Its error is not that of the first one.
    rig.change(CDS, &[(A, "3"), (BAD, "1")]);
    let nonce = rig.sends(CDS, &[&format!("{A}=3")], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    assert_eq!(rig.session.take_rejected_again(), BTreeSet::from([CDS]));
    let message = rig.session.rejection(CDS).unwrap().message;
    assert!(message.contains(BAD) && !message.contains(A), "{message}");

    let watch = &rig.session.watches[&CDS];
    let (taken, revision) = watch.taken().unwrap();
    let version = |name| {
        let cluster = taken.resources.find(&ResourceName::new(name))?;
        Some(text_of(CDS, &cluster.body))
    };
    assert_eq!((version(A).as_deref(), version(BAD)), (Some("3"), None));
    assert_eq!(revision, 1, "it has taken nothing later as a whole");

    let rest = watch.rest().unwrap();
    assert_eq!(
        rest.without.to_set(),
        BTreeSet::from([ResourceName::new(BAD)])
    );
    assert_eq!(rest.revision, 4, "that of the last response");
}

#[test]
fn further_names_of_a_message_are_tried_again_when_the_first_has_changed() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[(A, "1"), (BAD, "1"), (WORSE, "1")]);
    let nonce = rig.sends(CDS, &[&first(A), &first(BAD), &first(WORSE)], &[]);

    // The text about the first one has the name of another, which the client has.
    rig.request(delta(CDS, &[], &nonce, Some(&about(&[WORSE, BAD]))));
    let nonce = rig.sends(CDS, &[&first(A)], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.is_silent();
    assert!(is_rejected(&rig));

    rig.change(CDS, &[(A, "1"), (BAD, "1"), (WORSE, "2")]);
    let nonce = rig.sends(CDS, &[&format!("{WORSE}=2")], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    let nonce = rig.sends(CDS, &[&first(BAD)], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.is_silent();
    assert!(!is_rejected(&rig));
}

#[test]
fn names_that_the_client_was_not_sent_and_old_nonces_withhold_nothing() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[(A, "1"), (B, "1")]);
    let nonce = rig.sends(CDS, &[&first(A), &first(B)], &[]);
    rig.request(delta(CDS, &[], &nonce, None));

    for nonce in [&*nonce, "nonsense", ""] {
        rig.request(delta(CDS, &[], nonce, Some(&about(&[A]))));
        assert!(rig.session.watches[&CDS].withheld.is_empty(), "{nonce:?}");
        assert_eq!(rig.session.rejection(CDS), None);
        rig.is_silent();
    }

    rig.change(CDS, &[(A, "2"), (B, "2")]);
    let nonce = rig.sends(CDS, &[&format!("{A}=2"), &format!("{B}=2")], &[]);
    rig.request(delta(CDS, &[], &nonce, Some(&about(&[BAD, WORSE]))));
    let withheld = rig.session.watches[&CDS].withheld.names().to_set();
    assert_eq!(
        withheld,
        BTreeSet::from([ResourceName::new(B)]),
        "A is next"
    );
    rig.sends(CDS, &[&format!("{A}=2")], &[]);
}

#[test]
fn a_client_that_rejects_one_resource_at_a_time_gets_the_others_a_few_times() {
    let names: Vec<String> = (10..60).map(|number| format!("c{number}")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "1")).collect();
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &all);

    let mut responses = 0;
    while let Some(sent) = rig.next() {
        let (name, _) = sent.resources[0].split_once('=').unwrap();
        rig.request(delta(CDS, &[], &sent.nonce, Some(&about(&[name]))));
        responses += 1;
    }
    assert_eq!(responses, 9);
    let withheld = rig.session.watches[&CDS].withheld.names().to_set();
    assert_eq!(withheld.len(), all.len(), "each at most once");

    // Nor does it loop with removals alone.
    rig.change(CDS, &[]);
    let sent = rig.next().unwrap();
    assert_eq!(sent.removed.len(), all.len());
    rig.request(delta(CDS, &[], &sent.nonce, Some("no")));
    rig.is_silent();
    rig.change(CDS, &[("new", "1")]);
    let sent = rig.next().unwrap();
    assert_eq!(sent.removed.len(), all.len(), "it may have them still");
}

#[test]
fn a_new_stream_gets_what_the_client_does_not_say_it_has() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(come_back(CDS, &["*"], &[A]));
    rig.answer(CDS, &[(A, "1"), (BAD, "1")]);
    let nonce = rig.sends(CDS, &[&first(A), &first(BAD)], &[]);
    rig.request(delta(CDS, &[], &nonce, Some(&about(&[BAD]))));
    let nonce = rig.sends(CDS, &[&first(A)], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.is_silent();
    assert!(is_rejected(&rig));
}

#[test]
fn listeners_do_not_wait_for_the_endpoints_of_rejected_clusters() {
    let mut rig = with_one_rejected();
    rig.request(delta(LDS, &[], "", None));
    rig.answer(LDS, &[("l", "1")]);
    rig.is_silent();
    rig.request(delta(EDS, &[A, "fixed"], "", None));
    rig.answer(EDS, &[(A, "1"), ("fixed", "1")]);
    rig.sends(EDS, &["fixed=1", &first(A)], &[]);
    rig.sends(LDS, &["l=1"], &[]);
}

#[test]
fn rejected_endpoints_are_not_sent_again_with_their_cluster() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[("a", "1"), ("b", "1")]);
    let nonce = rig.sends(CDS, &["a=1", "b=1"], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.request(delta(EDS, &["a"], "", None));
    rig.answer(EDS, &[("a", "bad")]);
    let nonce = rig.sends(EDS, &["a=bad"], &[]);
    rig.request(delta(EDS, &["b"], &nonce, Some("no")));
    rig.answer(EDS, &[("a", "bad"), ("b", "1")]);
    let nonce = rig.sends(EDS, &["b=1"], &[]);
    rig.request(delta(EDS, &[], &nonce, None));

    rig.change(CDS, &[("a", "2"), ("b", "2")]);
    rig.sends(CDS, &["a=2", "b=2"], &[]);
    rig.sends(EDS, &["b=1"], &[]);
}

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::object::NamespacedName;

use super::super::instance::{Instance, Mark};
use super::super::jury::StoredJury;
use super::super::votes::{Answer, VoteCounter, Voter};
use super::*;

mod properties;
mod replicas;
mod strangers;

/// Nobody of the object's namespace is connected.
static NOBODY: Connected = Connected {
    workloads: BTreeSet::new(),
    strangers: BTreeSet::new(),
    voiceless: 0,
};
/// There are no other replicas.
static NOWHERE: Turnout = Turnout {
    deciders: BTreeSet::new(),
    opponents: BTreeSet::new(),
    unlisted_deciders: 0,
    min_opponents: 0,
    strangers: 0,
    reaches_outside: false,
};

/// The ballot of one replica about an edit that keeps its reach.
fn ballot(votes: &Votes) -> Ballot<'_> {
    Ballot {
        votes,
        is_complete: true,
        keeps_reach: true,
        connected: &NOBODY,
        elsewhere: &NOWHERE,
    }
}

fn subject(kind: Kind, namespace: &str) -> Subject {
    Subject {
        object: ObjectRef {
            kind,
            name: NamespacedName::new(namespace, "object"),
        },
        root: Namespace::new("istio-system"),
    }
}

/// A workload, named `namespace/account/pod`; `pod#2` has replaced `pod` under its name.
fn voter(name: &str) -> Voter {
    let parts: Vec<&str> = name.split('/').collect();
    let [namespace, account, pod] = parts.as_slice() else {
        panic!("{name} has three parts")
    };
    Voter {
        account: NamespacedName::new(namespace, account),
        workload: NamespacedName::new(namespace, pod.split('#').next().unwrap()),
        mark: Mark::Uid(Arc::from(*pod)),
    }
}

/// The votes of these workloads, and of a number of streams without identity.
fn votes(answers: &[(&str, Answer)], strangers: usize) -> Votes {
    let mut counter = VoteCounter::default();
    for (name, answer) in answers {
        counter.add(voter(name), *answer);
    }
    for _ in 0..strangers {
        counter.add_stranger();
    }
    counter.votes()
}

/// The verdict on a rule of `shop` once all responses are known.
fn verdict(answers: &[(&str, Answer)], strangers: usize) -> Verdict {
    verdict_about(&subject(Kind::VirtualService, "shop"), answers, strangers)
}

fn verdict_about(subject: &Subject, answers: &[(&str, Answer)], strangers: usize) -> Verdict {
    let votes = votes(answers, strangers);
    Judgement::open(Duration::ZERO).step(subject, &ballot(&votes), MAX_WAIT)
}

fn own(rejecting: usize, reached: usize) -> Verdict {
    Verdict::Quarantine(Grounds::OwnNamespace { rejecting, reached })
}

fn others(accounts: usize) -> Verdict {
    Verdict::Quarantine(Grounds::OtherNamespaces { accounts })
}

use Answer::{Accepted, Pending, Rejected, Unattributed};

#[test]
fn the_namespace_of_the_object_decides_by_majority() {
    assert_eq!(verdict(&[("shop/web/a", Rejected)], 0), own(1, 1));
    assert_eq!(
        verdict(&[("shop/web/a", Rejected), ("shop/web/b", Rejected)], 9),
        own(2, 2)
    );

    let split = [("shop/web/a", Rejected), ("shop/web/b", Accepted)];
    assert_eq!(verdict(&split, 0), Verdict::Keep);
    let silent = [("shop/web/a", Rejected), ("shop/web/b", Pending)];
    assert_eq!(
        verdict(&silent, 0),
        Verdict::Keep,
        "a missing response does not count as agreement"
    );
    let unclear = [("shop/web/a", Rejected), ("shop/web/b", Unattributed)];
    assert_eq!(verdict(&unclear, 0), Verdict::Keep);

    // It is accepted everywhere else.
    let elsewhere = [
        ("shop/web/a", Rejected),
        ("bank/x/a", Accepted),
        ("bank/y/a", Accepted),
    ];
    assert_eq!(verdict(&elsewhere, 0), Verdict::Keep);
}

#[test]
fn one_workload_of_the_namespace_does_not_decide_beside_streams_without_identity() {
    // Four sidecars in plain text may be of the same namespace, and accept the object.
    assert_eq!(verdict(&[("shop/web/a", Rejected)], 4), Verdict::Keep);

    let two = [("shop/web/a", Rejected), ("shop/web/b", Rejected)];
    assert_eq!(
        verdict(&two, 4),
        own(2, 2),
        "anybody can open streams without identity, so they do not prevent it"
    );
}

#[test]
fn other_namespaces_decide_only_if_nobody_else_is_reached() {
    let gateway = [("edge/gateway/a", Rejected), ("edge/gateway/b", Rejected)];
    assert_eq!(verdict(&gateway, 0), others(1));
    assert_eq!(
        verdict(&gateway, 1),
        Verdict::Keep,
        "a stream without identity has the resource"
    );

    let two = [("edge/gateway/a", Rejected), ("bank/web/a", Rejected)];
    assert_eq!(verdict(&two, 0), others(2));

    // One that does not reject keeps the object: in its own account, in the object's namespace,
    // and elsewhere.
    for third in ["edge/gateway/b", "shop/web/a", "toys/web/a"] {
        for answer in [Accepted, Pending, Unattributed] {
            let all = [two[0], two[1], (third, answer)];
            assert_eq!(verdict(&all, 0), Verdict::Keep, "{third} {answer:?}");
        }
    }
}

#[test]
fn other_namespaces_do_not_take_away_what_may_reach_others_later() {
    let subject = subject(Kind::VirtualService, "shop");
    let verdict = |answers: &[(&str, Answer)]| {
        let votes = votes(answers, 0);
        let ballot = Ballot {
            keeps_reach: false,
            ..ballot(&votes)
        };
        Judgement::open(Duration::ZERO).step(&subject, &ballot, MAX_WAIT)
    };

    // It is new, or reaches more than before: it may be for a gateway that is not there yet.
    assert_eq!(verdict(&[("evil/x/a", Rejected)]), Verdict::Keep);
    assert_eq!(verdict(&[("shop/web/a", Rejected)]), own(1, 1));
}

#[test]
fn filters_are_judged_by_their_own_namespace_only() {
    let elsewhere = [("edge/gateway/a", Rejected), ("bank/web/a", Rejected)];
    let own_proxies = [
        ("istio-system/gateway/a", Rejected),
        ("istio-system/gateway/b", Rejected),
    ];

    for kind in [Kind::EnvoyFilter, Kind::WasmPlugin, Kind::TrafficExtension] {
        let filter = subject(kind, "istio-system");
        assert_eq!(verdict_about(&filter, &elsewhere, 0), Verdict::Keep);
        assert_eq!(verdict_about(&filter, &own_proxies, 0), own(2, 2));
        let of_shop = subject(kind, "shop");
        assert_eq!(verdict_about(&of_shop, &elsewhere, 0), Verdict::Keep);
    }

    let rule = subject(Kind::DestinationRule, "istio-system");
    assert_eq!(verdict_about(&rule, &elsewhere, 0), others(2));
}

#[test]
fn the_judgement_waits_for_answers() {
    let subject = subject(Kind::VirtualService, "shop");
    let waiting = votes(
        &[
            ("shop/web/a", Rejected),
            ("shop/web/b", Rejected),
            ("shop/web/c", Pending),
        ],
        1,
    );
    let ballot = |votes, is_complete| Ballot {
        is_complete,
        ..ballot(votes)
    };
    let begin = Duration::from_secs(100);
    let mut judgement = Judgement::open(begin);
    let just_before = begin + MAX_WAIT - Duration::from_millis(1);
    assert_eq!(
        judgement.step(&subject, &ballot(&waiting, true), just_before),
        Verdict::Nothing
    );
    assert_eq!(
        judgement
            .clone()
            .step(&subject, &ballot(&waiting, true), begin + MAX_WAIT),
        own(2, 3)
    );

    // The last response decides at once, unless other replicas have not reported.
    let answered = votes(
        &[
            ("shop/web/a", Rejected),
            ("shop/web/b", Rejected),
            ("shop/web/c", Accepted),
        ],
        1,
    );
    assert_eq!(
        judgement.step(&subject, &ballot(&answered, false), begin),
        Verdict::Nothing
    );
    assert_eq!(
        judgement.step(&subject, &ballot(&answered, true), begin),
        own(2, 3)
    );
    assert!(!judgement.is_open());

    // One workload alone does not decide while other replicas may have further ones.
    let alone = votes(&[("shop/web/a", Rejected)], 0);
    let late = begin + MAX_WAIT;
    assert_eq!(
        Judgement::open(begin).step(&subject, &ballot(&alone, false), late),
        Verdict::Keep
    );
    assert_eq!(
        Judgement::open(begin).step(&subject, &ballot(&alone, true), late),
        own(1, 1)
    );

    // Other replicas may have responses that contradict other namespaces, so their reports are
    // needed.
    let gateway = votes(&[("edge/gateway/a", Rejected)], 0);
    let mut judgement = Judgement::open(begin);
    assert_eq!(
        judgement.step(&subject, &ballot(&gateway, false), begin + MAX_WAIT),
        Verdict::Keep
    );

    // Another rejection starts a new judgement with its own time limit.
    judgement.reject(begin + 2 * MAX_WAIT);
    assert!(judgement.is_open());
    assert_eq!(
        judgement.step(&subject, &ballot(&gateway, true), begin + 2 * MAX_WAIT),
        others(1)
    );
}

#[test]
fn a_verdict_of_other_namespaces_ends_when_the_object_reaches_another_workload() {
    let subject = subject(Kind::VirtualService, "shop");
    let mut judgement = Judgement::open(Duration::ZERO);
    let step = |judgement: &mut Judgement, answers: &[(&str, Answer)], strangers, seconds| {
        let votes = votes(answers, strangers);
        judgement.step(&subject, &ballot(&votes), Duration::from_secs(seconds))
    };
    let gateway = ("edge/gateway/a", Rejected);
    assert_eq!(step(&mut judgement, &[gateway], 0, 10), others(1));

    // Anyone but the deciding account gets the object at once, until it is edited.
    for (further, strangers) in [(None, 1), (Some(("shop/web/a", Pending)), 0)] {
        let reached: Vec<_> = [gateway].into_iter().chain(further).collect();
        let mut judgement = judgement.clone();
        let verdict = step(&mut judgement, &reached, strangers, 10);
        assert_eq!(verdict, Verdict::Release, "{further:?} may be honest");
        judgement.reject(MAX_WAIT);
        assert!(!judgement.is_open(), "it is not judged again");
    }

    // Another pod of that account, or one that has replaced the only one under its name, has not
    // rejected it: the answers of all count anew.
    for further in ["edge/gateway/b", "edge/gateway/a#2"] {
        let reached = [(further, Pending)];
        let mut judgement = judgement.clone();
        assert_eq!(step(&mut judgement, &reached, 0, 19), Verdict::Nothing);
        assert_eq!(step(&mut judgement, &reached, 0, 20), Verdict::JudgeAgain);
        judgement.reject(Duration::from_secs(21));
        assert!(judgement.is_open());
    }
    assert_eq!(step(&mut judgement, &[gateway], 0, 9_999), Verdict::Nothing);
}

/// A rule of `shop` that was quarantined when these had answered, and no other client of the
/// namespace was connected.
fn quarantined(answers: &[(&str, Answer)]) -> Judgement {
    let votes = votes(answers, 0);
    let mut judgement = Judgement::open(Duration::ZERO);
    let subject = subject(Kind::VirtualService, "shop");
    let verdict = judgement.step(&subject, &ballot(&votes), Duration::ZERO);
    assert!(matches!(verdict, Verdict::Quarantine(_)), "{verdict:?}");
    judgement
}

/// The verdict on the quarantined rule once it reaches these workloads.
fn later(judgement: &mut Judgement, reached: &[&str], strangers: usize, seconds: u64) -> Verdict {
    let answers: Vec<_> = reached.iter().map(|name| (*name, Pending)).collect();
    let votes = votes(&answers, strangers);
    let subject = subject(Kind::VirtualService, "shop");
    judgement.step(&subject, &ballot(&votes), Duration::from_secs(seconds))
}

#[test]
fn a_verdict_of_the_own_namespace_lasts_while_those_who_made_it_are_a_majority() {
    let both = [("shop/web/a", Rejected), ("shop/web/b", Rejected)];
    let mut judgement = quarantined(&both);
    let one_more = ["shop/web/a", "shop/web/b", "shop/web/c"];
    assert_eq!(later(&mut judgement, &one_more, 9, 99), Verdict::Nothing);
    let two_more = ["shop/web/a", "shop/web/b", "shop/web/c", "shop/web/d"];
    assert_eq!(later(&mut judgement, &two_more, 0, 9), Verdict::Nothing);
    assert_eq!(later(&mut judgement, &two_more, 0, 10), Verdict::JudgeAgain);
    assert!(judgement.is_kept());
}

#[test]
fn a_verdict_of_the_own_namespace_does_not_outlive_those_who_made_it() {
    let both = [("shop/web/a", Rejected), ("shop/web/b", Rejected)];

    // Both have left, one has left, and one was replaced under its own name.
    for (reached, verdict) in [
        (vec!["shop/web/c"], Verdict::JudgeAgain),
        (vec!["shop/web/a", "shop/web/c"], Verdict::JudgeAgain),
        (vec!["shop/web/a", "shop/web/b#2"], Verdict::JudgeAgain),
        (vec!["shop/web/a"], Verdict::Nothing),
        (vec![], Verdict::Nothing),
    ] {
        let mut judgement = quarantined(&both);
        for seconds in [10, 39] {
            let found = later(&mut judgement, &reached, 0, seconds);
            assert_eq!(found, Verdict::Nothing, "they may come back: {reached:?}");
        }
        let found = later(&mut judgement, &reached, 0, 40);
        assert_eq!(found, verdict, "{reached:?}");
    }

    // One that was outvoted, and stays when the others have left.
    let outvoted = [both[0], both[1], ("shop/web/c", Accepted)];
    let mut judgement = quarantined(&outvoted);
    let all = ["shop/web/a", "shop/web/b", "shop/web/c"];
    assert_eq!(later(&mut judgement, &all, 0, 10), Verdict::Nothing);
    let left = ["shop/web/c"];
    assert_eq!(later(&mut judgement, &left, 0, 20), Verdict::Nothing);
    assert_eq!(later(&mut judgement, &left, 0, 50), Verdict::JudgeAgain);
}

#[test]
fn a_decider_between_two_connections_is_not_gone() {
    let both = [("shop/web/a", Rejected), ("shop/web/b", Rejected)];
    let mut judgement = quarantined(&both);
    let with = ["shop/web/a", "shop/web/b", "shop/web/c"];
    let without = ["shop/web/a", "shop/web/c"];

    // It comes and goes all the time.
    for begin in [100, 200, 300] {
        assert_eq!(later(&mut judgement, &with, 0, begin), Verdict::Nothing);
        for after in [1, 30] {
            let found = later(&mut judgement, &without, 0, begin + after);
            assert_eq!(found, Verdict::Nothing, "{begin} {after}");
        }
    }

    // It has come back when nothing but connections is looked at.
    let connected = Connected {
        workloads: votes(&both, 0).workloads().keys().cloned().collect(),
        ..Connected::default()
    };
    judgement.see(&connected, Duration::from_secs(340));
    assert_eq!(later(&mut judgement, &without, 0, 341), Verdict::Nothing);
    assert_eq!(later(&mut judgement, &without, 0, 370), Verdict::Nothing);
    assert_eq!(later(&mut judgement, &without, 0, 371), Verdict::JudgeAgain);
}

#[test]
fn a_verdict_of_the_own_namespace_without_deciders_keeps_the_object_from_nobody() {
    let both = [("shop/web/a", Rejected), ("shop/web/b", Rejected)];
    let with_decider = ["shop/web/a", "bank/web/a", "bank/web/b"];
    let verdict = later(&mut quarantined(&both), &with_decider, 9, 999);
    assert_eq!(verdict, Verdict::Nothing, "the namespace decides");

    // A pod may replace the only decider, and needs the version that it accepts.
    for (reached, strangers) in [(vec!["bank/web/a"], 0), (vec![], 1)] {
        let mut judgement = quarantined(&both);
        let mut step = |seconds| later(&mut judgement, &reached, strangers, seconds);
        assert_eq!(step(10), Verdict::Nothing);
        assert_eq!(step(69), Verdict::Nothing);
        assert_eq!(step(70), Verdict::JudgeAgain, "{reached:?} {strangers}");
    }

    // It has come back in time.
    let mut judgement = quarantined(&both);
    for (reached, seconds) in [("bank/web/a", 10), ("shop/web/a", 60), ("bank/web/a", 99)] {
        let verdict = later(&mut judgement, &[reached], 0, seconds);
        assert_eq!(verdict, Verdict::Nothing);
    }
}

#[test]
fn a_workload_that_the_object_did_not_reach_is_asked_once_it_does() {
    // It was connected, and a Sidecar hid the object from it.
    let subject = subject(Kind::VirtualService, "shop");
    let connected = Connected {
        workloads: [Instance::of(&voter("shop/web/hidden"))].into(),
        ..Connected::default()
    };
    let step = |judgement: &mut Judgement, keeps_reach, names: &[&str], seconds| {
        let answers: Vec<_> = names.iter().map(|name| (*name, Rejected)).collect();
        let votes = votes(&answers, 0);
        let ballot = Ballot {
            keeps_reach,
            connected: &connected,
            ..ballot(&votes)
        };
        judgement.step(&subject, &ballot, Duration::from_secs(seconds))
    };

    let mut judgement = Judgement::open(Duration::ZERO);
    assert_eq!(step(&mut judgement, true, &["shop/web/a"], 0), own(1, 1));
    let hidden = step(&mut judgement, true, &["shop/web/a"], 99);
    assert_eq!(hidden, Verdict::Nothing);
    let both = ["shop/web/a", "shop/web/hidden"];
    let open = step(&mut judgement, true, &both, 99);
    assert_eq!(open, Verdict::JudgeAgain);

    // No proxy gets a new object, so that its reach is unknown: all that were connected are apart.
    let mut judgement = Judgement::open(Duration::ZERO);
    assert_eq!(step(&mut judgement, false, &["shop/web/a"], 0), own(1, 1));
    assert_eq!(step(&mut judgement, false, &[], 99), Verdict::Nothing);
}

#[test]
fn an_object_that_stays_broken_is_served_ever_more_rarely() {
    let subject = subject(Kind::VirtualService, "shop");
    let all = votes(&[("shop/web/a", Rejected), ("shop/web/b", Rejected)], 0);
    let others = votes(&[("shop/web/c", Pending), ("shop/web/d", Pending)], 0);
    let mut judgement = Judgement::open(Duration::ZERO);
    let mut now = Duration::ZERO;
    let mut lasted = Vec::new();

    // Its deciders leave and come back all the time.
    for _ in 0..9 {
        judgement.reject(now);
        let begun = now;
        assert_eq!(judgement.step(&subject, &ballot(&all), now), own(2, 2));
        while judgement.step(&subject, &ballot(&others), now) == Verdict::Nothing {
            now += Duration::from_secs(1);
        }
        lasted.push((now - begun).as_secs());
    }
    assert_eq!(lasted, [10, 20, 40, 80, 160, 320, 640, 640, 640]);
}

#[test]
fn a_restart_while_the_object_is_in_force_keeps_how_often_it_was_judged() {
    let subject = subject(Kind::VirtualService, "shop");
    let all = votes(&[("shop/web/a", Rejected), ("shop/web/b", Rejected)], 0);
    let mut judgement = Judgement::kept();
    judgement.remember(3);
    judgement.reject(Duration::ZERO);
    let verdict = judgement.step(&subject, &ballot(&all), Duration::ZERO);
    assert_eq!(verdict, own(2, 2));

    let others = ["shop/web/c", "shop/web/d"];
    assert_eq!(later(&mut judgement, &others, 0, 79), Verdict::Nothing);
    assert_eq!(later(&mut judgement, &others, 0, 80), Verdict::JudgeAgain);
}

/// The judgement of a replica that starts, from what is stored.
fn restarted(stored: Option<&StoredJury>, rejected: usize, shows_reach: bool) -> Judgement {
    let known_until = Duration::from_secs(60);
    let jury = Jury::stored(
        stored,
        None,
        rejected,
        shows_reach,
        Duration::ZERO,
        known_until,
    );
    let mut judgement = Judgement::kept();
    judgement.follow(jury, stored.map_or(0, |stored| stored.rejudged));
    judgement
}

#[test]
fn a_restart_ends_no_quarantine_by_itself() {
    let both = [("shop/web/a", Rejected), ("shop/web/b", Rejected)];
    let before = quarantined(&[both[0], both[1], ("shop/web/c", Accepted)]);
    let json = before.jury().unwrap().to_json(2);
    let stored = StoredJury::from_json(&json).unwrap();
    let judgement = restarted(Some(&stored), 2, true);
    assert_eq!(judgement.rejudged(), 2);

    // All connect again, one after the other.
    let some = ["shop/web/c"];
    let all = ["shop/web/a", "shop/web/b", "shop/web/c"];
    let mut same = judgement.clone();
    assert_eq!(later(&mut same, &some, 0, 59), Verdict::Nothing);
    assert_eq!(later(&mut same, &all, 0, 999), Verdict::Nothing);

    // Those who come within that time are counted after it.
    let mut left = judgement.clone();
    assert_eq!(later(&mut left, &some, 0, 1), Verdict::Nothing);
    assert_eq!(later(&mut left, &some, 0, 60), Verdict::JudgeAgain);
}

#[test]
fn records_without_names_are_read() {
    // Of an earlier release: whoever connects after the start may be one of the deciders.
    let mut judgement = restarted(None, 2, true);
    let all = ["shop/web/a", "shop/web/b", "shop/web/c"];
    assert_eq!(later(&mut judgement, &all, 0, 1), Verdict::Nothing);
    assert_eq!(later(&mut judgement, &all, 0, 99), Verdict::Nothing);
    let more = ["shop/web/d", "shop/web/e"];
    assert_eq!(later(&mut judgement, &more[..1], 0, 99), Verdict::Nothing);
    assert_eq!(later(&mut judgement, &more, 0, 99), Verdict::JudgeAgain);
}

#[test]
fn names_without_marks_are_those_of_the_first_that_come() {
    // Without UIDs, streams distinguish workloads, and another process has other streams.
    let stored = StoredJury {
        workloads: [(
            Instance {
                workload: NamespacedName::new("shop", "a"),
                mark: Mark::Unknown,
            },
            true,
        )]
        .into(),
        rejudged: 0,
        is_partial: false,
    };
    let mut judgement = restarted(Some(&stored), 1, true);
    let same = ["shop/web/a"];
    assert_eq!(later(&mut judgement, &same, 0, 1), Verdict::Nothing);
    assert_eq!(later(&mut judgement, &same, 0, 99), Verdict::Nothing);
    let replaced = ["shop/web/a#2"];
    assert_eq!(later(&mut judgement, &replaced, 0, 99), Verdict::JudgeAgain);
}

//! Judgements about workloads that are connected to several replicas, or move between them.

use super::*;

#[test]
fn a_workload_decides_no_more_by_streams_to_several_replicas() {
    let traitor = ("shop/web/a", Rejected);
    let honest = ("shop/web/b", Accepted);
    let sum = |here: &[(&str, Answer)]| {
        let mut sum = votes(here, 0);
        for _ in 0..2 {
            let report = votes(&[traitor], 0).to_json(&Namespace::new("shop"));
            sum.add(&Votes::from_json(&report).unwrap().votes);
        }
        sum
    };
    let subject = subject(Kind::VirtualService, "shop");
    let mut judgement = Judgement::open(Duration::ZERO);
    let contested = sum(&[traitor, honest]);
    let verdict = judgement.step(&subject, &ballot(&contested), Duration::ZERO);
    assert_eq!(verdict, Verdict::Keep);

    // Alone it is one decider, which one opponent outnumbers.
    judgement.reject(Duration::ZERO);
    let alone = sum(&[traitor]);
    let verdict = judgement.step(&subject, &ballot(&alone), Duration::ZERO);
    assert_eq!(verdict, own(1, 1));
    let jury = judgement.jury().unwrap();
    assert_eq!((jury.rejected, jury.deciders.len()), (1, 1));
    assert!(!jury.learns, "its list is complete");
    let both = ["shop/web/a", "shop/web/b"];
    assert_eq!(later(&mut judgement, &both, 0, 10), Verdict::JudgeAgain);
}

/// Workloads by their names.
fn instances(names: &[&str]) -> BTreeSet<Instance> {
    let all = names.iter().map(|name| Instance::of(&voter(name)));
    all.collect()
}

/// The verdict on the quarantined rule once it reaches these workloads here, and others have
/// reported this.
fn beside(
    judgement: &mut Judgement,
    reached: &[&str],
    elsewhere: &Turnout,
    is_complete: bool,
    seconds: u64,
) -> Verdict {
    let answers: Vec<_> = reached.iter().map(|name| (*name, Pending)).collect();
    let here = votes(&answers, 0);
    let ballot = Ballot {
        is_complete,
        elsewhere: &Turnout::from_json(&elsewhere.to_json()).unwrap(),
        ..ballot(&here)
    };
    let subject = subject(Kind::VirtualService, "shop");
    judgement.step(&subject, &ballot, Duration::from_secs(seconds))
}

#[test]
fn newcomers_and_deciders_of_all_replicas_count() {
    let mut judgement = quarantined(&[("shop/web/a", Rejected), ("shop/web/b", Rejected)]);
    let here = ["shop/web/a", "shop/web/c"];
    let mut step = |opponents: &[&str]| {
        let elsewhere = Turnout {
            deciders: instances(&["shop/web/b"]),
            opponents: instances(opponents),
            ..Turnout::default()
        };
        beside(&mut judgement, &here, &elsewhere, true, 10)
    };

    assert_eq!(step(&[]), Verdict::Nothing);
    let verdict = step(&["shop/web/c"]);
    assert_eq!(
        verdict,
        Verdict::Nothing,
        "it is connected to both replicas"
    );
    assert_eq!(step(&["shop/web/d"]), Verdict::JudgeAgain);
}

#[test]
fn a_decider_that_moves_to_another_replica_is_not_gone() {
    let both = [("shop/web/a", Rejected), ("shop/web/b", Rejected)];
    let with_b = ["shop/web/a", "shop/web/b", "shop/web/c"];
    let without = ["shop/web/a", "shop/web/c"];
    let moved = Turnout {
        deciders: instances(&["shop/web/b"]),
        ..Turnout::default()
    };
    let mut judgement = quarantined(&both);
    let mut step = |reached: &[&str], elsewhere: &Turnout, seconds| {
        beside(&mut judgement, reached, elsewhere, true, seconds)
    };

    assert_eq!(step(&with_b, &NOWHERE, 100), Verdict::Nothing);
    let unreported = step(&without, &NOWHERE, 101);
    assert_eq!(unreported, Verdict::Nothing, "others have not reported it");
    for seconds in [120, 200, 999] {
        assert_eq!(step(&without, &moved, seconds), Verdict::Nothing);
    }
    assert_eq!(step(&without, &NOWHERE, 1_000), Verdict::Nothing);
    assert_eq!(step(&without, &NOWHERE, 1_030), Verdict::JudgeAgain);
}

#[test]
fn a_quarantine_is_not_deserted_while_a_decider_is_connected_elsewhere() {
    let mut judgement = quarantined(&[("shop/web/a", Rejected), ("shop/web/b", Rejected)]);
    let elsewhere = Turnout {
        deciders: instances(&["shop/web/b"]),
        ..Turnout::default()
    };
    let here = ["bank/web/a"];
    let mut step =
        |elsewhere: &Turnout, seconds| beside(&mut judgement, &here, elsewhere, true, seconds);

    for seconds in [10, 100, 200] {
        assert_eq!(step(&elsewhere, seconds), Verdict::Nothing);
    }
    assert_eq!(step(&NOWHERE, 201), Verdict::Nothing);
    assert_eq!(step(&NOWHERE, 260), Verdict::Nothing);
    assert_eq!(step(&NOWHERE, 261), Verdict::JudgeAgain);
}

#[test]
fn a_replica_that_has_not_reported_may_have_all_deciders_for_a_time() {
    let both = [("shop/web/a", Rejected), ("shop/web/b", Rejected)];
    let other = ["shop/web/c"];
    let outsider = ["bank/web/a"];
    for reached in [other, outsider] {
        let mut judgement = quarantined(&both);
        let mut step =
            |is_complete, seconds| beside(&mut judgement, &reached, &NOWHERE, is_complete, seconds);
        assert_eq!(step(true, 10), Verdict::Nothing);
        assert_eq!(step(false, 200), Verdict::Nothing, "{reached:?}");
        assert_eq!(step(false, 229), Verdict::Nothing, "{reached:?}");
        assert_eq!(step(false, 230), Verdict::JudgeAgain, "it hangs");
    }

    // It reports in time.
    let mut judgement = quarantined(&both);
    let mut step =
        |is_complete, seconds| beside(&mut judgement, &other, &NOWHERE, is_complete, seconds);
    assert_eq!(step(true, 10), Verdict::Nothing);
    assert_eq!(step(false, 200), Verdict::Nothing);
    assert_eq!(step(true, 201), Verdict::JudgeAgain);

    // Whoever is connected there cannot be as many.
    let mut judgement = quarantined(&both);
    let two_more = ["shop/web/a", "shop/web/c", "shop/web/d"];
    let found = beside(&mut judgement, &two_more, &NOWHERE, false, 10);
    assert_eq!(found, Verdict::JudgeAgain);
}

#[test]
fn deciders_that_another_replica_has_no_room_to_list_are_there() {
    let names: Vec<String> = (0..2_000)
        .map(|number| format!("shop/web/w{number}-{}", "x".repeat(100)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all: Vec<(&str, Answer)> = names.iter().map(|name| (*name, Rejected)).collect();
    let newer: Vec<String> = (0..1_000)
        .map(|number| format!("shop/web/n{number}-{}", "x".repeat(100)))
        .collect();
    let newer: Vec<&str> = newer.iter().map(String::as_str).collect();

    let mut judgement = quarantined(&all);
    let elsewhere = Turnout {
        deciders: instances(&names),
        ..Turnout::default()
    };
    let listed = Turnout::from_json(&elsewhere.to_json()).unwrap();
    assert!(listed.deciders.len() < 500, "most are not listed");
    for seconds in [10, 99] {
        let found = beside(&mut judgement, &newer, &elsewhere, true, seconds);
        assert_eq!(found, Verdict::Nothing);
    }

    // Most have been replaced, and not all that replace them are listed either.
    let few = Turnout {
        deciders: instances(&names[..500]),
        opponents: instances(&newer),
        ..Turnout::default()
    };
    let found = beside(&mut judgement, &[], &few, true, 100);
    assert_eq!(found, Verdict::JudgeAgain);
}

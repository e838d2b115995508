//! Judgements beside streams without identity, which may claim any namespace.

use std::ops::Range;

use super::*;
use crate::engine::ProxyId;

#[test]
fn streams_without_identity_count_against_one_workload_and_not_against_two() {
    let one = [("shop/web/a", Rejected)];
    let verdict = later(&mut quarantined(&one), &["shop/web/a"], 1, 10);
    assert_eq!(verdict, Verdict::JudgeAgain);

    let two = [("shop/web/a", Rejected), ("shop/web/b", Rejected)];
    let reached = ["shop/web/a", "shop/web/b"];
    let verdict = later(&mut quarantined(&two), &reached, 99, 10);
    assert_eq!(verdict, Verdict::Nothing, "anybody can open such streams");
}

#[test]
fn streams_without_identity_that_have_left_do_not_stand_for_those_that_come() {
    // The reach of a new object is unknown, and these claim its namespace.
    let subject = subject(Kind::DestinationRule, "shop");
    let step = |judgement: &mut Judgement, streams: Range<u64>, seconds| {
        let votes = votes(&[("shop/web/a", Rejected)], 0);
        let connected = Connected {
            voiceless: streams.clone().count(),
            strangers: streams.map(ProxyId::of).collect(),
            ..Connected::default()
        };
        let ballot = Ballot {
            keeps_reach: false,
            connected: &connected,
            ..ballot(&votes)
        };
        judgement.step(&subject, &ballot, Duration::from_secs(seconds))
    };
    let mut decided = Judgement::open(Duration::ZERO);
    assert_eq!(step(&mut decided, 0..10, 0), own(1, 1));

    // The same ones, or fewer of them, are those that it did not reach.
    let mut same = decided.clone();
    assert_eq!(step(&mut same, 0..10, 99), Verdict::Nothing);
    assert_eq!(step(&mut same, 3..7, 99), Verdict::Nothing);
    assert_eq!(same.jury().unwrap().strangers.len(), 4, "the others left");

    // One comes, beside them all and after they have left.
    for streams in [0..11, 10..11] {
        let mut judgement = decided.clone();
        assert_eq!(step(&mut judgement, streams.clone(), 9), Verdict::Nothing);
        let verdict = step(&mut judgement, streams.clone(), 10);
        assert_eq!(verdict, Verdict::JudgeAgain, "{streams:?}");
    }

    // After a restart, those of the first minute are not asked, and stand for nobody either.
    let mut judgement = restarted(None, 1, false);
    assert_eq!(step(&mut judgement, 0..10, 1), Verdict::Nothing);
    assert_eq!(step(&mut judgement, 0..10, 99), Verdict::Nothing);
    assert_eq!(step(&mut judgement, 10..11, 99), Verdict::JudgeAgain);
}

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

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::votes::{Answer, VoteCounter, Voter};
use super::*;

fn subject(kind: Kind, namespace: &str) -> Subject {
    Subject {
        object: ObjectRef {
            kind,
            name: NamespacedName::new(namespace, "object"),
        },
        root: Namespace::new("istio-system"),
    }
}

/// A workload, named `namespace/account/pod`.
fn voter(name: &str) -> Voter {
    let parts: Vec<&str> = name.split('/').collect();
    let [namespace, account, pod] = parts.as_slice() else {
        panic!("{name} has three parts")
    };
    Voter {
        account: NamespacedName::new(namespace, account),
        workload: NamespacedName::new(namespace, pod),
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
    let ballot = Ballot {
        votes: &votes(answers, strangers),
        is_complete: true,
        keeps_reach: true,
        connected: &BTreeSet::new(),
    };
    Judgement::open(Duration::ZERO).step(subject, &ballot, MAX_WAIT)
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
        let ballot = Ballot {
            votes: &votes(answers, 0),
            is_complete: true,
            keeps_reach: false,
            connected: &BTreeSet::new(),
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
    let none = BTreeSet::new();
    let ballot = |votes, is_complete| Ballot {
        votes,
        is_complete,
        keeps_reach: true,
        connected: &none,
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
    let none = BTreeSet::new();
    let ballot = |votes| Ballot {
        votes,
        is_complete: true,
        keeps_reach: true,
        connected: &none,
    };
    let mut judgement = Judgement::open(Duration::ZERO);
    let gateway = votes(&[("edge/gateway/a", Rejected)], 0);
    assert_eq!(
        judgement.step(&subject, &ballot(&gateway), MAX_WAIT),
        others(1)
    );

    // Another pod of the deciding account does not change the verdict.
    let grown = votes(
        &[("edge/gateway/a", Accepted), ("edge/gateway/b", Pending)],
        0,
    );
    assert_eq!(
        judgement.step(&subject, &ballot(&grown), MAX_WAIT),
        Verdict::Nothing
    );

    let with_stranger = votes(&[("edge/gateway/a", Accepted)], 1);
    assert_eq!(
        judgement
            .clone()
            .step(&subject, &ballot(&with_stranger), MAX_WAIT),
        Verdict::Release,
        "it has no identity, and may be honest"
    );
    let joined = votes(&[("edge/gateway/a", Accepted), ("shop/web/a", Pending)], 0);
    assert_eq!(
        judgement.step(&subject, &ballot(&joined), MAX_WAIT),
        Verdict::Release
    );
    judgement.reject(MAX_WAIT);
    assert!(!judgement.is_open(), "it is not judged again");
}

/// These workloads of `shop`.
fn workloads(pods: &[&str]) -> BTreeSet<NamespacedName> {
    pods.iter()
        .map(|pod| NamespacedName::new("shop", pod))
        .collect()
}

#[test]
fn a_verdict_of_the_own_namespace_is_judged_again_when_as_many_workloads_come_as_decided() {
    let subject = subject(Kind::VirtualService, "shop");
    let rejecting = votes(&[("shop/web/a", Rejected), ("shop/web/b", Rejected)], 0);
    let mut judgement = Judgement::open(Duration::ZERO);
    let step = |judgement: &mut Judgement, pods: &[&str], seconds| {
        let ballot = Ballot {
            votes: &rejecting,
            is_complete: true,
            keeps_reach: true,
            connected: &workloads(pods),
        };
        judgement.step(&subject, &ballot, Duration::from_secs(seconds))
    };

    // The job was connected, and is not a new workload.
    assert_eq!(step(&mut judgement, &["a", "b", "job"], 0), own(2, 2));
    let few = ["job", "c"];
    assert_eq!(step(&mut judgement, &few, 100), Verdict::Nothing);
    let many = ["job", "c", "d"];
    assert_eq!(step(&mut judgement, &many, 9), Verdict::Nothing);
    assert_eq!(step(&mut judgement, &many, 10), Verdict::JudgeAgain);
    assert!(judgement.is_kept());

    // All reject it again: it is judged again only after a longer time.
    judgement.reject(Duration::from_secs(11));
    assert_eq!(step(&mut judgement, &many, 11), own(2, 2));
    let more = ["job", "c", "d", "e", "f"];
    assert_eq!(step(&mut judgement, &more, 30), Verdict::Nothing);
    assert_eq!(step(&mut judgement, &more, 31), Verdict::JudgeAgain);
}

#[test]
fn workloads_that_reconnect_after_a_start_are_not_new() {
    let subject = subject(Kind::VirtualService, "shop");
    let mut judgement = Judgement::kept();
    judgement.follow_own(Jury {
        rejecting: 1,
        known: BTreeSet::new(),
        since: Duration::ZERO,
        known_until: Duration::from_secs(60),
    });
    let step = |judgement: &mut Judgement, pods: &[&str], seconds| {
        let ballot = Ballot {
            votes: &Votes::default(),
            is_complete: true,
            keeps_reach: true,
            connected: &workloads(pods),
        };
        judgement.step(&subject, &ballot, Duration::from_secs(seconds))
    };

    assert_eq!(step(&mut judgement, &["a", "b"], 59), Verdict::Nothing);
    assert_eq!(step(&mut judgement, &["a", "b"], 60), Verdict::Nothing);
    assert_eq!(step(&mut judgement, &["c"], 60), Verdict::JudgeAgain);
}

/// A compromised workload: the numbers of its namespace, account and pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Evil {
    namespace: u8,
    account: u8,
    pod: u8,
}

/// A random event of one workload, or a delay.
#[derive(Clone, Debug)]
enum Step {
    /// A compromised workload responds in any way; `None` if it disconnects.
    Evil(Evil, Option<Answer>),
    /// An honest workload connects without a response yet; acknowledges; or disconnects.
    Honest(u8, Option<bool>),
    /// Honest streams without identity.
    Strangers(u8),
    /// Milliseconds pass.
    Later(u16),
    /// Whether replicas have each other's responses.
    Complete(bool),
    /// The owner edits the object, so that the new version reaches the same proxies (`true`), or
    /// creates it or changes whom it reaches (`false`).
    Edit(bool),
}

fn evil() -> impl Strategy<Value = Evil> {
    (0..3_u8, 0..4_u8, 0..3_u8).prop_map(|(namespace, account, pod)| Evil {
        namespace,
        account,
        pod,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let answer = prop_oneof![
        4 => Just(Some(Rejected)),
        1 => Just(Some(Accepted)),
        1 => Just(Some(Unattributed)),
        1 => Just(Some(Pending)),
        1 => Just(None),
    ];
    prop_oneof![
        6 => (evil(), answer).prop_map(|(evil, answer)| Step::Evil(evil, answer)),
        3 => (0..6_u8, prop::option::of(any::<bool>()))
            .prop_map(|(who, answer)| Step::Honest(who, answer)),
        1 => (0..3_u8).prop_map(Step::Strangers),
        3 => (0..12_000_u16).prop_map(Step::Later),
        1 => any::<bool>().prop_map(Step::Complete),
        2 => any::<bool>().prop_map(Step::Edit),
    ]
}

/// The honest workloads: of the object's namespace, of others, and even of a compromised one.
const HONEST: [&str; 6] = [
    "shop/web/h0",
    "shop/db/h1",
    "bank/web/h2",
    "bank/web/h3",
    "evil0/good/h4",
    "evil0/a0/h5",
];

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::VirtualService),
        Just(Kind::DestinationRule),
        Just(Kind::EnvoyFilter),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn identities_of_other_namespaces_cannot_quarantine_an_object_for_honest_proxies(
        kind in kind(),
        of_root in any::<bool>(),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let subject = subject(kind, if of_root { "istio-system" } else { "shop" });
        let mut evil: BTreeMap<Evil, Answer> = BTreeMap::new();
        let mut honest: BTreeMap<u8, Answer> = BTreeMap::new();
        let mut strangers = 0;
        let mut is_complete = true;
        let mut now = Duration::ZERO;
        let mut judgement: Option<Judgement> = None;
        let mut is_served = true;
        let mut keeps_reach = true;

        for step in steps {
            match step {
                Step::Evil(workload, Some(answer)) => {
                    evil.insert(workload, answer);
                    // Every rejection by the compromised workload is attributed to the object.
                    if answer == Rejected {
                        judgement.get_or_insert_with(|| Judgement::open(now)).reject(now);
                    }
                }
                Step::Evil(workload, None) => _ = evil.remove(&workload),
                Step::Honest(who, Some(true)) => _ = honest.insert(who, Accepted),
                Step::Honest(who, Some(false)) => _ = honest.insert(who, Pending),
                Step::Honest(who, None) => _ = honest.remove(&who),
                Step::Strangers(count) => strangers = count,
                Step::Later(millis) => now += Duration::from_millis(u64::from(millis)),
                Step::Complete(complete) => is_complete = complete,
                Step::Edit(keeps) => {
                    keeps_reach = keeps;
                    judgement = None;
                    is_served = true;
                    honest.values_mut().for_each(|answer| *answer = Pending);
                    evil.values_mut().for_each(|answer| *answer = Pending);
                }
            }

            let mut counter = VoteCounter::default();
            for (workload, answer) in &evil {
                let Evil { namespace, account, pod } = workload;
                let name = format!("evil{namespace}/a{account}/p{pod}");
                counter.add(voter(&name), *answer);
            }
            // While the previous version is served, it shows only whom that reaches: the honest
            // proxies too, if the edit keeps the reach.
            if is_served || keeps_reach {
                for (who, answer) in &honest {
                    counter.add(voter(HONEST[usize::from(*who)]), *answer);
                }
                for _ in 0..strangers {
                    counter.add_stranger();
                }
            }

            let votes = counter.votes();
            let connected = honest.keys().map(|who| voter(HONEST[usize::from(*who)]).workload);
            let connected = connected.filter(|name| name.namespace == *"shop").collect();
            let ballot = Ballot { votes: &votes, is_complete, keeps_reach, connected: &connected };
            match judgement.as_mut().map(|judgement| judgement.step(&subject, &ballot, now)) {
                Some(Verdict::Quarantine(_)) => is_served = false,
                Some(Verdict::Release | Verdict::JudgeAgain) => is_served = true,
                Some(Verdict::Nothing | Verdict::Keep) | None => {}
            }

            // A workload of an account that decided unanimously is the compromised account itself.
            let others = judgement.as_ref().and_then(Judgement::others);
            let compromised = others.cloned().unwrap_or_default();
            let harmed = honest.keys().filter(|who| {
                !compromised.contains(&voter(HONEST[usize::from(**who)]).account)
            });
            let harmed = harmed.count() + usize::from(strangers);
            prop_assert!(is_served || harmed == 0, "{judgement:?} {votes:?}");
        }
    }
}

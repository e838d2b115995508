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
    };
    Judgement::open(Duration::ZERO).step(subject, &ballot, MAX_WAIT)
}

fn own(rejecting: usize, reached: usize) -> Verdict {
    Verdict::Quarantine(Grounds::OwnNamespace { rejecting, reached })
}

fn others(rejecting: usize, reached: usize) -> Verdict {
    Verdict::Quarantine(Grounds::OtherNamespaces { rejecting, reached })
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
fn other_namespaces_need_a_majority_of_all_that_is_reached() {
    let gateway = [("edge/gateway/a", Rejected), ("edge/gateway/b", Rejected)];
    assert_eq!(
        verdict(&gateway, 0),
        others(1, 1),
        "an account has one vote"
    );
    assert_eq!(
        verdict(&gateway, 1),
        Verdict::Keep,
        "a stream without identity has the resource"
    );

    let split = [("edge/gateway/a", Rejected), ("edge/gateway/b", Pending)];
    assert_eq!(verdict(&split, 0), Verdict::Keep);

    let mut two = vec![
        ("edge/gateway/a", Rejected),
        ("bank/web/a", Rejected),
        ("shop/web/a", Accepted),
    ];
    assert_eq!(verdict(&two, 0), others(2, 3));
    two.push(("toys/web/a", Accepted));
    assert_eq!(verdict(&two, 0), Verdict::Keep);

    // Many accounts of one namespace count as one namespace.
    let names: Vec<String> = (0..50).map(|n| format!("evil/a{n}/p")).collect();
    let mut many: Vec<(&str, Answer)> =
        names.iter().map(|name| (name.as_str(), Rejected)).collect();
    many.push(("shop/web/a", Pending));
    assert_eq!(verdict(&many, 0), Verdict::Keep);
}

#[test]
fn filters_of_the_root_namespace_are_judged_there_only() {
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
        assert_eq!(verdict_about(&of_shop, &elsewhere, 0), others(2, 2));
    }

    let rule = subject(Kind::DestinationRule, "istio-system");
    assert_eq!(verdict_about(&rule, &elsewhere, 0), others(2, 2));
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
    let ballot = |votes, is_complete| Ballot { votes, is_complete };
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
        others(1, 1)
    );
}

#[test]
fn a_verdict_of_other_namespaces_ends_when_the_object_reaches_another_workload() {
    let subject = subject(Kind::VirtualService, "shop");
    let ballot = |votes| Ballot {
        votes,
        is_complete: true,
    };
    let mut judgement = Judgement::open(Duration::ZERO);
    let gateway = votes(&[("edge/gateway/a", Rejected)], 0);
    assert_eq!(
        judgement.step(&subject, &ballot(&gateway), MAX_WAIT),
        others(1, 1)
    );

    // Another pod of the deciding account, and streams without identity, do not change the verdict.
    let grown = votes(
        &[("edge/gateway/a", Accepted), ("edge/gateway/b", Pending)],
        3,
    );
    assert_eq!(
        judgement.step(&subject, &ballot(&grown), MAX_WAIT),
        Verdict::Nothing
    );
    let joined = votes(&[("edge/gateway/a", Accepted), ("shop/web/a", Pending)], 0);
    assert_eq!(
        judgement.step(&subject, &ballot(&joined), MAX_WAIT),
        Verdict::Release
    );
    judgement.reject(MAX_WAIT);
    assert!(!judgement.is_open(), "it is not judged again");
}

/// A random event of one workload, or a delay.
#[derive(Clone, Debug)]
enum Step {
    /// A compromised workload responds in any way; `None` if it disconnects.
    Evil(u8, u8, Option<Answer>),
    /// An honest workload connects without a response yet; acknowledges; or disconnects.
    Honest(u8, Option<bool>),
    /// Streams without identity.
    Strangers(u8),
    /// Milliseconds pass.
    Later(u16),
    /// Whether replicas have each other's responses.
    Complete(bool),
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
        6 => (0..4_u8, 0..4_u8, answer)
            .prop_map(|(account, pod, answer)| Step::Evil(account, pod, answer)),
        3 => (0..6_u8, prop::option::of(any::<bool>()))
            .prop_map(|(who, answer)| Step::Honest(who, answer)),
        1 => (0..3_u8).prop_map(Step::Strangers),
        3 => (0..12_000_u16).prop_map(Step::Later),
        1 => any::<bool>().prop_map(Step::Complete),
    ]
}

/// The honest workloads: of the object's namespace, of others, and even of the compromised one.
const HONEST: [&str; 6] = [
    "shop/web/h0",
    "shop/db/h1",
    "bank/web/h2",
    "bank/web/h3",
    "evil/good/h4",
    "evil/a0/h5",
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
    fn identities_of_one_namespace_cannot_quarantine_objects_of_another_for_honest_proxies(
        kind in kind(),
        of_root in any::<bool>(),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let subject = subject(kind, if of_root { "istio-system" } else { "shop" });
        let mut evil: BTreeMap<(u8, u8), Answer> = BTreeMap::new();
        let mut honest: BTreeMap<u8, Answer> = BTreeMap::new();
        let mut strangers = 0;
        let mut is_complete = true;
        let mut now = Duration::ZERO;
        let mut judgement: Option<Judgement> = None;
        let mut is_served = true;

        for step in steps {
            match step {
                Step::Evil(account, pod, Some(answer)) => {
                    evil.insert((account, pod), answer);
                    // Every rejection by the compromised workload is attributed to the object.
                    if answer == Rejected {
                        judgement.get_or_insert_with(|| Judgement::open(now)).reject(now);
                    }
                }
                Step::Evil(account, pod, None) => _ = evil.remove(&(account, pod)),
                Step::Honest(who, Some(true)) => _ = honest.insert(who, Accepted),
                Step::Honest(who, Some(false)) => _ = honest.insert(who, Pending),
                Step::Honest(who, None) => _ = honest.remove(&who),
                Step::Strangers(count) => strangers = count,
                Step::Later(millis) => now += Duration::from_millis(u64::from(millis)),
                Step::Complete(complete) => is_complete = complete,
            }

            let mut counter = VoteCounter::default();
            for ((account, pod), answer) in &evil {
                counter.add(voter(&format!("evil/a{account}/p{pod}")), *answer);
            }
            for (who, answer) in &honest {
                counter.add(voter(HONEST[usize::from(*who)]), *answer);
            }
            for _ in 0..strangers {
                counter.add_stranger();
            }

            let votes = counter.votes();
            let ballot = Ballot { votes: &votes, is_complete };
            match judgement.as_mut().map(|judgement| judgement.step(&subject, &ballot, now)) {
                Some(Verdict::Quarantine(_)) => is_served = false,
                Some(Verdict::Release) => is_served = true,
                Some(Verdict::Nothing | Verdict::Keep) | None => {}
            }

            // A workload of an account that decided unanimously is the compromised account itself.
            let others = judgement.as_ref().and_then(Judgement::others);
            let compromised = others.cloned().unwrap_or_default();
            let harmed = honest.keys().filter(|who| {
                !compromised.contains(&voter(HONEST[usize::from(**who)]).account)
            });
            prop_assert!(is_served || harmed.count() == 0, "{judgement:?} {votes:?}");
        }
    }
}

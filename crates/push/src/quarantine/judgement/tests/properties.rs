//! Properties of judgements under any sequence of events.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::super::jury::MAX_ABSENCE;
use super::*;
use crate::engine::ProxyId;

/// A compromised workload: the numbers of its namespace, account and pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Evil {
    namespace: u8,
    account: u8,
    pod: u8,
}

impl Evil {
    /// The workload, or the one that has replaced it (`#2`).
    fn voter(&self, generation: &str) -> Voter {
        let Self {
            namespace,
            account,
            pod,
        } = self;
        voter(&format!("evil{namespace}/a{account}/p{pod}{generation}"))
    }
}

/// A random event of one workload, or a delay.
#[derive(Clone, Debug)]
enum Step {
    /// A compromised workload responds in any way; `None` if it disconnects.
    Evil(Evil, Option<Answer>),
    /// A compromised workload is replaced under its own name by an honest one.
    Replaced(Evil),
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
        1 => evil().prop_map(Step::Replaced),
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
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn identities_of_other_namespaces_cannot_quarantine_an_object_for_honest_proxies(
        kind in kind(),
        of_root in any::<bool>(),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let subject = subject(kind, if of_root { "istio-system" } else { "shop" });
        let mut evil: BTreeMap<Evil, Answer> = BTreeMap::new();
        let mut honest: BTreeMap<u8, Answer> = BTreeMap::new();
        let mut replaced: BTreeMap<Evil, Answer> = BTreeMap::new();
        let mut strangers = 0;
        let mut is_complete = true;
        let mut now = Duration::ZERO;
        let mut judgement: Option<Judgement> = None;
        let mut is_served = true;
        let mut keeps_reach = true;

        for step in steps {
            match step {
                Step::Evil(workload, Some(answer)) => {
                    replaced.remove(&workload);
                    evil.insert(workload, answer);
                    // Every rejection by the compromised workload is attributed to the object.
                    if answer == Rejected {
                        judgement.get_or_insert_with(|| Judgement::open(now)).reject(now);
                    }
                }
                Step::Evil(workload, None) => _ = evil.remove(&workload),
                Step::Replaced(workload) => {
                    evil.remove(&workload);
                    replaced.insert(workload, Pending);
                }
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
                    let all_honest = honest.values_mut().chain(replaced.values_mut());
                    all_honest.for_each(|answer| *answer = Pending);
                    evil.values_mut().for_each(|answer| *answer = Pending);
                }
            }

            let mut counter = VoteCounter::default();
            for (workload, answer) in &evil {
                counter.add(workload.voter(""), *answer);
            }
            // While the previous version is served, it shows only whom that reaches: the honest
            // proxies too, if the edit keeps the reach.
            if is_served || keeps_reach {
                for (who, answer) in &honest {
                    counter.add(voter(HONEST[usize::from(*who)]), *answer);
                }
                for (workload, answer) in &replaced {
                    counter.add(workload.voter("#2"), *answer);
                }
                for _ in 0..strangers {
                    counter.add_stranger();
                }
            }

            let votes = counter.votes();
            let connected = honest.keys().map(|who| voter(HONEST[usize::from(*who)]));
            let connected = connected.filter(|voter| voter.workload.namespace == *"shop");
            let connected = Connected {
                workloads: connected.map(|voter| Instance::of(&voter)).collect(),
                strangers: (0..u64::from(strangers)).map(ProxyId::of).collect(),
                voiceless: usize::from(strangers),
            };
            let ballot = Ballot {
                votes: &votes,
                is_complete,
                keeps_reach,
                connected: &connected,
                elsewhere: &NOWHERE,
            };
            match judgement.as_mut().map(|judgement| judgement.step(&subject, &ballot, now)) {
                Some(Verdict::Quarantine(_)) => is_served = false,
                Some(Verdict::Release | Verdict::JudgeAgain) => is_served = true,
                Some(Verdict::Nothing | Verdict::Keep) | None => {}
            }

            // An account that decided unanimously keeps it from its own honest workloads until it
            // may be judged again, and not longer.
            let rejudged = judgement.as_ref().map_or(0, Judgement::rejudged);
            let jury = judgement.as_ref().and_then(Judgement::jury);
            let waits = jury.filter(|jury| !jury.may_end(now, rejudged));
            let compromised = waits.and_then(|jury| jury.others.clone()).unwrap_or_default();
            let honest_voters = honest.keys().map(|who| voter(HONEST[usize::from(*who)]));
            let all = honest_voters.chain(replaced.keys().map(|workload| workload.voter("#2")));
            let harmed = all.filter(|voter| !compromised.contains(&voter.account)).count();
            let harmed = harmed + usize::from(strangers);
            prop_assert!(is_served || harmed == 0, "{judgement:?} {votes:?}");
        }
    }
}

/// What happens to the workloads of a namespace, all reached by an object of it.
#[derive(Clone, Debug)]
enum Move {
    /// A workload connects, and rejects the object (`true`) or accepts it.
    Come(u8, bool),
    /// It leaves.
    Leave(u8),
    /// It is replaced under its own name by one that accepts.
    Replace(u8),
    /// A Sidecar hides the object from it (`true`), or no longer.
    Hide(u8, bool),
    /// Seconds pass.
    Wait(u16),
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => (0..6_u8, any::<bool>()).prop_map(|(who, rejects)| Move::Come(who, rejects)),
        2 => (0..6_u8).prop_map(Move::Leave),
        2 => (0..6_u8).prop_map(Move::Replace),
        2 => (0..6_u8, any::<bool>()).prop_map(|(who, hides)| Move::Hide(who, hides)),
        3 => (0..60_u16).prop_map(Move::Wait),
    ]
}

/// A workload of the model.
#[derive(Clone, Copy, Debug)]
struct Pod {
    generation: u32,
    rejects: bool,
    is_hidden: bool,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_quarantine_lasts_no_longer_than_its_majority_and_ever_longer_otherwise(
        moves in prop::collection::vec(moves(), 1..80),
    ) {
        let subject = subject(Kind::VirtualService, "shop");
        let mut pods: BTreeMap<u8, Pod> = BTreeMap::new();
        let mut now = Duration::ZERO;
        let mut judgement = Judgement::kept();
        let mut begun: Option<Duration> = None;
        let mut shortest = Duration::from_secs(10);
        let mut absent_since: BTreeMap<Instance, Duration> = BTreeMap::new();

        for (generation, step) in (1..).zip(moves) {
            let new = |rejects| Pod { generation, rejects, is_hidden: false };
            match step {
                Move::Come(who, rejects) => _ = pods.entry(who).or_insert(new(rejects)),
                Move::Leave(who) => _ = pods.remove(&who),
                Move::Replace(who) => {
                    if let Some(pod) = pods.get_mut(&who) {
                        *pod = new(false);
                    }
                }
                Move::Hide(who, hides) => {
                    if let Some(pod) = pods.get_mut(&who) {
                        pod.is_hidden = hides;
                    }
                }
                Move::Wait(seconds) => now += Duration::from_secs(u64::from(seconds)),
            }

            // Whoever rejects it does so at once, while it is in force.
            let reached: Vec<(u8, Pod)> = pods
                .iter()
                .filter(|(_, pod)| !pod.is_hidden)
                .map(|(who, pod)| (*who, *pod))
                .collect();
            if begun.is_none() && reached.iter().any(|(_, pod)| pod.rejects) {
                judgement.reject(now);
            }

            let mut counter = VoteCounter::default();
            for (who, pod) in &reached {
                let answer = if pod.rejects { Rejected } else { Accepted };
                counter.add(voter(&format!("shop/web/p{who}#{}", pod.generation)), answer);
            }
            let votes = counter.votes();
            match judgement.step(&subject, &ballot(&votes), now) {
                Verdict::Quarantine(_) => {
                    begun = Some(now);
                    absent_since.clear();
                }
                Verdict::JudgeAgain => {
                    let lasted = begun.take().map(|begun| now - begun);
                    prop_assert!(lasted >= Some(shortest), "{lasted:?} {shortest:?}");
                    shortest = (2 * shortest).min(Duration::from_secs(640));
                }
                Verdict::Nothing | Verdict::Keep | Verdict::Release => {}
            }

            // Only the minimum duration keeps a quarantine without a majority, of which those are
            // that were there a moment ago.
            if let Some(jury) = judgement.jury() {
                let instance = |(who, pod): &(u8, Pod)| {
                    Instance::of(&voter(&format!("shop/web/p{who}#{}", pod.generation)))
                };
                let reached: BTreeSet<Instance> = reached.iter().map(instance).collect();
                let opponents = reached.difference(&jury.deciders).count();

                absent_since.retain(|decider, _| !reached.contains(decider));
                for absent in jury.deciders.difference(&reached) {
                    absent_since.entry(absent.clone()).or_insert(now);
                }
                let is_gone = |since: &&Duration| now - **since >= MAX_ABSENCE;
                let gone = absent_since.values().filter(is_gone).count();
                let left = jury.deciders.len() - gone;

                let is_majority = left > opponents || opponents == 0;
                let may_end = jury.may_end(now, judgement.rejudged());
                prop_assert!(is_majority || !may_end, "{judgement:?} {reached:?}");
            }
        }
    }
}

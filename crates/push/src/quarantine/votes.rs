//! The answers of proxies to an object, by identity.

use std::collections::BTreeMap;

use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use serde_json::{Value, json};

use super::instance::{Instance, Mark, find_key, instances_from_json, instances_to_json};

/// Maximum number of accounts in a report for other replicas: some 50 bytes each.
const MAX_ACCOUNTS: usize = 2_048;

/// A proxy with a verified identity, in a workload that is registered at its address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Voter {
    /// Namespace and name of its service account.
    pub account: NamespacedName,
    /// The pod, or the WorkloadEntry of a machine.
    pub workload: NamespacedName,
    /// What distinguishes it from an earlier workload of this name.
    pub mark: Mark,
}

/// The answer of a proxy to an object, from the one that speaks for it least to the one that speaks
/// for it most: if a workload has several streams, the highest of them counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// It rejects the configuration of the object.
    Rejected,
    /// It rejects something, which is not attributed to the object.
    Unattributed,
    /// It has not answered yet.
    Pending,
    /// It has acknowledged the object.
    Accepted,
}

/// The answers of the workloads of one account. A workload with streams at several replicas counts
/// at each of them: so these numbers tell which accounts there are, and whether all or some of their
/// workloads reject the object, but not how many do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountVotes {
    /// Workloads that the object reaches.
    pub reached: usize,
    /// Those that have acknowledged it.
    pub accepted: usize,
    /// Those that reject it.
    pub rejected: usize,
    /// Those that have not answered yet.
    pub pending: usize,
}

/// The workloads of a namespace, each of them once, whatever the number of its streams and of the
/// replicas that they are connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceVotes {
    /// Workloads that the object reaches.
    pub reached: usize,
    /// Those that reject it.
    pub rejected: usize,
}

/// The answers of all workloads that an object reaches, by account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Votes {
    accounts: BTreeMap<NamespacedName, AccountVotes>,
    /// The workloads, each with whether it rejects the object; not those at replicas that do not
    /// list theirs.
    workloads: BTreeMap<Instance, bool>,
    /// The number of workloads that replicas count and do not list, by namespace.
    unlisted: BTreeMap<Namespace, NamespaceVotes>,
    strangers: usize,
}

/// Collects the answers of streams.
#[derive(Clone, Debug, Default)]
pub struct VoteCounter {
    answers: BTreeMap<Voter, Answer>,
    strangers: usize,
}

impl Instance {
    /// The workload of a voter.
    #[must_use]
    pub fn of(voter: &Voter) -> Self {
        Self {
            workload: voter.workload.clone(),
            mark: voter.mark.clone(),
        }
    }
}

impl VoteCounter {
    /// Adds the answer of a stream.
    pub fn add(&mut self, voter: Voter, answer: Answer) {
        let known = self.answers.entry(voter).or_insert(answer);
        *known = answer.max(*known);
    }

    /// Adds a stream without a proved identity. Its answer does not count, but it is one of those
    /// that the object reaches.
    pub fn add_stranger(&mut self) {
        self.strangers += 1;
    }

    /// The votes that were counted.
    #[must_use]
    pub fn votes(&self) -> Votes {
        let mut accounts: BTreeMap<NamespacedName, AccountVotes> = BTreeMap::new();
        let mut workloads = BTreeMap::new();

        for (voter, answer) in &self.answers {
            workloads.insert(Instance::of(voter), *answer == Answer::Rejected);

            let votes = accounts.entry(voter.account.clone()).or_default();
            votes.reached += 1;

            match answer {
                Answer::Rejected => votes.rejected += 1,
                Answer::Pending => votes.pending += 1,
                Answer::Accepted => votes.accepted += 1,
                Answer::Unattributed => {}
            }
        }

        Votes {
            accounts,
            workloads,
            unlisted: BTreeMap::new(),
            strangers: self.strangers,
        }
    }
}

impl Votes {
    /// The accounts of the workloads that the object reaches, with their answers.
    #[must_use]
    pub fn accounts(&self) -> &BTreeMap<NamespacedName, AccountVotes> {
        &self.accounts
    }

    /// The workloads that the object reaches, each with whether it rejects the object.
    #[must_use]
    pub fn workloads(&self) -> &BTreeMap<Instance, bool> {
        &self.workloads
    }

    /// Whether every counted workload is listed: reports of earlier releases list none.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.unlisted.is_empty()
    }

    /// Streams without a proved identity that the object reaches.
    #[must_use]
    pub fn strangers(&self) -> usize {
        self.strangers
    }

    /// Adds the answers that another replica has received.
    pub fn add(&mut self, other: &Self) {
        for (account, votes) in &other.accounts {
            let sum = self.accounts.entry(account.clone()).or_default();
            sum.reached = sum.reached.saturating_add(votes.reached);
            sum.accepted = sum.accepted.saturating_add(votes.accepted);
            sum.rejected = sum.rejected.saturating_add(votes.rejected);
            sum.pending = sum.pending.saturating_add(votes.pending);
        }

        for (workload, rejects) in &other.workloads {
            let same = find_key(&self.workloads, workload).unwrap_or(workload);
            let same = same.clone();
            let known = self.workloads.entry(same).or_insert(*rejects);
            *known &= *rejects;
        }

        for (namespace, votes) in &other.unlisted {
            let sum = self.unlisted.entry(namespace.clone()).or_default();
            sum.reached = sum.reached.saturating_add(votes.reached);
            sum.rejected = sum.rejected.saturating_add(votes.rejected);
        }
        self.strangers = self.strangers.saturating_add(other.strangers);
    }

    /// The workloads of a namespace. One that is not listed may be one that another replica lists:
    /// it counts against the majority of those that reject the object, and never for it.
    #[must_use]
    pub fn of_namespace(&self, namespace: &Namespace) -> NamespaceVotes {
        let mut sum = NamespaceVotes::default();
        for (workload, rejects) in &self.workloads {
            if workload.workload.namespace == *namespace {
                sum.reached += 1;
                sum.rejected += usize::from(*rejects);
            }
        }

        if let Some(unlisted) = self.unlisted.get(namespace) {
            let others = unlisted.reached.saturating_sub(unlisted.rejected);
            sum.reached = sum.reached.saturating_add(others);
        }
        sum
    }

    /// Whether a workload with a proved identity has not answered yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.accounts.values().any(|votes| votes.pending > 0)
    }

    /// As JSON, for other replicas: counts by `namespace/account`, and the workloads. If there are
    /// too many, those of one namespace are written first, and that others are missing.
    #[must_use]
    pub fn to_json(&self, namespace: &Namespace) -> Value {
        let has_too_many = self.accounts.len() > MAX_ACCOUNTS;
        let accounts: BTreeMap<String, [usize; 4]> = self
            .accounts
            .iter()
            .filter(|(account, _)| !has_too_many || account.namespace == *namespace)
            .take(MAX_ACCOUNTS)
            .map(|(account, votes)| {
                let counts = [votes.reached, votes.accepted, votes.rejected, votes.pending];
                (account.to_string(), counts)
            })
            .collect();

        let is_own = |instance: &Instance| instance.workload.namespace == *namespace;
        let own = self
            .workloads
            .iter()
            .filter(|(workload, _)| is_own(workload));
        let others = self
            .workloads
            .iter()
            .filter(|(workload, _)| !is_own(workload));
        let listed = instances_to_json(own.chain(others));

        json!({
            "accounts": accounts,
            "workloads": listed.json,
            "strangers": self.strangers,
            "isPartial": has_too_many || listed.is_partial,
        })
    }

    /// The votes of another replica, and whether they are all; `None` if they are not valid.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<ReportedVotes> {
        let count = |value: &Value| usize::try_from(value.as_u64()?).ok();
        let listed = value.get("accounts")?.as_object()?;
        if listed.len() > MAX_ACCOUNTS {
            return None;
        }

        let mut accounts = BTreeMap::new();
        for (account, counts) in listed {
            let (namespace, name) = account.split_once('/')?;
            let [reached, accepted, rejected, pending] = counts.as_array()?.as_slice() else {
                return None;
            };
            let votes = AccountVotes {
                reached: count(reached)?,
                accepted: count(accepted)?,
                rejected: count(rejected)?,
                pending: count(pending)?,
            };
            accounts.insert(NamespacedName::new(namespace, name), votes);
        }

        let workloads = match value.get("workloads") {
            Some(listed) => instances_from_json(listed)?,
            None => BTreeMap::new(),
        };

        Some(ReportedVotes {
            votes: Self {
                unlisted: unlisted(&accounts, &workloads),
                accounts,
                workloads,
                strangers: count(value.get("strangers")?)?,
            },
            is_partial: value.get("isPartial")?.as_bool()?,
        })
    }
}

/// The workloads that are counted and not listed, by namespace: that of an account is that of its
/// workloads.
fn unlisted(
    accounts: &BTreeMap<NamespacedName, AccountVotes>,
    workloads: &BTreeMap<Instance, bool>,
) -> BTreeMap<Namespace, NamespaceVotes> {
    let mut unlisted: BTreeMap<Namespace, NamespaceVotes> = BTreeMap::new();
    for (account, votes) in accounts {
        let sum = unlisted.entry(account.namespace.clone()).or_default();
        sum.reached = sum.reached.saturating_add(votes.reached);
        sum.rejected = sum.rejected.saturating_add(votes.rejected);
    }

    for (workload, rejects) in workloads {
        if let Some(sum) = unlisted.get_mut(&workload.workload.namespace) {
            sum.reached = sum.reached.saturating_sub(1);
            sum.rejected = sum.rejected.saturating_sub(usize::from(*rejects));
        }
    }

    unlisted.retain(|_, votes| votes.reached > 0);
    unlisted
}

/// The votes of another replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedVotes {
    /// The answers of its proxies.
    pub votes: Votes,
    /// Whether accounts or workloads are missing, because there are too many.
    pub is_partial: bool,
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::engine::ProxyId;

    fn voter(namespace: &str, account: &str, pod: &str) -> Voter {
        Voter {
            account: NamespacedName::new(namespace, account),
            workload: NamespacedName::new(namespace, pod),
            mark: Mark::Unknown,
        }
    }

    /// Workloads of the namespace that reject the object, and those that it reaches.
    fn of_shop(votes: &Votes) -> (usize, usize) {
        let sum = votes.of_namespace(&Namespace::new("shop"));
        (sum.rejected, sum.reached)
    }

    #[test]
    fn a_workload_with_several_streams_counts_once() {
        let mut counter = VoteCounter::default();
        for answer in [Answer::Rejected, Answer::Accepted, Answer::Rejected] {
            counter.add(voter("shop", "web", "web-1"), answer);
        }
        counter.add(voter("shop", "web", "web-2"), Answer::Rejected);
        counter.add(voter("shop", "web", "web-2"), Answer::Rejected);
        counter.add(voter("shop", "web", "web-3"), Answer::Unattributed);
        counter.add_stranger();

        let votes = counter.votes();
        let web = AccountVotes {
            reached: 3,
            accepted: 1,
            rejected: 1,
            pending: 0,
        };
        let accounts = [(NamespacedName::new("shop", "web"), web)];
        assert_eq!(*votes.accounts(), BTreeMap::from(accounts));
        assert_eq!(of_shop(&votes), (1, 3));
        assert_eq!((votes.strangers(), votes.is_pending()), (1, false));
        let reported = Votes::from_json(&votes.to_json(&Namespace::new("shop")));
        let expected = ReportedVotes {
            votes,
            is_partial: false,
        };
        assert_eq!(reported, Some(expected));
    }

    /// The answers of workloads at one replica.
    fn votes(answers: &[(&str, Mark, Answer)]) -> Votes {
        let mut counter = VoteCounter::default();
        for (pod, mark, answer) in answers {
            let voter = Voter {
                mark: mark.clone(),
                ..voter("shop", "web", pod)
            };
            counter.add(voter, *answer);
        }
        counter.votes()
    }

    /// The answers at this replica, and those that others have reported.
    fn sum(own: &[(&str, Mark, Answer)], others: &[&[(&str, Mark, Answer)]]) -> Votes {
        let mut sum = votes(own);
        for other in others {
            let report = votes(other).to_json(&Namespace::new("shop"));
            sum.add(&Votes::from_json(&report).unwrap().votes);
        }
        sum
    }

    #[test]
    fn a_workload_with_streams_at_several_replicas_counts_once() {
        use Answer::{Accepted, Rejected};
        let uid = |text: &str| Mark::Uid(text.into());
        let stream = |id: u64| Mark::Stream(ProxyId::of(id));

        // By its UID; without one, by its name.
        for (own, elsewhere) in [(uid("a"), uid("a")), (stream(7), stream(9))] {
            let bad = ("web-1", own, Rejected);
            let same = ("web-1", elsewhere, Rejected);
            let good = ("web-2", uid("b"), Accepted);
            let all = sum(
                &[bad, good],
                &[slice::from_ref(&same), slice::from_ref(&same)],
            );
            assert_eq!(of_shop(&all), (1, 2));
            assert!(all.is_listed());
        }

        // One that has replaced it under its name is another one.
        let old = ("web-1", uid("a"), Rejected);
        let new = ("web-1", uid("c"), Accepted);
        assert_eq!(of_shop(&sum(&[old], &[&[new]])), (1, 2));
    }

    #[test]
    fn a_workload_that_rejects_at_one_replica_and_accepts_at_another_does_not_reject() {
        use Answer::{Accepted, Pending, Rejected};
        let at_one = [
            ("web-1", Mark::Unknown, Rejected),
            ("web-2", Mark::Unknown, Rejected),
        ];
        let at_another = [
            ("web-2", Mark::Unknown, Accepted),
            ("web-3", Mark::Unknown, Pending),
        ];
        let sum = sum(&at_one, &[&at_another]);

        let rejecting = sum.workloads().iter().filter(|(_, rejects)| **rejects);
        let names: Vec<String> = rejecting
            .map(|(workload, _)| workload.to_string())
            .collect();
        assert_eq!(names, ["shop/web-1"]);
        assert_eq!(of_shop(&sum), (1, 3));
    }

    #[test]
    fn workloads_that_are_not_listed_do_not_add_to_a_majority() {
        let own = [("web-1", Mark::Unknown, Answer::Rejected)];
        let mut sum = votes(&own);
        let counts = json!({ "shop/web": [5, 2, 3, 0] });
        let listed = json!({ "shop/web-2": true, "shop/web-3": false });
        let report = json!({
            "accounts": counts, "workloads": listed, "strangers": 0, "isPartial": true,
        });
        sum.add(&Votes::from_json(&report).unwrap().votes);

        // Three more: one that accepts it, and two that may be any of the listed ones.
        assert_eq!(of_shop(&sum), (2, 4));
        assert!(!sum.is_listed());
    }

    #[test]
    fn reports_without_workloads_are_read() {
        let accounts = json!({ "shop/web": [2, 0, 2, 0] });
        let report = json!({ "accounts": accounts, "strangers": 0, "isPartial": false });
        let reported = Votes::from_json(&report).unwrap();
        assert!(!reported.is_partial && !reported.votes.is_listed());
        assert!(reported.votes.workloads().is_empty());
        assert_eq!(of_shop(&reported.votes), (0, 0));
    }

    #[test]
    fn reports_of_many_accounts_hold_those_of_the_namespace() {
        let mut counter = VoteCounter::default();
        for number in 0..=MAX_ACCOUNTS {
            let account = format!("a{number}");
            counter.add(voter("other", &account, &account), Answer::Accepted);
        }
        counter.add(voter("shop", "web", "web-1"), Answer::Rejected);

        let report = counter.votes().to_json(&Namespace::new("shop"));
        let reported = Votes::from_json(&report).unwrap();
        assert!(reported.is_partial);
        assert_eq!(reported.votes.accounts().len(), 1);
    }
}

//! The answers of proxies to an object, by identity.

use std::collections::BTreeMap;

use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use serde_json::{Value, json};

use super::instance::{Instance, Mark, instances_from_json, instances_to_json};

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

/// The answers of the workloads of one account.
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

/// The answers of all workloads that an object reaches, by account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Votes {
    accounts: BTreeMap<NamespacedName, AccountVotes>,
    /// The workloads, each with whether it rejects the object; not those at replicas that do not
    /// list theirs.
    workloads: BTreeMap<Instance, bool>,
    strangers: usize,
}

/// Collects the answers of streams.
#[derive(Clone, Debug, Default)]
pub struct VoteCounter {
    answers: BTreeMap<Voter, Answer>,
    strangers: usize,
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

    /// The sums.
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
        let counted: usize = self.accounts.values().map(|votes| votes.reached).sum();
        counted <= self.workloads.len()
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
            let known = self.workloads.entry(workload.clone()).or_insert(*rejects);
            *known &= *rejects;
        }
        self.strangers = self.strangers.saturating_add(other.strangers);
    }

    /// The sum over the accounts of a namespace.
    #[must_use]
    pub fn of_namespace(&self, namespace: &Namespace) -> AccountVotes {
        let mut sum = AccountVotes::default();
        let accounts = self
            .accounts
            .iter()
            .filter(|(account, _)| account.namespace == *namespace);
        for (_, votes) in accounts {
            sum.reached += votes.reached;
            sum.accepted += votes.accepted;
            sum.rejected += votes.rejected;
            sum.pending += votes.pending;
        }
        sum
    }

    /// Whether a workload with a proved identity has not answered yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.accounts.values().any(|votes| votes.pending > 0)
    }

    /// Whether a workload rejects the object.
    #[must_use]
    pub fn has_rejections(&self) -> bool {
        self.accounts.values().any(|votes| votes.rejected > 0)
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
        let own = self.workloads.iter().filter(|(one, _)| is_own(one));
        let others = self.workloads.iter().filter(|(one, _)| !is_own(one));
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
                accounts,
                workloads,
                strangers: count(value.get("strangers")?)?,
            },
            is_partial: value.get("isPartial")?.as_bool()?,
        })
    }
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
    use super::*;

    fn voter(namespace: &str, account: &str, pod: &str) -> Voter {
        Voter {
            account: NamespacedName::new(namespace, account),
            workload: NamespacedName::new(namespace, pod),
            mark: Mark::Unknown,
        }
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
        assert_eq!(votes.of_namespace(&Namespace::new("shop")), web);
        assert_eq!((votes.strangers(), votes.is_pending()), (1, false));
        let reported = Votes::from_json(&votes.to_json(&Namespace::new("shop")));
        let expected = ReportedVotes {
            votes,
            is_partial: false,
        };
        assert_eq!(reported, Some(expected));
    }

    #[test]
    fn a_workload_that_rejects_at_one_replica_and_accepts_at_another_does_not_reject() {
        let votes = |answers: [(&str, Answer); 2]| {
            let mut counter = VoteCounter::default();
            for (pod, answer) in answers {
                counter.add(voter("shop", "web", pod), answer);
            }
            counter.votes()
        };
        let mut sum = votes([("web-1", Answer::Rejected), ("web-2", Answer::Rejected)]);
        sum.add(&votes([
            ("web-2", Answer::Accepted),
            ("web-3", Answer::Pending),
        ]));

        let rejecting = sum.workloads().iter().filter(|(_, rejects)| **rejects);
        let names: Vec<String> = rejecting.map(|(one, _)| one.to_string()).collect();
        assert_eq!(names, ["shop/web-1"]);
        assert_eq!(sum.workloads().len(), 3);
    }

    #[test]
    fn reports_without_workloads_are_read() {
        let accounts = json!({ "shop/web": [2, 0, 2, 0] });
        let report = json!({ "accounts": accounts, "strangers": 0, "isPartial": false });
        let reported = Votes::from_json(&report).unwrap();
        assert!(!reported.is_partial && !reported.votes.is_listed());
        assert!(reported.votes.workloads().is_empty());
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

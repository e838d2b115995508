//! Removed policies stay in force for a moment, as they may come again.
//!
//! Tools that delete a policy and create it again, such as `kubectl replace --force`, leave the time
//! between the two without it: proxies would admit what it forbids, and ztunnel would keep those
//! connections, because it asks the policies that a workload had when a connection was opened. If
//! the policy is there again in time, its removal is forgotten. istiod delays all changes until none
//! has come for 100 ms.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::mesh_state::Change;
use navarch_api::object::{Kind, ObjectRef};

/// How long a removed policy stays in force: longer than Istio's and Kubernetes' command lines take
/// between deleting and creating an object.
pub(super) const REMOVAL_DELAY: Duration = Duration::from_millis(500);

/// Policies that are removed unless they are there again in time.
#[derive(Debug, Default)]
pub(super) struct RemovedPolicies {
    /// When each of them is removed.
    due: BTreeMap<ObjectRef, Instant>,
    /// All of them, and those that are there again, in the order of time.
    queue: VecDeque<Removal>,
}

/// The removal of a policy.
#[derive(Debug)]
struct Removal {
    at: Instant,
    policy: ObjectRef,
}

impl RemovedPolicies {
    /// Takes the removals of policies out of the changes, and forgets those of policies that the
    /// changes put.
    pub(super) fn delay(&mut self, changes: &mut Vec<Change>, now: Instant) {
        if self.due.is_empty() && !changes.iter().any(is_removal) {
            return;
        }

        changes.retain(|change| {
            if let Change::Put(object) = change {
                self.due.remove(&object.object_ref());
            }
            if let Change::Removed(policy) = change
                && is_policy(policy.kind)
            {
                self.add(policy, now + REMOVAL_DELAY);
                return false;
            }
            true
        });
    }

    /// The time of the next removal.
    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.front().map(|removal| removal.at)
    }

    /// Takes the removals that are due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Change> {
        let mut due = Vec::new();

        while let Some(removal) = self.queue.pop_front_if(|removal| removal.at <= now) {
            if self.due.get(&removal.policy) == Some(&removal.at) {
                self.due.remove(&removal.policy);
                due.push(Change::Removed(removal.policy));
            }
        }

        due
    }

    fn add(&mut self, policy: &ObjectRef, at: Instant) {
        self.due.insert(policy.clone(), at);
        self.queue.push_back(Removal {
            at,
            policy: policy.clone(),
        });
    }
}

fn is_removal(change: &Change) -> bool {
    matches!(change, Change::Removed(name) if is_policy(name.kind))
}

/// Whether objects of a kind restrict who may connect.
fn is_policy(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::AuthorizationPolicy | Kind::PeerAuthentication | Kind::RequestAuthentication
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::object::NamespacedName;

    fn named(kind: Kind, name: &str) -> ObjectRef {
        let name = NamespacedName::new("shop", name);
        ObjectRef { kind, name }
    }

    fn names(changes: &[Change]) -> Vec<String> {
        changes.iter().map(|change| format!("{change:?}")).collect()
    }

    #[test]
    fn a_policy_is_removed_after_the_delay_and_others_at_once() {
        let start = Instant::now();
        let policy = Change::Removed(named(Kind::AuthorizationPolicy, "only-web"));
        let service = Change::Removed(named(Kind::Service, "web"));
        let mut removed = RemovedPolicies::default();

        let mut changes = vec![policy.clone(), service.clone()];
        removed.delay(&mut changes, start);
        assert_eq!(names(&changes), names(&[service]));

        let due = start + REMOVAL_DELAY;
        assert_eq!(removed.next(), Some(due));
        assert!(removed.take_due(due - Duration::from_millis(1)).is_empty());
        assert_eq!(names(&removed.take_due(due)), names(&[policy]));
        assert_eq!(removed.next(), None);
    }

    #[test]
    fn a_second_removal_has_a_delay_of_its_own() {
        let start = Instant::now();
        let name = named(Kind::PeerAuthentication, "strict");
        let mut removed = RemovedPolicies::default();

        removed.delay(&mut vec![Change::Removed(name.clone())], start);
        let later = start + REMOVAL_DELAY / 2;
        removed.delay(&mut vec![Change::Removed(name.clone())], later);

        assert!(removed.take_due(start + REMOVAL_DELAY).is_empty());
        let due = removed.take_due(later + REMOVAL_DELAY);
        assert_eq!(names(&due), names(&[Change::Removed(name)]));
    }
}

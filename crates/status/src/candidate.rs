//! Decides which candidate may hold a lock, and when another may take it over.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::lock_object::Record;

/// Prefix of the revision of a control plane in another cluster.
const REMOTE: char = '^';

/// A candidate of the leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its unique name: the name of the pod.
    pub identity: String,
    /// Its revision; `default` if none is set.
    pub revision: String,
    /// The location of the control plane.
    pub location: Location,
}

/// Where a control plane runs, relative to the cluster with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the cluster with the lock.
    Local,
    /// In another cluster.
    Remote,
}

/// The scope of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All control planes; the default revision has priority, and local ones over remote ones.
    Mesh,
    /// The control planes of one revision, without priorities.
    Revision,
}

/// The action of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockAction {
    Renew,
    /// Take it over.
    Take,
    /// Leave it to its holder and wait.
    Wait,
}

impl Candidate {
    /// The candidate's priority as written in a lock; empty without priorities.
    fn key(&self, scope: Scope) -> String {
        match (scope, self.location) {
            (Scope::Revision, _) => String::new(),
            (Scope::Mesh, Location::Local) => self.revision.clone(),
            (Scope::Mesh, Location::Remote) => format!("{REMOTE}{}", self.revision),
        }
    }

    /// Whether the candidate has priority over a holder with this key.
    fn precedes(&self, holder: &str, default_revision: &str) -> bool {
        let (revision, location) = match holder.strip_prefix(REMOTE) {
            Some(revision) => (revision, Location::Remote),
            None => (holder, Location::Local),
        };
        if self.revision != revision {
            return !default_revision.is_empty() && self.revision == default_revision;
        }
        self.location == Location::Local && location == Location::Remote
    }

    /// The action for a lock that was unchanged for `unchanged`. Only this candidate's clock is
    /// used, as others may be wrong.
    pub(super) fn step(
        &self,
        scope: Scope,
        record: &Record,
        unchanged: Duration,
        ttl: Duration,
        default_revision: &str,
    ) -> LockAction {
        let precedes =
            || scope == Scope::Mesh && self.precedes(&record.holder_key, default_revision);
        if record.holder_identity == self.identity {
            LockAction::Renew
        } else if record.holder_identity.is_empty() || unchanged >= ttl || precedes() {
            LockAction::Take
        } else {
            LockAction::Wait
        }
    }

    /// The record of a lock that the candidate holds from now on; `before` is the previous record,
    /// if any.
    pub(super) fn hold(
        &self,
        scope: Scope,
        before: Option<&Record>,
        ttl: Duration,
        now: Timestamp,
    ) -> Record {
        let own = before.filter(|before| before.holder_identity == self.identity);
        Record {
            holder_identity: self.identity.clone(),
            holder_key: self.key(scope),
            lease_duration_seconds: i32::try_from(ttl.as_secs()).unwrap_or(i32::MAX).max(1),
            acquire_time: own.map_or(Some(Time(now)), |own| own.acquire_time.clone()),
            renew_time: Some(Time(now)),
            // The first holder is not a transition.
            leader_transitions: before.map_or(0, |before| {
                before
                    .leader_transitions
                    .saturating_add(i32::from(own.is_none()))
            }),
        }
    }
}

/// The record of a released lock.
pub(super) fn released(before: &Record, now: Timestamp) -> Record {
    Record {
        lease_duration_seconds: 1,
        acquire_time: Some(Time(now)),
        renew_time: Some(Time(now)),
        leader_transitions: before.leader_transitions,
        ..Record::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn candidate(identity: &str, revision: &str, location: Location) -> Candidate {
        Candidate {
            identity: identity.to_owned(),
            revision: revision.to_owned(),
            location,
        }
    }

    fn held_by(holder: &Candidate, scope: Scope) -> Record {
        holder.hold(scope, None, TTL, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_default_revision_and_then_the_local_one_go_first() {
        let local = |revision| candidate("a", revision, Location::Local);
        let remote = |revision| candidate("a", revision, Location::Remote);
        let other = |revision| candidate("b", revision, Location::Local);
        let far = |revision| candidate("b", revision, Location::Remote);

        for (who, holder, default_revision, step) in [
            (local("blue"), other("green"), "blue", LockAction::Take),
            (remote("blue"), other("green"), "blue", LockAction::Take),
            (local("blue"), other("green"), "green", LockAction::Wait),
            (local("blue"), other("green"), "", LockAction::Wait),
            (local("blue"), other("blue"), "blue", LockAction::Wait),
            (local("blue"), far("blue"), "", LockAction::Take),
            (remote("blue"), other("blue"), "", LockAction::Wait),
            (local("blue"), far("green"), "", LockAction::Wait),
        ] {
            let record = held_by(&holder, Scope::Mesh);
            let found = who.step(Scope::Mesh, &record, Duration::ZERO, TTL, default_revision);
            assert_eq!(found, step, "{who:?} {holder:?} {default_revision}");
        }

        let record = held_by(&other("green"), Scope::Revision);
        assert_eq!(
            local("blue").step(Scope::Revision, &record, Duration::ZERO, TTL, "blue"),
            LockAction::Wait
        );
    }

    #[test]
    fn a_free_or_expired_lock_is_acquired() {
        let a = candidate("a", "default", Location::Local);
        let b = candidate("b", "default", Location::Local);
        let record = held_by(&a, Scope::Mesh);
        assert_eq!(record.leader_transitions, 0);
        let step = |who: &Candidate, record: &Record, unchanged| {
            who.step(Scope::Mesh, record, unchanged, TTL, "")
        };
        assert_eq!(step(&a, &record, Duration::ZERO), LockAction::Renew);

        assert_eq!(
            step(&b, &record, TTL - Duration::from_secs(1)),
            LockAction::Wait
        );
        assert_eq!(step(&b, &record, TTL), LockAction::Take);
        let record = released(&record, Timestamp::UNIX_EPOCH);
        assert_eq!(step(&b, &record, Duration::ZERO), LockAction::Take);
        let taken = b.hold(Scope::Mesh, Some(&record), TTL, Timestamp::UNIX_EPOCH);

        assert_eq!(
            (taken.holder_identity.as_str(), taken.leader_transitions),
            ("b", 1)
        );
        let later = Timestamp::from_second(30).unwrap();
        let renewed = b.hold(Scope::Mesh, Some(&taken), TTL, later);
        assert_eq!(
            (renewed.acquire_time, renewed.leader_transitions),
            (taken.acquire_time, 1)
        );

        assert_eq!(renewed.renew_time, Some(Time(later)));
    }
}

//! Who holds a Lease, and whether another may take it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// Where a Lease says which revision its holder is of.
const HOLDER_KEY: &str = "leader.istio.io/holder-key";
/// Stands before the revision of a control plane that lives in another cluster.
const REMOTE: char = '^';

/// A control plane that stands for election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name, one of its kind: the pod's.
    pub identity: String,
    /// Its revision; `default` where none is set.
    pub revision: String,
    /// Where it lives.
    pub location: Location,
}

/// Where a control plane lives, as seen from the cluster with the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In that cluster.
    Local,
    /// In another.
    Remote,
}

/// Among whom there is one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All control planes; the default revision goes before the others, a local one before a remote one.
    Mesh,
    /// Those of one revision; none goes before another.
    Revision,
}

/// What a candidate may do about a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Hold on to it.
    Renew,
    /// Take it from whoever holds it.
    Take,
    /// Leave it to its holder.
    Wait,
}

impl Candidate {
    /// How the candidate's standing is written in a Lease; empty where nobody goes before another.
    fn key(&self, scope: Scope) -> String {
        match (scope, self.location) {
            (Scope::Revision, _) => String::new(),
            (Scope::Mesh, Location::Local) => self.revision.clone(),
            (Scope::Mesh, Location::Remote) => format!("{REMOTE}{}", self.revision),
        }
    }

    /// Whether the candidate goes before a holder with this key.
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

    /// What to do about a Lease that has been as it is for `unchanged`. Only one's own clock counts: those of others may
    /// be wrong.
    pub(super) fn step(
        &self,
        scope: Scope,
        lease: &Lease,
        unchanged: Duration,
        ttl: Duration,
        default_revision: &str,
    ) -> Step {
        let holder = holder(lease);
        let key = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(HOLDER_KEY));
        let precedes = || scope == Scope::Mesh && self.precedes(key.map_or("", String::as_str), default_revision);
        if holder == self.identity {
            Step::Renew
        } else if holder.is_empty() || unchanged >= ttl || precedes() {
            Step::Take
        } else {
            Step::Wait
        }
    }

    /// Writes the candidate into a Lease as its holder from now on.
    pub(super) fn hold(&self, scope: Scope, lease: &mut Lease, ttl: Duration, now: Timestamp) {
        let new = holder(lease) != self.identity;
        let is_there = lease.metadata.resource_version.is_some();
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if new {
            spec.acquire_time = Some(MicroTime(now));
            // The first holder took it from nobody.
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + i32::from(is_there));
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = Some(i32::try_from(ttl.as_secs()).unwrap_or(i32::MAX).max(1));
        spec.renew_time = Some(MicroTime(now));
        let annotations = lease.metadata.annotations.get_or_insert_default();
        match self.key(scope) {
            key if key.is_empty() => annotations.remove(HOLDER_KEY),
            key => annotations.insert(HOLDER_KEY.to_owned(), key),
        };
    }
}

/// Who holds the Lease; empty is nobody.
pub(super) fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Writes into a Lease that nobody holds it.
pub(super) fn release(lease: &mut Lease, now: Timestamp) {
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(MicroTime(now));
    spec.renew_time = Some(MicroTime(now));
    if let Some(annotations) = &mut lease.metadata.annotations {
        annotations.remove(HOLDER_KEY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn candidate(identity: &str, revision: &str, location: Location) -> Candidate {
        Candidate { identity: identity.to_owned(), revision: revision.to_owned(), location }
    }

    fn held_by(holder: &Candidate, scope: Scope) -> Lease {
        let mut lease = Lease::default();
        holder.hold(scope, &mut lease, TTL, Timestamp::UNIX_EPOCH);
        lease
    }

    #[test]
    fn the_default_revision_and_then_the_local_one_go_first() {
        let local = |revision| candidate("a", revision, Location::Local);
        let remote = |revision| candidate("a", revision, Location::Remote);
        let other = |revision| candidate("b", revision, Location::Local);
        let far = |revision| candidate("b", revision, Location::Remote);
        for (who, holder, default_revision, step) in [
            (local("blue"), other("green"), "blue", Step::Take),
            (remote("blue"), other("green"), "blue", Step::Take),
            (local("blue"), other("green"), "green", Step::Wait),
            (local("blue"), other("green"), "", Step::Wait),
            (local("blue"), other("blue"), "blue", Step::Wait),
            (local("blue"), far("blue"), "", Step::Take),
            (remote("blue"), other("blue"), "", Step::Wait),
            (local("blue"), far("green"), "", Step::Wait),
        ] {
            let lease = held_by(&holder, Scope::Mesh);
            let found = who.step(Scope::Mesh, &lease, Duration::ZERO, TTL, default_revision);
            assert_eq!(found, step, "{who:?} {holder:?} {default_revision}");
        }
        let lease = held_by(&other("green"), Scope::Revision);
        assert_eq!(local("blue").step(Scope::Revision, &lease, Duration::ZERO, TTL, "blue"), Step::Wait);
    }

    #[test]
    fn a_lease_that_is_free_or_old_is_taken() {
        let (a, b) = (candidate("a", "default", Location::Local), candidate("b", "default", Location::Local));
        let mut lease = held_by(&a, Scope::Mesh);
        lease.metadata.resource_version = Some("1".to_owned());
        let step = |who: &Candidate, lease: &Lease, unchanged| who.step(Scope::Mesh, lease, unchanged, TTL, "");
        assert_eq!(step(&a, &lease, Duration::ZERO), Step::Renew);
        assert_eq!(step(&b, &lease, TTL - Duration::from_secs(1)), Step::Wait);
        assert_eq!(step(&b, &lease, TTL), Step::Take);
        release(&mut lease, Timestamp::UNIX_EPOCH);
        assert_eq!(step(&b, &lease, Duration::ZERO), Step::Take);
        b.hold(Scope::Mesh, &mut lease, TTL, Timestamp::UNIX_EPOCH);
        assert_eq!((holder(&lease), lease.spec.as_ref().unwrap().lease_transitions), ("b", Some(1)));
        b.hold(Scope::Mesh, &mut lease, TTL, Timestamp::UNIX_EPOCH);
        assert_eq!(lease.spec.as_ref().unwrap().lease_transitions, Some(1));
    }
}

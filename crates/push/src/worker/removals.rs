//! Removed objects stay in force for a moment, as they may come again.
//!
//! Tools that delete an object and create it again, such as `kubectl replace --force`, leave the
//! time between the two without it. Requests would fail without their Service or their route;
//! without a policy proxies would admit what it forbids, and ztunnel would keep those connections,
//! because it asks the policies that a workload had when a connection was opened. If the object is
//! there again in time, its removal is forgotten: the two are one edit. istiod delays all changes
//! until none has come for 100 ms.
//!
//! Removals that must take effect at once are not delayed: see [`is_delayed`].

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::mesh_state::Change;
use navarch_api::object::{Kind, ObjectRef};

/// How long a removed object stays in force: longer than Istio's and Kubernetes' command lines take
/// between deleting and creating an object.
pub(super) const REMOVAL_DELAY: Duration = Duration::from_millis(500);

/// Objects that are removed unless they are there again in time.
#[derive(Debug, Default)]
pub(super) struct Removals {
    /// When each of them is removed.
    due: BTreeMap<ObjectRef, Instant>,
    /// All of them, and those that are there again, in the order of time.
    queue: VecDeque<Removal>,
}

/// The removal of an object.
#[derive(Debug)]
struct Removal {
    at: Instant,
    object: ObjectRef,
}

impl Removals {
    /// Takes the removals that are delayed out of the changes, and forgets those of objects that
    /// the changes put.
    pub(super) fn delay(&mut self, changes: &mut Vec<Change>, now: Instant) {
        if self.due.is_empty() && !changes.iter().any(is_delayed_removal) {
            return;
        }

        changes.retain(|change| {
            if let Change::Put(object) = change {
                self.due.remove(&object.object_ref());
            }
            if let Change::Removed(object) = change
                && is_delayed(object.kind)
            {
                self.add(object, now + REMOVAL_DELAY);
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
            if self.due.get(&removal.object) == Some(&removal.at) {
                self.due.remove(&removal.object);
                due.push(Change::Removed(removal.object));
            }
        }

        due
    }

    fn add(&mut self, object: &ObjectRef, at: Instant) {
        self.due.insert(object.clone(), at);
        self.queue.push_back(Removal {
            at,
            object: object.clone(),
        });
    }
}

fn is_delayed_removal(change: &Change) -> bool {
    matches!(change, Change::Removed(name) if is_delayed(name.kind))
}

/// Whether the removal of objects of a kind is delayed.
fn is_delayed(kind: Kind) -> bool {
    match kind {
        // Without them requests fail, or go where they must not.
        Kind::Service
        | Kind::ServiceEntry
        | Kind::ServiceExport
        | Kind::ServiceImport
        | Kind::VirtualService
        | Kind::DestinationRule
        | Kind::Gateway
        | Kind::Sidecar
        | Kind::EnvoyFilter
        | Kind::ProxyConfig
        | Kind::Telemetry
        | Kind::WasmPlugin
        | Kind::TrafficExtension
        | Kind::Ingress
        | Kind::IngressClass
        | Kind::GatewayClass
        | Kind::KubernetesGateway
        | Kind::ListenerSet
        | Kind::HttpRoute
        | Kind::GrpcRoute
        | Kind::TlsRoute
        | Kind::TcpRoute
        | Kind::BackendTlsPolicy
        | Kind::XBackendTrafficPolicy
        | Kind::XBackend
        | Kind::InferencePool => true,

        // They restrict who may connect.
        Kind::AuthorizationPolicy | Kind::PeerAuthentication | Kind::RequestAuthentication => true,

        // Certificates, keys and roots: a gateway without them rejects all connections. A removal
        // revokes no certificate. What gives this control plane access to remote clusters, and the
        // keys of its CA, is read on other paths.
        Kind::Secret | Kind::ConfigMap => true,

        // Its labels apply to the objects in it. If these were in force without them, traffic would
        // bypass the namespace's waypoint.
        Kind::Namespace => true,

        // Workloads that are gone must get no requests.
        Kind::Pod | Kind::EndpointSlice | Kind::Node | Kind::WorkloadEntry => false,

        // It gives access to another namespace and restricts nothing: who removes it withdraws a
        // right.
        Kind::ReferenceGrant => false,

        // No traffic depends on them.
        Kind::WorkloadGroup | Kind::ServiceAccount => false,
    }
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
    fn configuration_is_removed_after_the_delay_and_workloads_and_grants_at_once() {
        let start = Instant::now();
        let policy = Change::Removed(named(Kind::AuthorizationPolicy, "only-web"));
        let slice = Change::Removed(named(Kind::EndpointSlice, "web-1"));
        let service = Change::Removed(named(Kind::Service, "web"));
        let grant = Change::Removed(named(Kind::ReferenceGrant, "from-edge"));
        let mut removals = Removals::default();

        let mut changes = vec![
            policy.clone(),
            slice.clone(),
            service.clone(),
            grant.clone(),
        ];
        removals.delay(&mut changes, start);
        assert_eq!(names(&changes), names(&[slice, grant]));

        let due = start + REMOVAL_DELAY;
        assert_eq!(removals.next(), Some(due));
        assert!(removals.take_due(due - Duration::from_millis(1)).is_empty());
        assert_eq!(names(&removals.take_due(due)), names(&[policy, service]));
        assert_eq!(removals.next(), None);
    }

    #[test]
    fn a_namespace_is_removed_together_with_what_was_in_it() {
        let start = Instant::now();
        let namespace = ObjectRef {
            kind: Kind::Namespace,
            name: NamespacedName::new("", "shop"),
        };
        let mut changes = vec![
            Change::Removed(named(Kind::ServiceEntry, "partner")),
            Change::Removed(namespace),
        ];
        let all = names(&changes);
        let mut removals = Removals::default();

        removals.delay(&mut changes, start);

        assert_eq!(names(&changes), [""; 0]);
        assert_eq!(names(&removals.take_due(start + REMOVAL_DELAY)), all);
    }

    #[test]
    fn a_second_removal_has_a_delay_of_its_own() {
        let start = Instant::now();
        let name = named(Kind::VirtualService, "web");
        let mut removals = Removals::default();

        removals.delay(&mut vec![Change::Removed(name.clone())], start);
        let later = start + REMOVAL_DELAY / 2;
        removals.delay(&mut vec![Change::Removed(name.clone())], later);

        assert!(removals.take_due(start + REMOVAL_DELAY).is_empty());
        let due = removals.take_due(later + REMOVAL_DELAY);
        assert_eq!(names(&due), names(&[Change::Removed(name)]));
    }
}

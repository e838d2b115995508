//! Quarantine: if proxies reject resources of an object, its previous version is served until it is
//! edited. [`judgement`] decides whether they do, by the [`votes`] of identities, and [`jury`]
//! whether those who decided are still there, by the [`turnout`] at all replicas.

mod excerpt;
pub mod instance;
pub mod judgement;
pub mod jury;
mod reach;
pub mod turnout;
mod voter;
pub mod votes;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use super::quarantined::{Quarantined, RestoredQuarantine};
pub use excerpt::{Excerpt, excerpt};
pub use reach::keeps_reach;
pub use voter::{Registered, registered, voter};

use imbl::OrdMap;

use super::change::Change;
use super::quarantined::Before;
use navarch_api::any_object::AnyObject;
use navarch_api::names::Namespace;
use navarch_api::object::{Kind, ObjectRef};
use navarch_store::Objects;

/// Number of most recently changed objects whose previous version is kept. Others are removed when
/// quarantined. The oldest one of the namespace with the most makes room for another one: who changes
/// many objects would else have those of others removed.
const MAX_PREVIOUS_VERSIONS: usize = 256;

/// All quarantined objects, and the previous versions of recently changed ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Quarantine {
    /// Quarantined objects by name, for status and debug endpoints.
    quarantined: OrdMap<ObjectRef, Arc<Quarantined>>,
    /// The previous versions of recently changed objects, the latest last.
    before: Before,
    /// How many of these each namespace has.
    of_namespaces: BTreeMap<Namespace, usize>,
    /// Quarantines of versions that have not been read yet.
    awaited: BTreeMap<ObjectRef, Arc<RestoredQuarantine>>,
}

/// Whether objects of this kind can be quarantined. Policies that deny access are never removed
/// because of a proxy's response.
#[must_use]
pub fn is_chargeable(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::VirtualService
            | Kind::DestinationRule
            | Kind::Gateway
            | Kind::ServiceEntry
            | Kind::EnvoyFilter
            | Kind::WasmPlugin
            | Kind::TrafficExtension
            | Kind::Telemetry
            | Kind::HttpRoute
            | Kind::GrpcRoute
    )
}

impl Quarantine {
    pub(super) fn quarantined(&self) -> &OrdMap<ObjectRef, Arc<Quarantined>> {
        &self.quarantined
    }

    /// The previous versions of recently changed objects.
    pub(super) fn before(&self) -> &Before {
        &self.before
    }

    /// Whether a change contains the quarantined version of an object.
    pub(super) fn contains(&self, change: &Change) -> bool {
        let Change::Put(object) = change else {
            return false;
        };
        let quarantined = self.quarantined.get(&object.object_ref());
        quarantined.is_some_and(|one| one.rejected.same_content(object))
    }

    /// The change to apply in place of an incoming one, if any. An edit ends a quarantine.
    pub(super) fn admit(&mut self, change: Change, seen: &Objects) -> Option<Change> {
        match change {
            Change::Put(object) => {
                let name = object.object_ref();
                self.release(&name);
                if let Some(restored) = self.awaited.remove(&name)
                    && restored.is_of(&object)
                {
                    return Some(self.restore(name, object, &restored));
                }
                if is_chargeable(name.kind) {
                    let current = seen.any(&name);
                    if current
                        .as_ref()
                        .is_none_or(|current| !current.same_content(&object))
                    {
                        self.remember(name, current);
                    }
                }

                Some(Change::Put(object))
            }
            Change::Removed(name) => {
                self.release(&name);
                self.awaited.remove(&name);
                self.forget(&name);
                Some(Change::Removed(name))
            }
            Change::Quarantine(name, message) => self.begin(name, message, seen),
            Change::RestoreQuarantine(name, restored) => {
                if self.quarantined.contains_key(&name) {
                    return None;
                }

                match seen.any(&name).filter(|object| restored.is_of(object)) {
                    Some(object) => Some(self.restore(name, object, &restored)),
                    None => {
                        self.awaited.insert(name, restored);
                        None
                    }
                }
            }
            Change::ReleaseQuarantine(name) => {
                self.awaited.remove(&name);
                let quarantined = self.quarantined.remove(&name)?;
                Some(Change::Put(quarantined.rejected.clone()))
            }
            // Configuration comes from the primary cluster only.
            other @ (Change::Remote(..)
            | Change::Mesh(_)
            | Change::Networks(_)
            | Change::SecretReader(..)
            | Change::Keys(..)
            | Change::TrustBundle(_)
            | Change::GatewayHost(..)
            | Change::Stages
            | Change::FindPeers
            | Change::Learned(..)
            | Change::Rollout(..)) => Some(other),
        }
    }

    /// Quarantines an object: returns the change to its previous version.
    fn begin(&mut self, name: ObjectRef, message: Arc<str>, seen: &Objects) -> Option<Change> {
        if self.quarantined.contains_key(&name) {
            return None;
        }

        let written = seen.any(&name)?;
        let good = self
            .before
            .iter()
            .rev()
            .find(|(known, _)| *known == name)
            .and_then(|(_, good)| good.clone());

        Some(self.replace(name, written, good, message))
    }

    /// Serves the stored version in place of the written one: returns the change to it.
    fn restore(
        &mut self,
        name: ObjectRef,
        written: AnyObject,
        restored: &RestoredQuarantine,
    ) -> Change {
        let before = restored.before.clone();
        self.replace(name, written, before, restored.message.clone())
    }

    /// Serves a version in place of the written one: returns the change to it.
    fn replace(
        &mut self,
        name: ObjectRef,
        written: AnyObject,
        good: Option<AnyObject>,
        message: Arc<str>,
    ) -> Change {
        let quarantined = Quarantined {
            generation: written.meta().generation,
            served: good.as_ref().map(|good| good.meta().generation),
            rejected: written,
            message,
        };

        self.quarantined.insert(name.clone(), Arc::new(quarantined));
        good.map_or(Change::Removed(name), Change::Put)
    }

    /// Ends the quarantine of an object, if any.
    pub(super) fn release(&mut self, name: &ObjectRef) {
        self.quarantined.remove(name);
    }

    /// Stores the previous version of an object.
    fn remember(&mut self, name: ObjectRef, object: Option<AnyObject>) {
        self.forget(&name);
        if self.before.len() >= MAX_PREVIOUS_VERSIONS {
            self.make_room();
        }

        let namespace = name.name.namespace.clone();
        *self.of_namespaces.entry(namespace).or_default() += 1;
        Arc::make_mut(&mut self.before).push_back((name, object));
    }

    /// Drops the oldest previous version of the namespace with the most.
    fn make_room(&mut self) {
        let most = self.of_namespaces.iter().max_by_key(|(_, count)| **count);
        let Some((namespace, _)) = most else {
            return;
        };
        let mut names = self.before.iter().map(|(name, _)| &name.name.namespace);
        if let Some(at) = names.position(|of| of == namespace) {
            self.drop_at(at);
        }
    }

    /// Drops the previous version of an object, if it is known.
    fn forget(&mut self, name: &ObjectRef) {
        if let Some(at) = self.before.iter().position(|(known, _)| known == name) {
            self.drop_at(at);
        }
    }

    /// Drops a previous version by its place.
    fn drop_at(&mut self, at: usize) {
        let Some((name, _)) = Arc::make_mut(&mut self.before).remove(at) else {
            return;
        };
        let namespace = &name.name.namespace;
        if let Some(count) = self.of_namespaces.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.of_namespaces.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh_state::MeshState;
    use navarch_api::object::NamespacedName;
    use navarch_api::settings::Settings;
    use navarch_api::testing::object;
    use navarch_api::uid::Uid;

    fn rule(host: &str) -> AnyObject {
        let yaml = format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: v, namespace: shop}}\n\
             spec: {{hosts: [{host}], http: [{{route: [{{destination: {{host: a}}}}]}}]}}\n"
        );
        object(&yaml)
    }

    /// The host of the rule in force.
    fn host(state: &MeshState) -> Option<String> {
        state
            .context()
            .objects
            .virtual_services
            .iter()
            .next()
            .and_then(|rule| rule.spec.hosts.first().cloned())
    }

    #[test]
    fn the_version_before_is_served_until_the_next_edit() {
        let mut state = MeshState::new(Settings::default());
        let name = rule("a").object_ref();
        let quarantine = || Change::Quarantine(name.clone(), "no".into());
        state.apply([Change::Put(rule("good"))]);
        state.apply([Change::Put(rule("bad"))]);
        assert!(!state.apply([quarantine()]).is_empty());
        assert_eq!(host(&state).as_deref(), Some("good"));
        assert_eq!(&*state.context().quarantined[&name].message, "no");

        // The same version again, as when a source relists, is no edit.
        assert!(state.apply([Change::Put(rule("bad"))]).is_empty());
        assert!(state.apply([quarantine()]).is_empty());

        // If an edit is rejected as well, the earlier rejected version is not served.
        state.apply([Change::Put(rule("worse"))]);
        assert_eq!(
            (host(&state).as_deref(), state.context().quarantined.len()),
            (Some("worse"), 0)
        );
        state.apply([quarantine()]);
        assert_eq!(host(&state).as_deref(), Some("good"));

        state.apply([Change::Put(rule("mended"))]);
        assert_eq!(
            (host(&state).as_deref(), state.context().quarantined.len()),
            (Some("mended"), 0)
        );
        state.apply([quarantine(), Change::Removed(name.clone())]);
        assert_eq!((host(&state), state.context().quarantined.len()), (None, 0));
    }

    #[test]
    fn a_stored_quarantine_applies_to_its_version_only() {
        let name = rule("a").object_ref();
        let restore = |generation, before| {
            let restored = RestoredQuarantine {
                generation,
                uid: Uid::default(),
                before,
                message: "no".into(),
            };
            Change::RestoreQuarantine(name.clone(), Arc::new(restored))
        };

        // Before the object is read, as at the start: no proxy gets the rejected version.
        let mut state = MeshState::new(Settings::default());
        state.apply([restore(0, Some(rule("good")))]);
        state.apply([Change::Put(rule("bad"))]);
        assert_eq!(host(&state).as_deref(), Some("good"));
        assert_eq!(&*state.context().quarantined[&name].message, "no");

        // An operator ends it; a relist does not restore it.
        state.apply([Change::ReleaseQuarantine(name.clone())]);
        state.apply([Change::Put(rule("bad"))]);
        assert_eq!(host(&state).as_deref(), Some("bad"));
        assert!(state.context().quarantined.is_empty());

        // After it is read, and for another version.
        state.apply([restore(0, None)]);
        assert_eq!(host(&state), None);
        state.apply([Change::Put(rule("mended")), restore(7, None)]);
        assert_eq!(host(&state).as_deref(), Some("mended"));
    }

    #[test]
    fn an_object_without_a_good_version_is_omitted() {
        let mut state = MeshState::new(Settings::default());
        state.apply([Change::Put(rule("bad"))]);
        state.apply([Change::Quarantine(rule("bad").object_ref(), "no".into())]);
        assert_eq!(host(&state), None);
        assert_eq!(
            state
                .context()
                .quarantined
                .values()
                .next()
                .and_then(|quarantined| quarantined.served),
            None
        );
    }

    #[test]
    fn a_namespace_that_changes_many_objects_drops_its_own_previous_versions() {
        let name = |namespace: &str, number: usize| ObjectRef {
            kind: Kind::VirtualService,
            name: NamespacedName::new(namespace, &format!("v{number}")),
        };
        let mut quarantine = Quarantine::default();
        quarantine.remember(name("shop", 0), Some(rule("good")));
        for number in 0..3 * MAX_PREVIOUS_VERSIONS {
            quarantine.remember(name("evil", number), Some(rule("a")));
        }
        quarantine.remember(name("shop", 1), None);

        let count = |namespace: &str| {
            let all = quarantine.before().iter();
            all.filter(|(name, _)| name.name.namespace.as_str() == namespace)
                .count()
        };
        assert_eq!(count("shop"), 2);
        assert_eq!(count("evil"), MAX_PREVIOUS_VERSIONS - 2);
        let counts: Vec<usize> = quarantine.of_namespaces.values().copied().collect();
        assert_eq!(counts, [MAX_PREVIOUS_VERSIONS - 2, 2]);
    }

    #[test]
    fn previous_versions_are_freed_once_despite_copies() {
        let objects: Vec<AnyObject> = (0..2 * MAX_PREVIOUS_VERSIONS)
            .map(|number| rule(&format!("h{number}")))
            .collect();
        let name = |number: usize| ObjectRef {
            kind: Kind::VirtualService,
            name: NamespacedName::new("shop", &format!("v{number}")),
        };
        let mut quarantine = Quarantine::default();
        let mut copies = Vec::new();

        // Each object changes twice, the second time in another order, while recorders hold what
        // was remembered before.
        for round in 0..2 {
            for at in 0..objects.len() {
                let number = (at * (1 + 6 * round)) % objects.len();
                quarantine.remember(name(number), Some(objects[number].clone()));
                copies.push(quarantine.before().clone());
                copies.truncate(3);
            }
        }

        let remembered: Vec<&ObjectRef> =
            quarantine.before().iter().map(|(name, _)| name).collect();
        let last: Vec<ObjectRef> = (0..objects.len())
            .map(|at| name((at * 7) % objects.len()))
            .collect();
        assert_eq!(
            remembered,
            last[MAX_PREVIOUS_VERSIONS..].iter().collect::<Vec<_>>()
        );

        drop((quarantine, copies));
        let counts = objects.iter().map(|object| {
            let AnyObject::VirtualService(rule) = object else {
                panic!("it is a VirtualService")
            };
            Arc::strong_count(rule)
        });

        assert_eq!(counts.collect::<Vec<_>>(), vec![1; objects.len()]);
    }
}

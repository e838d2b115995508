//! The state of the cluster for the deployment of Gateways.

mod plan;
mod watched;

use std::collections::{BTreeMap, BTreeSet};

use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use navarch_api::gateway_api::GatewayClass;
use navarch_api::object::NamespacedName;

use super::listener_sets::AttachedSet;
use super::overlays::Data;
use super::settings::GatewayControllerSettings;
use super::watches::{DeployedKind, Source};
use crate::mirror::{Change, Index, Mirror};
use crate::namespaces::NamespaceScope;
use crate::revisions::{Tag, Tags};
pub use plan::Plan;
pub(super) use watched::MadeObject;
use watched::{Defaults, Gateway, Namespace, defaults, gateway, listener_set, namespace, spec};

/// What the watches have reported so far, and the Gateways that are affected by it.
#[derive(Debug, Default)]
pub struct ClusterState {
    /// Settings from flags and environment.
    settings: GatewayControllerSettings,
    /// Selects the namespaces.
    scope: NamespaceScope,
    gateways: Mirror<Gateway>,
    /// The controllers of GatewayClasses.
    classes: Mirror<String>,
    listener_sets: Mirror<AttachedSet>,
    namespaces: Mirror<Namespace>,
    /// ConfigMaps of classes.
    defaults: Mirror<Defaults>,
    /// Tags of revisions.
    tags: Tags,
    made: BTreeMap<DeployedKind, Mirror<MadeObject>>,
    /// ListenerSets by their Gateway.
    by_parent: Index,
    /// Gateways by the ConfigMap that they refer to.
    by_parameters: Index,
    /// The data of these ConfigMaps; `None` if the ConfigMap does not exist.
    parameters: BTreeMap<NamespacedName, Option<Data>>,
    /// Whether the initial list of ConfigMaps is complete.
    knows_parameters: bool,
    /// Gateways to reconcile.
    due: BTreeSet<NamespacedName>,
}

impl ClusterState {
    /// The empty state.
    #[must_use]
    pub fn new(settings: GatewayControllerSettings, scope: NamespaceScope) -> Self {
        Self {
            settings,
            scope,
            ..Self::default()
        }
    }

    /// Applies an event.
    pub fn take(&mut self, source: Source, event: Event<DynamicObject>) {
        match source {
            Source::Gateways => {
                let changes = self.gateways.take(event, gateway);
                self.follow_gateways(changes);
            }

            Source::Classes => {
                let changes = self.classes.take(event, |object| {
                    Some(spec::<GatewayClass>(&object)?.controller_name)
                });
                changes
                    .iter()
                    .for_each(|change| self.class_is_due(&change.name.name));
            }

            Source::ListenerSets => {
                let changes = self
                    .listener_sets
                    .take(event, |object| listener_set(&object));
                self.follow_listener_sets(changes);
            }

            Source::Namespaces => {
                let changes = self
                    .namespaces
                    .take(event, |object| Some(namespace(object)));
                changes
                    .iter()
                    .for_each(|change| self.namespace_is_due(&change.name.name));
            }

            Source::ConfigMaps => self.follow_config_maps(event),
            Source::Defaults => {
                let changes = self.defaults.take(event, |object| defaults(&object));
                for Change { name, before } in changes {
                    let now = self.defaults.get(&name).map(|now| now.class.clone());
                    let classes: BTreeSet<_> = before
                        .map(|before| before.class)
                        .into_iter()
                        .chain(now)
                        .collect();
                    classes.iter().for_each(|class| self.class_is_due(class));
                }
            }

            Source::Deployed(made) => self.follow_made(made, event),
            Source::TagWebhooks => self.follow_tags(event, |tags| &mut tags.webhooks),
            Source::TagServices => self.follow_tags(event, |tags| &mut tags.services),
            Source::DefaultValidator => self.follow_tags(event, |tags| &mut tags.validator),
        }
    }

    /// Records that the cluster does not have a kind, so that it has no objects.
    pub fn absent(&mut self, source: Source) {
        self.take(source, Event::Init);
        self.take(source, Event::InitDone);
    }

    /// Whether all initial lists are complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.gateways.is_complete()
            && self.classes.is_complete()
            && self.listener_sets.is_complete()
            && self.namespaces.is_complete()
            && self.defaults.is_complete()
            && self.knows_parameters
            && self.tags.are_complete()
            && DeployedKind::ALL
                .iter()
                .all(|made| self.made.get(made).is_some_and(Mirror::is_complete))
    }

    /// Applies a change of the namespace scope.
    pub fn select(&mut self, scope: NamespaceScope) {
        if self.scope != scope {
            self.scope = scope;
            self.all_due();
        }
    }

    /// Schedules all Gateways.
    pub fn all_due(&mut self) {
        self.due.extend(self.gateways.keys().cloned());
    }

    /// Takes the scheduled Gateways.
    #[must_use]
    pub fn take_due(&mut self) -> BTreeSet<NamespacedName> {
        std::mem::take(&mut self.due)
    }

    /// Records the data of a ConfigMap; `None` if it does not exist.
    pub fn put_parameters(&mut self, name: NamespacedName, data: Option<BTreeMap<String, String>>) {
        self.parameters.insert(name, data);
    }

    /// The names of all Gateways.
    pub fn gateways(&self) -> impl Iterator<Item = &NamespacedName> {
        self.gateways.keys()
    }

    pub(super) fn made(&self, made: DeployedKind, name: &NamespacedName) -> Option<&MadeObject> {
        self.made.get(&made)?.get(name)
    }

    /// Number of deployed objects.
    pub(super) fn made_count(&self) -> usize {
        self.made.values().map(|mirror| mirror.keys().len()).sum()
    }

    /// Records an object that was just applied, so that its watch event is no change.
    pub(super) fn note_made(
        &mut self,
        made: DeployedKind,
        name: NamespacedName,
        object: MadeObject,
    ) {
        _ = self.made.entry(made).or_default().put(name, Some(object));
    }

    /// The rejection of an overlay that the status of a Gateway reports.
    pub(super) fn told(&self, gateway: &NamespacedName) -> Option<&str> {
        self.gateways.get(gateway)?.told.as_deref()
    }

    /// The ConfigMaps that have an overlay of this key for the objects of a Gateway.
    pub(super) fn overlaid_by(&self, gateway: &NamespacedName, key: &str) -> Vec<&NamespacedName> {
        let overlays = self
            .gateways
            .get(gateway)
            .map(|gateway| self.overlays_of(gateway))
            .unwrap_or_default();
        overlays
            .iter()
            .filter(|overlay| overlay.data.contains_key(key))
            .map(|overlay| overlay.map)
            .collect()
    }

    /// Applies changes of Gateways.
    fn follow_gateways(&mut self, changes: Vec<Change<Gateway>>) {
        for Change { name, before } in changes {
            let named = |gateway: &Gateway| gateway.parameters.clone()?.ok();
            let before = before.as_ref().and_then(named);
            let now = self.gateways.get(&name).and_then(named);
            self.by_parameters
                .change(&name, before.as_ref(), now.as_ref());
            if let Some(map) = before
                && self.by_parameters.of(&map).next().is_none()
            {
                self.parameters.remove(&map);
            }
            self.due.insert(name);
        }
    }

    /// Applies changes of ListenerSets.
    fn follow_listener_sets(&mut self, changes: Vec<Change<AttachedSet>>) {
        for Change { name, before } in changes {
            let before = before.map(|before| before.parent);
            let now = self.listener_sets.get(&name).map(|now| now.parent.clone());
            self.by_parent.change(&name, before.as_ref(), now.as_ref());
            self.due.extend(before.into_iter().chain(now));
        }
    }

    /// Applies an event about a ConfigMap; only those that Gateways refer to matter.
    fn follow_config_maps(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Init => {}
            Event::InitDone => {
                // Changes may have been missed before the list.
                self.knows_parameters = true;
                self.parameters.clear();
                self.due.extend(self.by_parameters.all().cloned());
            }
            Event::InitApply(object) | Event::Apply(object) | Event::Delete(object) => {
                let name = crate::mirror::name(&object);
                self.parameters.remove(&name);
                self.due.extend(self.by_parameters.of(&name).cloned());
            }
        }
    }

    /// Applies an event about a deployed object.
    fn follow_made(&mut self, made: DeployedKind, event: Event<DynamicObject>) {
        let manager = &self.settings.api.controller;
        let mirror = self.made.entry(made).or_default();
        let changes = mirror.take(event, |object| Some(MadeObject::of(&object, manager)));
        for Change { name, before } in changes {
            let now = mirror.get(&name).and_then(|now| now.owner.clone());
            self.due.extend(
                before
                    .and_then(|before| before.owner)
                    .into_iter()
                    .chain(now),
            );
        }
    }

    /// Applies an event about tags; a change may affect any Gateway.
    fn follow_tags(
        &mut self,
        event: Event<DynamicObject>,
        of: impl Fn(&mut Tags) -> &mut Mirror<Tag>,
    ) {
        let read = |object: DynamicObject| Some(Tag::of(object.metadata.labels.as_ref()));
        if !of(&mut self.tags).take(event, read).is_empty() {
            self.all_due();
        }
    }

    /// Schedules all Gateways of a class.
    fn class_is_due(&mut self, class: &str) {
        let of_class = self
            .gateways
            .iter()
            .filter(|(_, gateway)| gateway.spec.gateway_class_name == class);
        self.due.extend(of_class.map(|(name, _)| name.clone()));
    }

    /// Schedules all Gateways of a namespace, and the parents of its ListenerSets.
    fn namespace_is_due(&mut self, namespace: &str) {
        let here = self
            .gateways
            .keys()
            .filter(|name| name.namespace.as_str() == namespace);
        let sets = self
            .listener_sets
            .iter()
            .filter(|(name, _)| name.namespace.as_str() == namespace);
        let due: Vec<_> = here
            .chain(sets.map(|(_, set)| &set.parent))
            .cloned()
            .collect();
        self.due.extend(due);
    }
}

#[cfg(test)]
mod tests;

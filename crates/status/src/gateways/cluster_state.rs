//! The state of the cluster for the deployment of Gateways, and the plan of each Gateway.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use navarch_api::gateway_api::{GatewayClass, KubernetesGateway, ListenerSet};
use navarch_api::object::NamespacedName;
use navarch_api::text_map::TextMap;
use navarch_kubernetes::object_name;
use navarch_webhook::inject::Injector;
use serde_json::Value;

use super::classes::ClassInfo;
use super::listener_sets::{AttachedSet, accepts};
use super::metadata::{Holder, is_managed, texts};
use super::objects::{Deployed, ObjectsError, objects};
use super::overlays::{Data, Overlay};
use super::refusals;
use super::settings::GatewayControllerSettings;
use super::watches::{DEFAULTS_FOR_CLASS, DeployedKind, Source};
use super::writer::Fields;
use crate::default_revision::REVISION;
use crate::mirror::{Change, Index, Mirror};
use crate::namespaces::NamespaceScope;
use crate::revisions::{Tag, Tags};

/// A Gateway without its status, except for what this controller writes into it.
#[derive(Clone, Debug, PartialEq)]
struct Gateway {
    /// The object from the API server.
    value: Value,
    spec: KubernetesGateway,
    /// The ConfigMap that it refers to, or the group and kind of another referenced object.
    parameters: Option<Result<NamespacedName, (String, String)>>,
    /// The refusal of an overlay that its status tells.
    told: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Namespace {
    labels: TextMap,
    /// Its annotations about user and group IDs of pods.
    annotations: Data,
}

/// A ConfigMap with defaults for all Gateways of a class.
#[derive(Clone, Debug, PartialEq)]
struct Defaults {
    /// Its creation time: the oldest ConfigMap of a class is used.
    created: Option<Timestamp>,
    class: String,
    data: Data,
}

/// An object that these controllers created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MadeObject {
    pub(super) owner: Option<NamespacedName>,
    /// The digest of its applied fields.
    pub(super) fields: Fields,
}

/// The plan of a Gateway.
#[derive(Debug)]
pub enum Plan {
    /// This control plane does not deploy it, and why.
    Nothing(&'static str),
    /// It is this control plane's, but has no proxies to deploy, and why.
    WithoutProxies(&'static str),
    /// The plan depends on a ConfigMap that was not read yet.
    Reads(NamespacedName),
    /// This control plane deploys it: these objects are to be applied.
    Objects {
        /// Whether the Gateway must be marked as this controller's.
        takes: bool,
        /// The objects, in the order in which they are applied.
        objects: Vec<Value>,
    },
}

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

    /// The refusal of an overlay that the status of a Gateway tells.
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

    /// The known overlays of a Gateway, in order of application.
    fn overlays_of<'a>(&'a self, gateway: &'a Gateway) -> Vec<Overlay<'a>> {
        let own = || {
            let map = gateway.parameters.as_ref()?.as_ref().ok()?;
            let data = self.parameters.get(map)?.as_ref()?;
            Some(Overlay { map, data })
        };
        let defaults = self.defaults_of(&gateway.spec.gateway_class_name);
        defaults.into_iter().chain(own()).collect()
    }

    /// The plan of a Gateway.
    ///
    /// # Errors
    /// If its objects cannot be rendered.
    pub fn plan(
        &self,
        name: &NamespacedName,
        injector: &Injector,
        kube_version: i64,
    ) -> Result<Plan, ObjectsError> {
        let Some(gateway) = self.gateways.get(name) else {
            return Ok(Plan::Nothing("it does not exist"));
        };
        let Gateway {
            value,
            spec,
            parameters,
            ..
        } = gateway;

        let namespace = self
            .namespaces
            .get(&NamespacedName::new("", name.namespace.as_str()));

        if !self.scope.includes(
            name.namespace.as_str(),
            namespace.map(|namespace| &namespace.labels),
        ) {
            return Ok(Plan::Nothing("its namespace is not selected"));
        }

        if value.pointer("/metadata/deletionTimestamp").is_some() {
            return Ok(Plan::Nothing("it is being deleted"));
        }

        let Some(class) = self.class_of(spec) else {
            return Ok(Plan::Nothing(
                "its GatewayClass belongs to another controller",
            ));
        };

        let labels = texts(value, "labels");
        let of_namespace = namespace
            .and_then(|namespace| namespace.labels.get(REVISION))
            .map(|revision| &**revision);
        let own = labels.get(REVISION).map(String::as_str);
        let selected = own.or(of_namespace).unwrap_or_default();
        if (own.is_some() || namespace.is_some())
            && !self.tags.is_of(self.settings.revision(), selected)
        {
            return Ok(Plan::Nothing("it belongs to another revision"));
        }

        if class.template.is_none() {
            return Ok(Plan::WithoutProxies(
                "no proxies are deployed for its GatewayClass",
            ));
        }

        if !is_managed(spec, &self.settings) {
            return Ok(Plan::WithoutProxies(
                "its address refers to a manual deployment",
            ));
        }

        let holder = Holder::of(&texts(value, "annotations"));
        if holder == Holder::Another {
            return Ok(Plan::Nothing("a newer controller version manages it"));
        }

        match parameters {
            None => {}
            Some(Err((group, kind))) => {
                return Err(ObjectsError::Parameters {
                    group: group.clone(),
                    kind: kind.clone(),
                });
            }
            Some(Ok(map)) => match self.parameters.get(map) {
                None => {
                    object_name(&map.name).map_err(|error| ObjectsError::Name {
                        field: "infrastructure.parametersRef.name",
                        error,
                    })?;
                    return Ok(Plan::Reads(map.clone()));
                }
                Some(None) => return Err(ObjectsError::NoParameters(map.name.to_string())),
                Some(Some(_)) => {}
            },
        }

        let deployed = Deployed {
            gateway: value,
            spec,
            class: &class,
            listeners: self.listeners_of(name, spec),
            overlays: self.overlays_of(gateway),
            namespace_annotations: namespace.map(|namespace| &namespace.annotations),
            kube_version,
        };

        let objects = objects(&deployed, &self.settings, injector)?;
        Ok(Plan::Objects {
            takes: holder == Holder::Nobody,
            objects,
        })
    }

    /// The properties of a Gateway's class.
    fn class_of(&self, spec: &KubernetesGateway) -> Option<ClassInfo> {
        let api = &self.settings.api;
        let class = &spec.gateway_class_name;
        match self.classes.get(&NamespacedName::new("", class)) {
            Some(controller) => ClassInfo::of_controller(api, controller),
            None => ClassInfo::builtin(api)
                .into_iter()
                .find(|(name, _)| name == class)
                .map(|(_, info)| info),
        }
    }

    /// The ConfigMap of a class: the oldest.
    fn defaults_of(&self, class: &str) -> Option<Overlay<'_>> {
        let of_class = self
            .defaults
            .iter()
            .filter(|(_, defaults)| defaults.class == class);
        let (map, defaults) = of_class.min_by_key(|(name, defaults)| (defaults.created, *name))?;
        Some(Overlay {
            map,
            data: &defaults.data,
        })
    }

    /// The listeners of the ListenerSets that a Gateway accepts, oldest ListenerSet first.
    fn listeners_of(
        &self,
        name: &NamespacedName,
        spec: &KubernetesGateway,
    ) -> Vec<&navarch_api::gateway_api::Listener> {
        let own = name.namespace.as_str();
        let sets = self
            .by_parent
            .of(name)
            .filter_map(|name| Some((name, self.listener_sets.get(name)?)));
        let mut sets: Vec<_> = sets
            .filter(|(set, _)| {
                let namespace = self
                    .namespaces
                    .get(&NamespacedName::new("", set.namespace.as_str()));
                accepts(
                    spec,
                    own,
                    set.namespace.as_str(),
                    namespace.map(|namespace| &namespace.labels),
                )
            })
            .collect();

        sets.sort_by_key(|(name, set)| (set.created, *name));
        sets.into_iter()
            .flat_map(|(_, set)| &set.listeners)
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

impl MadeObject {
    /// The relevant fields of an object.
    pub(super) fn of(object: &DynamicObject, manager: &str) -> Self {
        let owners = object.metadata.owner_references.iter().flatten();
        let mut gateways = owners.filter(|owner| {
            owner.kind == "Gateway"
                && owner.api_version.split('/').next() == Some(super::GATEWAY_API.0)
        });
        let namespace = object.namespace().unwrap_or_default();
        let owner = gateways
            .next()
            .map(|owner| NamespacedName::new(&namespace, &owner.name));
        Self {
            owner,
            fields: Fields::of(object, manager),
        }
    }
}

/// The spec of an object, if it is valid.
fn spec<T: serde::de::DeserializeOwned>(object: &DynamicObject) -> Option<T> {
    let spec = object.data.get("spec")?;
    let read = serde_json::from_value(spec.clone());
    if let Err(error) = &read {
        let ns = object.namespace().unwrap_or_default();
        let name = object.name_any();
        tracing::warn!(%ns, %name, %error, "failed to decode the spec of a Gateway API object");
    }
    read.ok()
}

/// Extracts a Gateway, without fields that change with its status.
fn gateway(mut object: DynamicObject) -> Option<Gateway> {
    let spec: KubernetesGateway = spec(&object)?;
    object.metadata.managed_fields = None;
    object.metadata.resource_version = None;
    let told = refusals::told(object.data.get("status")).map(str::to_owned);
    if let Some(data) = object.data.as_object_mut() {
        data.remove("status");
    }

    let namespace = object.namespace().unwrap_or_default();
    let parameters = spec
        .infrastructure
        .as_ref()
        .and_then(|infrastructure| infrastructure.parameters_ref.as_ref())
        .map(|map| {
            if map.group.is_empty() && map.kind == "ConfigMap" {
                Ok(NamespacedName::new(&namespace, &map.name))
            } else {
                Err((map.group.clone(), map.kind.clone()))
            }
        });

    Some(Gateway {
        value: serde_json::to_value(object).ok()?,
        spec,
        parameters,
        told,
    })
}

/// Extracts a ListenerSet.
fn listener_set(object: &DynamicObject) -> Option<AttachedSet> {
    let created = object.creation_timestamp().map(|time| time.0);
    Some(AttachedSet::of(
        spec::<ListenerSet>(object)?,
        &object.namespace().unwrap_or_default(),
        created,
    ))
}

/// Extracts a namespace.
fn namespace(object: DynamicObject) -> Namespace {
    let labels = object.metadata.labels.unwrap_or_default();
    let annotations = object.metadata.annotations.unwrap_or_default();
    Namespace {
        labels: labels
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        annotations: annotations
            .into_iter()
            .filter(|(name, _)| name.starts_with("openshift.io/"))
            .collect(),
    }
}

/// Extracts the ConfigMap of a class.
fn defaults(object: &DynamicObject) -> Option<Defaults> {
    let class = object.labels().get(DEFAULTS_FOR_CLASS)?.clone();
    let data = object.data.get("data").cloned().unwrap_or_default();
    let data = if data.is_null() {
        Data::new()
    } else {
        serde_json::from_value(data).ok()?
    };
    Some(Defaults {
        created: object.creation_timestamp().map(|time| time.0),
        class,
        data,
    })
}

#[cfg(test)]
mod tests;

//! The plan of each Gateway.

use navarch_api::gateway_api::{KubernetesGateway, Listener};
use navarch_api::object::NamespacedName;
use navarch_kubernetes::object_name;
use navarch_webhook::inject::Injector;
use serde_json::Value;

use super::super::classes::ClassInfo;
use super::super::listener_sets::accepts;
use super::super::metadata::{Holder, is_managed, texts};
use super::super::objects::{Deployed, ObjectsError, objects};
use super::super::overlays::Overlay;
use super::ClusterState;
use super::watched::Gateway;
use crate::default_revision::REVISION;

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

impl ClusterState {
    /// The known overlays of a Gateway, in order of application.
    pub(super) fn overlays_of<'a>(&'a self, gateway: &'a Gateway) -> Vec<Overlay<'a>> {
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
    fn listeners_of(&self, name: &NamespacedName, spec: &KubernetesGateway) -> Vec<&Listener> {
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
}

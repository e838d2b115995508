//! Gateways of the Gateway API, translated to one Istio Gateway for each listener (istiod's
//! `gateway_collection.go`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::classes::{self, Controller, ControllerOfClass};
use super::conflicts::{Conflicts, ListenersOf};
use super::fault::Fault;
use super::gateway_services::{self, GatewayServices};
use super::grants::Referrer;
use super::listener_set_index::listener_sets_of;
use super::listener_sets::ListenerSetForms;
use super::listeners::{self, BuiltListener, ListenerOwner, ParentListener};
use super::settings::ApiSettings;
use super::tls::Owner;
use navarch_api::gateway_api::{KubernetesGateway, Listener};
use navarch_api::istio::Gateway;
use navarch_api::kubernetes::ConfigMap;
use navarch_api::object::{NamespacedName, Object, ObjectsByName};
use navarch_push::query::Query;
use navarch_push::view::View;

/// A parsed Gateway; `None` if this control plane does not serve it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GatewayForms(pub(super) NamespacedName);

/// The value of [`GatewayForms`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BuiltGateway {
    pub(super) controller: Controller,
    /// The hosts of the Services of its proxies.
    pub(super) services: Vec<String>,
    /// Its fault as a whole, if any.
    pub(super) fault: Option<Fault>,
    /// Its listeners, in order.
    pub(super) listeners: Vec<BuiltListener>,
}

/// An object that routes can attach to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ParentObject {
    Gateway(NamespacedName),
    ListenerSet(NamespacedName),
}

/// The listeners of a Gateway or ListenerSet that routes can attach to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ParentListeners(pub(super) ParentObject);

/// A listener that routes can attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenListener {
    pub(super) listener: Arc<ParentListener>,
    /// The hosts of all listeners of the object with the same port and protocol, which share them.
    pub(super) beside: Arc<BTreeSet<String>>,
}

/// All Gateways that are generated from the Gateway API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApiGateways;

/// The Gateways that are generated from the listeners of one Gateway and its ListenerSets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GatewaysOf(NamespacedName);

impl Query for GatewayForms {
    type Value = Option<Arc<BuiltGateway>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let gateway = view.object::<KubernetesGateway>(&self.0)?;
        let controller = (*view.get(&ControllerOfClass(gateway.spec.gateway_class_name.clone())))?;
        let values = view.get(&ApiSettings);
        let nothing = BuiltGateway {
            controller,
            services: Vec::new(),
            fault: None,
            listeners: Vec::new(),
        };

        if controller == Controller::Remote {
            return Some(Arc::new(nothing));
        }

        let GatewayServices {
            hosts: services,
            fault,
        } = gateway_services::services(gateway, controller, &values);
        if services.is_empty() && fault.is_some() {
            return Some(Arc::new(BuiltGateway { fault, ..nothing }));
        }

        let fault = fault.or_else(|| parameters_fault(view, gateway));
        let account = classes::service_account(gateway, controller, &values);
        let key = &gateway.meta.key;
        let tls = Owner {
            kind: Referrer::Gateway,
            namespace: &key.namespace,
            labels: &gateway.meta.labels,
            tls: gateway.spec.tls.as_ref(),
        };

        let owner = ListenerOwner {
            controller,
            meta: &gateway.meta,
            tls,
            services: &services,
            account: &account,
            parent_namespace: None,
        };

        let conflicts = view.get(&Conflicts {
            gateway: self.0.clone(),
            of: ListenersOf::Gateway,
        });
        let build = |listener: &Listener| match conflicts.get(&listener.name) {
            Some(conflict) => listeners::conflicted(listener, *conflict),
            None => listeners::build(view, owner, listener, None),
        };
        let listeners = gateway.spec.listeners.iter().map(build).collect();

        Some(Arc::new(BuiltGateway {
            controller,
            services,
            fault,
            listeners,
        }))
    }
}

/// The fault of the reference to a Gateway's parameters.
fn parameters_fault(view: &View<'_>, gateway: &Object<KubernetesGateway>) -> Option<Fault> {
    let parameters = gateway
        .spec
        .infrastructure
        .as_ref()?
        .parameters_ref
        .as_ref()?;

    let message = if parameters.kind != "ConfigMap" || !parameters.group.is_empty() {
        format!(
            "Unsupported parametersRef group/kind {}/{}, only ConfigMap is supported",
            parameters.group, parameters.kind
        )
    } else {
        let name = NamespacedName::new(gateway.meta.key.namespace.as_str(), &parameters.name);
        match view.object::<ConfigMap>(&name) {
            Some(_) => return None,
            None => format!("parametersRef ConfigMap {name} does not exist"),
        }
    };

    Some(Fault::new("InvalidParameters", message))
}

impl Query for ParentListeners {
    type Value = Vec<OpenListener>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let of = |listeners: &[BuiltListener], invalid_too: bool| -> Self::Value {
            let listeners = listeners
                .iter()
                .filter(|listener| invalid_too || listener.is_valid);
            OpenListener::all(
                listeners.filter_map(|listener| Some(&listener.served.as_ref()?.parent)),
            )
        };

        match &self.0 {
            ParentObject::Gateway(name) => {
                let built = view.get(&GatewayForms(name.clone()));
                (*built)
                    .as_ref()
                    .map(|built| of(&built.listeners, true))
                    .unwrap_or_default()
            }
            ParentObject::ListenerSet(name) => {
                let built = view.get(&ListenerSetForms(name.clone()));
                (*built)
                    .as_ref()
                    .map(|built| of(&built.listeners, false))
                    .unwrap_or_default()
            }
        }
    }
}

impl OpenListener {
    /// The listeners of one object.
    fn all<'a>(listeners: impl Iterator<Item = &'a Arc<ParentListener>> + Clone) -> Vec<Self> {
        let mut hosts: BTreeMap<(i32, &str), BTreeSet<String>> = BTreeMap::new();

        for listener in listeners.clone() {
            hosts
                .entry((listener.port, listener.protocol.as_str()))
                .or_default()
                .insert(listener.hostname.clone());
        }

        let hosts: BTreeMap<_, _> = hosts
            .into_iter()
            .map(|(key, hosts)| (key, Arc::new(hosts)))
            .collect();
        let open = listeners.map(|listener| Self {
            listener: listener.clone(),
            beside: hosts
                .get(&(listener.port, listener.protocol.as_str()))
                .cloned()
                .unwrap_or_default(),
        });

        open.collect()
    }
}

impl Query for GatewaysOf {
    type Value = Vec<Arc<Object<Gateway>>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let made = |listeners: &[BuiltListener]| -> Self::Value {
            let valid = listeners.iter().filter(|listener| listener.is_valid);
            valid
                .filter_map(|listener| listener.served.as_ref())
                .map(|served| served.gateway.clone())
                .collect()
        };
        let own = view.get(&GatewayForms(self.0.clone()));
        let Some(own) = &*own else { return Vec::new() };
        let mut gateways = made(&own.listeners);
        for set in listener_sets_of(view, &self.0).iter() {
            if let Some(built) = &*view.get(&ListenerSetForms(set.clone())) {
                gateways.extend(made(&built.listeners));
            }
        }
        gateways
    }
}

impl Query for ApiGateways {
    type Value = ObjectsByName<Gateway>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let names = view.names::<KubernetesGateway>();
        let all = names.flat_map(|name| (*view.get(&GatewaysOf(name.clone()))).clone());
        all.map(|gateway| (gateway.meta.key(), gateway))
            .collect::<BTreeMap<_, _>>()
    }
}

/// The Gateway of this name, if it is generated from a listener.
pub(crate) fn api_gateway(view: &View<'_>, name: &NamespacedName) -> Option<Arc<Object<Gateway>>> {
    view.get(&ApiGateways).get(name).cloned()
}

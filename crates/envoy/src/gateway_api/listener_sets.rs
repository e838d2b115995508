//! ListenerSets: further listeners of Gateways (istiod's `ListenerSetCollection`).

use std::sync::Arc;

use super::classes::{self, ControllerOfClass};
use super::conflicts::{Conflicts, ListenersOf, port_of};
use super::fault::Fault;
use super::gateway_services::{self, GatewayServices};
use super::grants::Referrer;
use super::listener_set_index::parent_of;
use super::listeners::{self, BuiltListener, ListenerOwner};
use super::namespaces::takes_listener_sets_of;
use super::settings::ApiSettings;
use super::tls::Owner;
use navarch_api::gateway_api::{KubernetesGateway, Listener, ListenerSet};
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;

/// A parsed ListenerSet; `None` if its Gateway is not served.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListenerSetForms(pub(super) NamespacedName);

/// The value of [`ListenerSetForms`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BuiltListenerSet {
    pub(super) gateway: NamespacedName,
    /// Why it is rejected as a whole.
    pub(super) rejection: Option<String>,
    /// The hosts of the Services of the Gateway's proxies.
    pub(super) services: Vec<String>,
    /// The fault of the Gateway.
    pub(super) fault: Option<Fault>,
    /// Its listeners, in order.
    pub(super) listeners: Vec<BuiltListener>,
}

impl Query for ListenerSetForms {
    type Value = Option<Arc<BuiltListenerSet>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let set = view.object::<ListenerSet>(&self.0)?;
        let parent = parent_of(set)?;
        let gateway = view.object::<KubernetesGateway>(&parent)?;
        let class = &gateway.spec.gateway_class_name;
        let controller = (*view.get(&ControllerOfClass(class.clone())))?;
        let nothing = BuiltListenerSet {
            gateway: parent.clone(),
            rejection: None,
            services: Vec::new(),
            fault: None,
            listeners: Vec::new(),
        };

        let rejected = |rejection: String| {
            Some(Arc::new(BuiltListenerSet {
                rejection: Some(rejection),
                ..nothing.clone()
            }))
        };

        if !controller.allows_listener_sets() {
            return rejected(format!(
                "The {class:?} GatewayClass does not support ListenerSet"
            ));
        }

        if !takes_listener_sets_of(view, gateway, &self.0.namespace) {
            let rejection = "The parent Gateway does not allow this reference; check its 'spec.allowedListeners'";
            return rejected(rejection.to_owned());
        }

        let values = view.get(&ApiSettings);
        let GatewayServices {
            hosts: services,
            fault,
        } = gateway_services::services(gateway, controller, &values);
        if services.is_empty() && fault.is_some() {
            return Some(Arc::new(BuiltListenerSet { fault, ..nothing }));
        }

        let account = classes::service_account(gateway, controller, &values);
        let tls = Owner {
            kind: Referrer::ListenerSet,
            namespace: &self.0.namespace,
            labels: &set.meta.labels,
            tls: gateway.spec.tls.as_ref(),
        };

        let owner = ListenerOwner {
            controller,
            meta: &set.meta,
            tls,
            services: &services,
            account: &account,
            parent_namespace: Some(parent.namespace.as_str()),
        };

        let conflicts = view.get(&Conflicts {
            gateway: parent.clone(),
            of: ListenersOf::ListenerSet(self.0.clone()),
        });
        let build = |listener: &Listener| {
            let (port, fault) = match port_of(listener) {
                Ok(port) => (port, None),
                Err(fault) => (0, Some(fault)),
            };
            let listener = Listener {
                port,
                ..listener.clone()
            };
            match conflicts.get(&listener.name) {
                Some(conflict) => listeners::conflicted(&listener, *conflict),
                None => listeners::build(view, owner, &listener, fault.as_deref()),
            }
        };

        let listeners = set.spec.listeners.iter().map(build).collect();
        Some(Arc::new(BuiltListenerSet {
            services,
            fault,
            listeners,
            ..nothing
        }))
    }
}

//! All objects that are generated from Ingresses and from objects of the Gateway API, for debugging
//! (`/debug/configz`).

use std::sync::Arc;

use crate::gateway_api::{self, ApiDestinationRules, ApiGateways};
use crate::ingress::{IngressGateways, IngressVirtualServices};
use navarch_api::istio::{DestinationRule, Gateway, VirtualService};
use navarch_api::object::Object;
use navarch_push::query::Query;
use navarch_push::view::View;

/// Returns all generated objects, at the cost of generating all of them: to be run on a copy of the
/// engine, not on the push thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListGeneratedObjects;

/// Generated objects, each kind by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GeneratedObjects {
    /// One for each Ingress and each listener.
    pub gateways: Vec<Arc<Object<Gateway>>>,
    /// One for each host of Ingresses, and those of routes.
    pub virtual_services: Vec<Arc<Object<VirtualService>>>,
    /// Those of backend policies.
    pub destination_rules: Vec<Arc<Object<DestinationRule>>>,
}

impl Query for ListGeneratedObjects {
    type Value = GeneratedObjects;

    fn compute(&self, view: &View<'_>) -> GeneratedObjects {
        let of_ingresses = view.get(&IngressGateways);
        let of_listeners = view.get(&ApiGateways);
        let of_hosts = view.get(&IngressVirtualServices);
        let names = gateway_api::head_names(view);
        let of_routes = names
            .iter()
            .filter_map(|name| gateway_api::virtual_service(view, name));
        GeneratedObjects {
            gateways: of_ingresses
                .values()
                .chain(of_listeners.values())
                .cloned()
                .collect(),
            virtual_services: of_hosts.values().cloned().chain(of_routes).collect(),
            destination_rules: view.get(&ApiDestinationRules).values().cloned().collect(),
        }
    }

    fn fallback(&self, _: Option<&GeneratedObjects>) -> Option<GeneratedObjects> {
        Some(GeneratedObjects::default())
    }
}

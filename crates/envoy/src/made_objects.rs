//! All that is made from Ingresses and from objects of the Gateway API, for people to read (`/debug/configz`).

use std::sync::Arc;

use crate::gateway_api::{self, ApiDestinationRules, ApiGateways};
use crate::ingress::{IngressGateways, IngressVirtualServices};
use navarch_api::istio::{DestinationRule, Gateway, VirtualService};
use navarch_api::object::Object;
use navarch_push::query::Query;
use navarch_push::view::View;

/// Asks for all that is made. Costs all of it: for an engine of the asker's own, not for the push thread's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DescribeMade;

/// What is made from objects of other kinds, each kind by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MadeDescription {
    /// One for each Ingress and each listener.
    pub gateways: Vec<Arc<Object<Gateway>>>,
    /// One for each host of Ingresses, and what routes become.
    pub virtual_services: Vec<Arc<Object<VirtualService>>>,
    /// What policies of backends become.
    pub destination_rules: Vec<Arc<Object<DestinationRule>>>,
}

impl Query for DescribeMade {
    type Value = MadeDescription;

    fn compute(&self, view: &View<'_>) -> MadeDescription {
        let of_ingresses = view.get(&IngressGateways);
        let of_listeners = view.get(&ApiGateways);
        let of_hosts = view.get(&IngressVirtualServices);
        let names = gateway_api::head_names(view);
        let of_routes = names.iter().filter_map(|name| gateway_api::virtual_service(view, name));
        MadeDescription {
            gateways: of_ingresses.values().chain(of_listeners.values()).cloned().collect(),
            virtual_services: of_hosts.values().cloned().chain(of_routes).collect(),
            destination_rules: view.get(&ApiDestinationRules).values().cloned().collect(),
        }
    }

    fn rescue(&self, _: Option<&MadeDescription>) -> Option<MadeDescription> {
        Some(MadeDescription::default())
    }
}

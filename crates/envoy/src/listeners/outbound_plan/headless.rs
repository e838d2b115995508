//! The pods behind headless services, each of which has listeners of its own.

use std::net::IpAddr;
use std::sync::Arc;

use crate::endpoints::service_port::of_port;
use crate::sidecar_scope::ServiceRef;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

/// The addresses of each endpoint of a service port, those with names in place of addresses left out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PodAddresses {
    service: ServiceKey,
    port: u16,
}

/// The proxy's own address, if it is that of an endpoint of a service port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnAddressAmong(PodAddresses);

/// The addresses of each endpoint of a service port, sorted, each once.
pub(super) fn addresses(view: &View<'_>, service: &ServiceRef, port: u16) -> Arc<Vec<Vec<Arc<str>>>> {
    view.get(&PodAddresses { service: service.key.clone(), port })
}

/// The proxy's own address, if it is among these: its workload sends nothing to itself through the proxy. Only proxies of
/// it distinguishes the pods behind the service.
pub(super) fn own_address(view: &View<'_>, service: &ServiceRef, port: u16) -> Arc<Option<Arc<str>>> {
    view.derived(&OwnAddressAmong(PodAddresses { service: service.key.clone(), port }))
}

impl Query for PodAddresses {
    type Value = Vec<Vec<Arc<str>>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Some(service) = view.service(&self.service) else { return Vec::new() };
        let Some(endpoints) = view.endpoints(&self.service) else { return Vec::new() };
        let is_address = |address: &Arc<str>| address.parse::<IpAddr>().is_ok();
        let mut pods: Vec<Vec<Arc<str>>> = of_port(endpoints, service, self.port)
            .filter(|endpoint| endpoint.addresses.iter().all(is_address))
            .map(|endpoint| endpoint.addresses.clone())
            .collect();
        pods.sort_unstable();
        pods.dedup();
        pods
    }
}

impl Query for OwnAddressAmong {
    type Value = Option<Arc<str>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let own = view.proxy().ips().first()?.to_string();
        let pods = view.get(&self.0);
        pods.iter().filter_map(|pod| pod.first()).find(|address| ***address == *own).cloned()
    }
}

impl ProxyQuery for OwnAddressAmong {}

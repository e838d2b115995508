//! The pods behind headless services, each of which has listeners of its own.

use std::net::IpAddr;
use std::sync::Arc;

use crate::endpoints::service_port::of_port;
use crate::sidecar_scope::ServiceRef;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

/// What stands behind a service port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pods {
    /// Whether there is any endpoint, if only one with a name in place of addresses.
    pub(super) any: bool,
    /// The addresses of each endpoint, sorted, each once; those with names in place of addresses are left out.
    pub(super) addresses: Vec<Vec<Arc<str>>>,
}

/// What stands behind a service port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PodAddresses {
    service: ServiceKey,
    port: u16,
}

/// The proxy's own address, if it is that of an endpoint of a service port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnAddressAmong(PodAddresses);

/// What stands behind a service port.
pub(super) fn pods(view: &View<'_>, service: &ServiceRef, port: u16) -> Arc<Pods> {
    view.get(&PodAddresses { service: service.key.clone(), port })
}

/// The proxy's own address, if it is among these: its workload sends nothing to itself through the proxy. Only proxies of
/// it distinguishes the pods behind the service.
pub(super) fn own_address(view: &View<'_>, service: &ServiceRef, port: u16) -> Arc<Option<Arc<str>>> {
    view.derived(&OwnAddressAmong(PodAddresses { service: service.key.clone(), port }))
}

impl Query for PodAddresses {
    type Value = Pods;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Some(service) = view.service(&self.service) else { return Pods::default() };
        let Some(endpoints) = view.endpoints(&self.service) else { return Pods::default() };
        let is_address = |address: &Arc<str>| address.parse::<IpAddr>().is_ok();
        let mut addresses: Vec<Vec<Arc<str>>> = of_port(endpoints, service, self.port)
            .filter(|endpoint| endpoint.addresses.iter().all(is_address))
            .map(|endpoint| endpoint.addresses.clone())
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        Pods { any: of_port(endpoints, service, self.port).next().is_some(), addresses }
    }
}

impl Query for OwnAddressAmong {
    type Value = Option<Arc<str>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let own = view.proxy().ips().first()?.to_string();
        let pods = view.get(&self.0);
        pods.addresses.iter().filter_map(|pod| pod.first()).find(|address| ***address == *own).cloned()
    }
}

impl ProxyQuery for OwnAddressAmong {}

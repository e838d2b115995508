//! The pods of headless services, each of which has its own listeners.

use std::net::IpAddr;
use std::sync::Arc;

use crate::service_port::of_port;
use crate::sidecar_scope::ServiceRef;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

/// The endpoints of a service port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pods {
    /// Whether there is any endpoint, including those with host names instead of addresses.
    pub(super) any: bool,
    /// The addresses of each endpoint, sorted, each once; endpoints with host names are omitted.
    pub(super) addresses: Vec<Vec<Arc<str>>>,
}

/// The endpoints of a service port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PodAddresses {
    service: ServiceKey,
    port: u16,
}

/// The proxy's own address, if an endpoint of a service port has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnAddressAmong(PodAddresses);

/// The endpoints of a service port.
pub(super) fn pods(view: &View<'_>, service: &ServiceRef, port: u16) -> Arc<Pods> {
    view.get(&PodAddresses {
        service: service.key.clone(),
        port,
    })
}

/// The proxy's own address, if it is among these: a workload does not connect to itself through the
/// proxy. Only proxies of the service's pods are split by this attribute.
pub(super) fn own_address(
    view: &View<'_>,
    service: &ServiceRef,
    port: u16,
) -> Arc<Option<Arc<str>>> {
    view.derived(&OwnAddressAmong(PodAddresses {
        service: service.key.clone(),
        port,
    }))
}

impl Query for PodAddresses {
    type Value = Pods;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Some(service) = view.service(&self.service) else {
            return Pods::default();
        };
        let Some(endpoints) = view.endpoints(&self.service) else {
            return Pods::default();
        };
        let is_address = |address: &Arc<str>| address.parse::<IpAddr>().is_ok();
        let mut addresses: Vec<Vec<Arc<str>>> = of_port(endpoints, service, self.port)
            .filter(|endpoint| endpoint.addresses.iter().all(is_address))
            .map(|endpoint| endpoint.addresses.clone())
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        Pods {
            any: of_port(endpoints, service, self.port).next().is_some(),
            addresses,
        }
    }
}

impl Query for OwnAddressAmong {
    type Value = Option<Arc<str>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let own = view.proxy().ips().first()?.to_string();
        let pods = view.get(&self.0);
        pods.addresses
            .iter()
            .filter_map(|pod| pod.first())
            .find(|address| ***address == *own)
            .cloned()
    }
}

impl ProxyQuery for OwnAddressAmong {}

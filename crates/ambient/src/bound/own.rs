//! The hosts and addresses that identify a waypoint proxy.

use std::collections::BTreeSet;
use std::net::IpAddr;

use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

use super::WaypointAddress;

/// The hosts and addresses of the services that the view's proxy serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnAddresses;

impl Query for OwnAddresses {
    type Value = BTreeSet<WaypointAddress>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let proxy = view.proxy();
        let namespace = proxy.namespace();
        let network = proxy.network();
        let cluster = proxy.cluster_id();
        let mut own = BTreeSet::new();

        for target in proxy.targets().iter() {
            let service = &target.service;
            let hostname = service.key.hostname.clone();
            own.insert(WaypointAddress::Host(ServiceKey {
                namespace: namespace.clone(),
                hostname,
            }));
            let allocated: Vec<IpAddr> = service
                .auto_ipv4
                .into_iter()
                .chain(service.auto_ipv6)
                .collect();

            let ips = if allocated.is_empty() {
                let vips = service.cluster_vips.get(&cluster).into_iter().flatten();
                vips.filter_map(|vip| vip.parse().ok()).collect()
            } else {
                allocated
            };

            own.extend(
                ips.into_iter()
                    .map(|ip| WaypointAddress::Ip(network.clone(), ip)),
            );
        }

        own
    }
}

impl ProxyQuery for OwnAddresses {}

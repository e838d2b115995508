//! The virtual addresses of a service for a proxy.
//!
//! Agrees with `GetAddressForProxy` and `GetAllAddressesForProxy` of Istio's
//! `pilot/pkg/model/service.go`. The proxy's cluster, address families and DNS capture are read
//! only if the result depends on them.

use std::net::IpAddr;
use std::sync::Arc;

use navarch_push::proxy::{IpFamilies, ProxyKind};
use navarch_push::view::View;
use navarch_registry::model::Service;

/// The address of services without one.
pub const UNSPECIFIED: &str = "0.0.0.0";

/// All addresses of a service for the proxy, the primary one first. May be just [`UNSPECIFIED`], or
/// a CIDR.
#[must_use]
pub fn all(view: &View<'_>, service: &Service) -> Vec<Arc<str>> {
    let mut addresses = own_cluster(view, service);
    if addresses.is_empty() {
        addresses = auto_allocated(view, service)
            .into_iter()
            .flatten()
            .map(|ip| ip.to_string().into())
            .collect();
    }

    if !addresses.is_empty() {
        let settings = &view.mesh().settings;
        let families = view.proxy().families();
        let is_dual = matches!(families, IpFamilies::DualV4First | IpFamilies::DualV6First);
        if !is_dual || !(settings.dual_stack || settings.ambient) {
            addresses = of_families(addresses, families);
        }
    }

    if !addresses.is_empty() || service.default_address.is_empty() {
        return addresses;
    }

    let default = vec![Arc::clone(&service.default_address)];

    // Then it is the address in another cluster, which is useless in the wrong IP family. Envoy
    // matches the address of a ServiceEntry regardless of the proxy's families.
    if service.cluster_vips.is_empty() {
        default
    } else {
        of_families(default, view.proxy().families())
    }
}

/// The primary address of a service for the proxy.
#[must_use]
pub fn main(view: &View<'_>, service: &Service) -> Arc<str> {
    let own = own_cluster(view, service);
    if !own.is_empty()
        && let Some(first) = of_families(own, view.proxy().families()).into_iter().next()
    {
        return first;
    }

    if *service.default_address == *UNSPECIFIED {
        let [v4, v6] = auto_allocated(view, service);
        if v4.is_some() || v6.is_some() {
            let families = view.proxy().families();
            let usable = v4
                .filter(|_| families.has_v4())
                .or(v6.filter(|_| families.has_v6()));
            if let Some(ip) = usable {
                return ip.to_string().into();
            }
        }
    }

    Arc::clone(&service.default_address)
}

/// Additional addresses of a service.
#[must_use]
pub fn extra(view: &View<'_>, service: &Service) -> Vec<Arc<str>> {
    all(view, service).into_iter().skip(1).collect()
}

/// The addresses in the proxy's own cluster.
fn own_cluster(view: &View<'_>, service: &Service) -> Vec<Arc<str>> {
    if service.cluster_vips.is_empty() {
        return Vec::new();
    }
    service
        .cluster_vips
        .get(&view.proxy().cluster_id())
        .cloned()
        .unwrap_or_default()
}

/// The auto-allocated addresses, IPv4 and IPv6, if the proxy resolves hosts to them.
fn auto_allocated(view: &View<'_>, service: &Service) -> [Option<IpAddr>; 2] {
    if service.auto_ipv4.is_none() && service.auto_ipv6.is_none() {
        return [None, None];
    }
    let proxy = view.proxy();
    let resolves = proxy.meta_bool("DNS_CAPTURE") || proxy.kind() == ProxyKind::Waypoint;
    let allocated = view.mesh().settings.ip_autoallocate || proxy.meta_bool("DNS_AUTO_ALLOCATE");
    if resolves && allocated {
        [service.auto_ipv4, service.auto_ipv6]
    } else {
        [None, None]
    }
}

/// The addresses of one family: that of the first address if the proxy has both families, else the
/// one that the proxy has. CIDRs count by their base; invalid addresses are skipped.
fn of_families(addresses: Vec<Arc<str>>, families: IpFamilies) -> Vec<Arc<str>> {
    let is_v4 = |address: &str| {
        let base = address.split_once('/').map_or(address, |(base, _)| base);
        base.parse::<IpAddr>().ok().map(|ip| ip.is_ipv4())
    };
    let both = families.has_v4() && families.has_v6();
    let wanted = match addresses.first().and_then(|first| is_v4(first)) {
        Some(first) if both => Some(first),
        Some(_) | None if both => addresses.iter().filter_map(|address| is_v4(address)).max(),
        Some(_) | None => Some(families.has_v4()),
    };
    addresses
        .into_iter()
        .filter(|address| wanted.is_some() && is_v4(address) == wanted)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(addresses: &[&str], families: IpFamilies) -> Vec<String> {
        let addresses = addresses
            .iter()
            .map(|address| Arc::from(*address))
            .collect();
        of_families(addresses, families)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_proxy_of_both_families_takes_that_of_the_first_address() {
        let mixed = ["fd00::1", "10.0.0.1", "fd00::2"];
        assert_eq!(
            filtered(&mixed, IpFamilies::DualV4First),
            ["fd00::1", "fd00::2"]
        );
        assert_eq!(
            filtered(&["x", "fd00::1", "10.0.0.1"], IpFamilies::DualV4First),
            ["10.0.0.1"]
        );
    }

    #[test]
    fn a_proxy_of_one_family_takes_that_family_cidrs_included() {
        let mixed = ["fd00::/8", "10.0.0.0/8", "10.0.0.1", "not-an-address"];
        assert_eq!(filtered(&mixed, IpFamilies::V4), ["10.0.0.0/8", "10.0.0.1"]);
        assert_eq!(filtered(&mixed, IpFamilies::V6), ["fd00::/8"]);
        assert_eq!(filtered(&["fd00::1"], IpFamilies::V4), Vec::<String>::new());
    }
}

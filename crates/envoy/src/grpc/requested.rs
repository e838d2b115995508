//! Hosts and ports in requested listener names. Hosts may be short names in the client's namespace.

use std::collections::{BTreeMap, BTreeSet};

use super::{INBOUND, host_port};
use navarch_api::names::{Hostname, ResourceName};
use navarch_push::view::View;

/// The requested ports of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requested {
    /// The requested names; each gets listeners of its own.
    pub(super) names: BTreeSet<String>,
    /// The ports, as texts; `None` means all ports.
    ports: Option<BTreeSet<String>>,
}

impl Requested {
    pub(super) fn has_port(&self, port: u16) -> bool {
        self.ports
            .as_ref()
            .is_none_or(|ports| ports.contains(&port.to_string()))
    }
}

/// The hosts that listener names may refer to, with the requested ports. Names of server listeners
/// are skipped.
pub(super) fn by_host(
    view: &View<'_>,
    names: &BTreeSet<ResourceName>,
) -> BTreeMap<Hostname, Requested> {
    let mut hosts: BTreeMap<Hostname, Requested> = BTreeMap::new();

    for name in names
        .iter()
        .map(ResourceName::as_str)
        .filter(|name| !name.starts_with(INBOUND))
    {
        let (host_name, port) =
            host_port::split(name).map_or((name, None), |(host, port)| (host, Some(port)));
        for host in hosts_of(view, host_name) {
            let fresh = || Requested {
                names: BTreeSet::new(),
                ports: Some(BTreeSet::new()),
            };
            let requested = hosts.entry(host).or_insert_with(fresh);
            requested.names.insert(host_name.to_owned());
            match (port, &mut requested.ports) {
                (Some(port), Some(ports)) => _ = ports.insert(port.to_owned()),
                // A name without a port requests all ports.
                (_, ports) => *ports = None,
            }
        }
    }

    hosts
}

/// The hosts that a name may refer to: itself, and the full name if it is a short one.
pub(super) fn hosts_of(view: &View<'_>, name: &str) -> Vec<Hostname> {
    let proxy = view.proxy();
    let full = full_name(name, proxy.namespace().as_str(), &proxy.dns_domain());
    std::iter::once(name)
        .chain(full.as_deref())
        .map(Hostname::new)
        .collect()
}

/// The full name of a host without the client's DNS domain, or with only the first one or two
/// labels of it.
fn full_name(name: &str, namespace: &str, dns_domain: &str) -> Option<String> {
    if !name.contains('.') {
        return Some(format!("{name}.{dns_domain}"));
    }
    let with_service = format!("{namespace}.svc");
    [namespace, &with_service]
        .into_iter()
        .filter(|suffix| dns_domain.starts_with(suffix))
        .find_map(|suffix| {
            let short = name.strip_suffix(suffix)?.strip_suffix('.')?;
            Some(format!("{short}.{dns_domain}"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_within_the_clients_own_namespace() {
        let full = |name: &str| full_name(name, "web", "web.svc.cluster.local");
        for name in ["echo", "echo.web", "echo.web.svc"] {
            assert_eq!(
                full(name).as_deref(),
                Some("echo.web.svc.cluster.local"),
                "{name}"
            );
        }
        assert_eq!(full("echo.shop"), None);
        assert_eq!(full("echo.web.svc.cluster.local"), None);
        assert_eq!(
            full_name("echo.web", "web", "other.svc.cluster.local"),
            None
        );
    }
}

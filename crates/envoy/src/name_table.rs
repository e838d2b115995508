//! NDS: the names that the agent of a proxy resolves itself, with the addresses of each.
//!
//! A headless service resolves to the addresses of its pods, and each pod with a subdomain has a
//! name of its own. The entries of one service are a separate query, so that a changed endpoint
//! costs its service's entries and the table of all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use navarch_proto::istio::networking::nds::v1::NameTable;
use navarch_proto::istio::networking::nds::v1::name_table::NameInfo;

use super::build::encode;
use super::service_address::{self, UNSPECIFIED};
use super::sidecar_scope::{self, ServiceRef};
use navarch_api::names::ResourceName;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{Endpoint, Health, Registry, Resolution, Service};

/// The registry name of Kubernetes Services in tables.
const KUBERNETES: &str = "Kubernetes";
/// The registry name of ServiceEntries in tables.
const EXTERNAL: &str = "External";
/// The domain of services that clusters share (MCS); their short names are those of the cluster's
/// own services.
const CLUSTER_SET: &str = ".clusterset.local";

/// The entries of one service of an egress listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamesOf {
    /// The index of the egress listener.
    egress: usize,
    service: ServiceRef,
}

/// The names of one service.
#[derive(Clone, Debug, Default, PartialEq)]
struct Names {
    /// The service's host.
    host: String,
    /// The entry of the table; `None` if no address is known.
    own: Option<NameInfo>,
    /// The names of single pods.
    pods: BTreeMap<String, NameInfo>,
}

/// The names of all tables: there is one, with an empty name.
pub(super) fn names(_view: &View<'_>) -> Vec<ResourceName> {
    vec![ResourceName::default()]
}

pub(super) fn resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    name.is_empty().then(|| encode(&table(view)))
}

/// Combines the entries of all services. As in Istio, gateways and waypoints import no services:
/// the agent of one asks other DNS servers for all names.
fn table(view: &View<'_>) -> NameTable {
    let mut table: BTreeMap<String, NameInfo> = BTreeMap::new();
    if view.proxy().kind() != ProxyKind::Sidecar {
        return NameTable { table };
    }

    for egress in 0..sidecar_scope::egress_listeners(view).len() {
        for service in sidecar_scope::listener_services(view, egress).iter() {
            let names = view.get(&NamesOf {
                egress,
                service: service.clone(),
            });
            table.extend(
                names
                    .pods
                    .iter()
                    .map(|(host, info)| (host.clone(), info.clone())),
            );
            if let Some(own) = &names.own {
                add(&mut table, &names.host, own);
            }
        }
    }

    NameTable { table }
}

/// Adds the addresses of a service. A Kubernetes Service owns its host; other services share it.
fn add(table: &mut BTreeMap<String, NameInfo>, host: &str, own: &NameInfo) {
    match table.get_mut(host) {
        None => _ = table.insert(host.to_owned(), own.clone()),
        Some(known) if known.registry == KUBERNETES => {}
        Some(known) if own.registry == KUBERNETES => known.clone_from(own),
        Some(known) => known.ips.extend(own.ips.iter().cloned()),
    }
}

impl Query for NamesOf {
    type Value = Names;

    fn compute(&self, view: &View<'_>) -> Names {
        let Some(service) = sidecar_scope::listener_service(view, self.egress, &self.service)
        else {
            return Names::default();
        };

        let mut names = Names {
            host: service.key.hostname.to_string(),
            ..Names::default()
        };
        let addresses = service_address::all(view, &service);
        let own = if addresses.iter().any(|address| **address == *UNSPECIFIED) {
            if service.resolution != Resolution::Passthrough || service.ports.is_empty() {
                return names;
            }
            let pods = Pods::of(view, &service);
            names.pods = pods.named(&service);
            pods.addresses
        } else {
            addresses
                .iter()
                .filter(|address| is_address(address))
                .map(ToString::to_string)
                .collect()
        };

        if !own.is_empty() {
            names.own = Some(NameInfo {
                ips: own,
                ..short_names(&service)
            });
        }

        names
    }
}

/// The pods of a headless service that the proxy can reach.
#[derive(Default)]
struct Pods {
    /// The addresses of the service's own name.
    addresses: Vec<String>,
    /// The addresses by pod name, in the proxy's cluster.
    local: BTreeMap<PodName, Vec<String>>,
    /// The same for other clusters.
    remote: BTreeMap<PodName, Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PodName {
    /// The full name.
    host: String,
    /// `<hostname>.<subdomain>`.
    short: String,
}

impl Pods {
    /// Groups the endpoints of all ports, each pod once.
    fn of(view: &View<'_>, service: &Service) -> Self {
        let mut pods = Self::default();
        let Some(endpoints) = view.endpoints(&service.key) else {
            return pods;
        };

        let network = view.proxy().network();
        let cluster = view.proxy().cluster_id();
        let everywhere = view.mesh().settings.multicluster_headless;
        let mut seen: BTreeSet<&str> = BTreeSet::new();

        for endpoint in endpoints
            .endpoints
            .iter()
            .filter(|endpoint| is_usable(endpoint, service))
        {
            let workload = &endpoint.workload;
            let in_network = same_or_empty(workload.location.network.as_str(), network.as_str());
            let in_cluster = same_or_empty(workload.location.cluster.as_str(), cluster.as_str());
            let is_new = endpoint
                .addresses
                .first()
                .is_some_and(|address| seen.insert(address));
            if !is_new {
                continue;
            }
            let addresses = endpoint.addresses.iter().map(ToString::to_string);
            if let Some(dns) = workload.dns_name.as_ref().filter(|_| in_network) {
                let Some((_, domain)) = service.key.hostname.as_str().split_once('.') else {
                    continue;
                };

                let short = format!("{}.{}", dns.hostname, dns.subdomain);
                let name = PodName {
                    host: format!("{short}.{domain}"),
                    short,
                };
                let place = if in_cluster {
                    &mut pods.local
                } else {
                    &mut pods.remote
                };

                place.entry(name).or_default().extend(addresses.clone());
            }
            // Traffic to other networks must pass their gateways, so pod addresses there are
            // skipped.
            if in_network && (in_cluster || everywhere) {
                pods.addresses.extend(addresses);
            }
        }

        pods
    }

    /// The entries of single pods: those of the proxy's own cluster take precedence.
    fn named(&self, service: &Service) -> BTreeMap<String, NameInfo> {
        let all = self.remote.iter().chain(&self.local);
        let entry = |(name, addresses): (&PodName, &Vec<String>)| {
            let info = NameInfo {
                ips: addresses.clone(),
                registry: registry_name(service).to_owned(),
                namespace: service.key.namespace.to_string(),
                shortname: name.short.clone(),
                ..NameInfo::default()
            };
            (name.host.clone(), info)
        };
        all.map(entry).collect()
    }
}

/// Whether a name can resolve to an endpoint's addresses.
fn is_usable(endpoint: &Arc<Endpoint>, service: &Service) -> bool {
    endpoint.addresses.iter().all(|address| is_address(address))
        && (service.kubernetes.publish_not_ready || endpoint.health == Health::Healthy)
}

/// Whether two ids are equal, or one of them is empty.
fn same_or_empty(a: &str, b: &str) -> bool {
    a.is_empty() || b.is_empty() || a == b
}

/// Whether the text is an IP address: not a CIDR, and not a name.
fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// The registry name of a service in tables.
fn registry_name(service: &Service) -> &'static str {
    match service.registry {
        Registry::Kubernetes => KUBERNETES,
        Registry::External => EXTERNAL,
    }
}

/// The fields from which the agent derives short names; only set for Kubernetes Services.
fn short_names(service: &Service) -> NameInfo {
    let mut info = NameInfo {
        registry: registry_name(service).to_owned(),
        ..NameInfo::default()
    };
    if service.registry == Registry::Kubernetes
        && !service.key.hostname.as_str().ends_with(CLUSTER_SET)
    {
        info.namespace = service.key.namespace.to_string();
        info.shortname = service.name.to_string();
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(registry: &str, ip: &str) -> NameInfo {
        NameInfo {
            registry: registry.to_owned(),
            ips: vec![ip.to_owned()],
            ..NameInfo::default()
        }
    }

    #[test]
    fn a_kubernetes_service_takes_its_host_and_others_share_it() {
        let mut table = BTreeMap::new();
        add(&mut table, "host", &info(EXTERNAL, "1.1.1.1"));
        add(&mut table, "host", &info(EXTERNAL, "2.2.2.2"));
        assert_eq!(table["host"].ips, ["1.1.1.1", "2.2.2.2"]);
        add(&mut table, "host", &info(KUBERNETES, "3.3.3.3"));
        assert_eq!(table["host"], info(KUBERNETES, "3.3.3.3"));
        add(&mut table, "host", &info(EXTERNAL, "1.1.1.1"));
        assert_eq!(table["host"], info(KUBERNETES, "3.3.3.3"));
    }
}

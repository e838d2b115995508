//! Cluster-local hosts, which are served only from the client's own cluster.

use std::collections::BTreeMap;

use navarch_api::hostname;
use navarch_api::mesh::MeshConfig;
use navarch_api::names::Hostname;
use navarch_push::query::Query;
use navarch_push::view::View;

/// Namespaces whose services are always local.
const LOCAL_NAMESPACES: [&str; 1] = ["kube-system"];
/// Services that are always local.
const LOCAL_SERVICES: [&str; 1] = ["kubernetes.default.svc"];

/// The cluster-local hosts of the mesh.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct LocalHosts;

/// Cluster-local hosts and patterns, and whether they are local.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLocalHosts(BTreeMap<String, bool>);

impl ClusterLocalHosts {
    /// From the settings of a mesh whose services are under `domain`.
    #[must_use]
    pub fn of(mesh: &MeshConfig, domain: &str) -> Self {
        Self(local_hosts(mesh, domain))
    }

    /// Whether a host is cluster-local: the most specific setting decides.
    #[must_use]
    pub fn contains(&self, host: &Hostname) -> bool {
        if let Some(local) = self.0.get(host.as_str()) {
            return *local;
        }
        let covers = |(pattern, _): &(&String, &bool)| {
            hostname::is_wildcard(pattern) && hostname::is_subset_of(host.as_str(), pattern)
        };
        let closest = self
            .0
            .iter()
            .filter(covers)
            .min_by(|(a, _), (b, _)| hostname::compare_specificity(a, b));
        closest.is_some_and(|(_, local)| *local)
    }
}

/// Whether a host is cluster-local.
pub(super) fn is_cluster_local(view: &View<'_>, host: &Hostname) -> bool {
    view.get(&LocalHosts).contains(host)
}

/// The settings of a mesh, with Istio's defaults unless a setting overrides them.
fn local_hosts(mesh: &MeshConfig, domain: &str) -> BTreeMap<String, bool> {
    let mut defaults: Vec<String> = LOCAL_NAMESPACES
        .iter()
        .map(|name| format!("*.{name}.svc.{domain}"))
        .collect();
    defaults.extend(LOCAL_SERVICES.iter().map(|name| format!("{name}.{domain}")));
    let discovery = mesh
        .default_config
        .discovery_address
        .rsplit_once(':')
        .map_or("", |(host, _)| host);

    if discovery.ends_with(domain) {
        defaults.push(discovery.to_owned());
    } else if !discovery.is_empty() {
        defaults.push(format!("{discovery}.{domain}"));
    }

    let mut hosts = BTreeMap::new();

    for service in &mesh.service_settings {
        let local = service
            .settings
            .as_ref()
            .is_some_and(|settings| settings.cluster_local);

        for host in &service.hosts {
            if !local {
                defaults.retain(|default| {
                    host != default
                        && !default
                            .strip_prefix('*')
                            .is_some_and(|suffix| host.ends_with(suffix))
                });
            }
            hosts.insert(host.clone(), local);
        }
    }

    hosts.extend(defaults.into_iter().map(|host| (host, true)));
    hosts
}

impl Query for LocalHosts {
    type Value = ClusterLocalHosts;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        ClusterLocalHosts::of(&view.mesh().config, &view.mesh().settings.domain_suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::mesh::{ServiceSettings, Settings};

    #[test]
    fn default_cluster_local_hosts_can_be_overridden() {
        let mut mesh = MeshConfig::istio_defaults();
        let hosts = local_hosts(&mesh, "cluster.local");
        assert_eq!(hosts.get("*.kube-system.svc.cluster.local"), Some(&true));
        assert_eq!(
            hosts.get("istiod.istio-system.svc.cluster.local"),
            Some(&true)
        );
        mesh.service_settings = vec![ServiceSettings {
            settings: Some(Settings {
                cluster_local: false,
            }),
            hosts: vec!["dns.kube-system.svc.cluster.local".to_owned()],
        }];
        let hosts = local_hosts(&mesh, "cluster.local");
        assert_eq!(hosts.get("*.kube-system.svc.cluster.local"), None);
        assert_eq!(hosts.get("dns.kube-system.svc.cluster.local"), Some(&false));
    }
}

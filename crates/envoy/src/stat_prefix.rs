//! Stat names of clusters and TCP filter chains, by the patterns of mesh config.

use navarch_push::view::View;
use navarch_registry::model::{Registry, Service};

/// The part of a service that a stat name is for.
#[derive(Clone, Copy, Debug)]
pub struct StatService<'a> {
    /// The requested host.
    pub host: &'a str,
    /// The subset, empty for the whole service.
    pub subset: &'a str,
    /// The service port, for `%SERVICE_PORT%`; 0 if the traffic is of no service.
    pub port: u16,
    /// For `%SERVICE_PORT_NAME%`, such as `http`.
    pub port_name: &'a str,
}

/// The stat name of outbound traffic to a service; `default` unless mesh config has a pattern.
#[must_use]
pub fn outbound(view: &View<'_>, service: &Service, of: StatService<'_>, default: &str) -> String {
    let pattern = &view.mesh().config.outbound_cluster_stat_name;
    if pattern.is_empty() {
        return default.to_owned();
    }
    let short = short_names(service, of.host);
    fill(pattern, of, &short).replace("%TARGET_PORT%", "0")
}

/// The stat name of inbound traffic for a service; `default` unless mesh config has a pattern.
#[must_use]
pub fn inbound(view: &View<'_>, names: &ShortNames, of: StatService<'_>, default: &str) -> String {
    let pattern = &view.mesh().config.inbound_cluster_stat_name;
    if pattern.is_empty() {
        default.to_owned()
    } else {
        fill(pattern, of, names)
    }
}

/// The short names of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShortNames {
    /// `name.namespace` of a Kubernetes Service, else the host.
    pub qualified: String,
    /// The name of a Kubernetes Service, else the host.
    pub name: String,
}

impl ShortNames {
    /// With the namespace, whatever the registry of the service.
    #[must_use]
    pub fn in_namespace(service: &Service) -> Self {
        Self {
            qualified: format!("{}.{}", service.name, service.key.namespace),
            name: service.name.to_string(),
        }
    }
}

/// The short name of a service, given the requested host.
#[must_use]
pub fn short_names(service: &Service, host: &str) -> ShortNames {
    match service.registry {
        Registry::Kubernetes => ShortNames::in_namespace(service),
        Registry::External => ShortNames {
            qualified: host.to_owned(),
            name: host.to_owned(),
        },
    }
}

/// Substitutes the variables of the pattern.
fn fill(pattern: &str, of: StatService<'_>, short: &ShortNames) -> String {
    pattern
        .replace("%SERVICE%", &short.qualified)
        .replace("%SERVICE_NAME%", &short.name)
        .replace("%SERVICE_FQDN%", of.host)
        .replace("%SUBSET_NAME%", of.subset)
        .replace("%SERVICE_PORT%", &of.port.to_string())
        .replace("%SERVICE_PORT_NAME%", of.port_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_pattern_is_filled() {
        let of = StatService {
            host: "web.shop.svc.cluster.local",
            subset: "v1",
            port: 80,
            port_name: "http",
        };
        let short = ShortNames {
            qualified: "web.shop".to_owned(),
            name: "web".to_owned(),
        };
        let pattern = "%SERVICE%_%SERVICE_NAME%_%SERVICE_FQDN%_%SUBSET_NAME%_%SERVICE_PORT%_%SERVICE_PORT_NAME%";
        assert_eq!(
            fill(pattern, of, &short),
            "web.shop_web_web.shop.svc.cluster.local_v1_80_http"
        );
    }
}

//! Names under which clusters count, by the mesh's patterns.

use crate::registry::model::{Registry, Service, ServicePort};

/// What a pattern may name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    /// The service.
    pub(super) service: &'a Service,
    /// Its port.
    pub(super) port: &'a ServicePort,
    /// The subset; empty for none.
    pub(super) subset: &'a str,
    /// The port of the workload; 0 for outbound clusters.
    pub(super) target_port: u16,
}

/// Fills a pattern in.
pub(super) fn fill(pattern: &str, named: Named<'_>) -> String {
    let Named { service, port, subset, target_port } = named;
    let host = service.key.hostname.as_str();
    let (short, name) = match service.registry {
        Registry::Kubernetes => (format!("{}.{}", service.name, service.key.namespace), service.name.to_string()),
        Registry::External => (host.to_owned(), host.to_owned()),
    };
    pattern
        .replace("%SERVICE%", &short)
        .replace("%SERVICE_NAME%", &name)
        .replace("%SERVICE_FQDN%", host)
        .replace("%SUBSET_NAME%", subset)
        .replace("%TARGET_PORT%", &target_port.to_string())
        .replace("%SERVICE_PORT%", &port.port.to_string())
        .replace("%SERVICE_PORT_NAME%", port.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_filled_in() {
        let service = crate::envoy::endpoints::tests::a_service();
        let named = Named { service: &service, port: &service.ports[0], subset: "v1", target_port: 8080 };
        let pattern =
            "%SERVICE%|%SERVICE_NAME%|%SERVICE_FQDN%|%SUBSET_NAME%|%TARGET_PORT%|%SERVICE_PORT%|%SERVICE_PORT_NAME%";
        assert_eq!(fill(pattern, named), "reviews.shop|reviews|reviews.shop.svc.cluster.local|v1|8080|80|http");
    }
}

//! The services that a gateway needs clusters for, if it does not get those of all visible
//! services.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::patches::referenced_services;
use crate::{authentication, gateway, sidecar_scope, virtual_service};
use navarch_api::mesh::ExtensionProvider;
use navarch_api::names::{Hostname, Namespace};
use navarch_push::proxy::ProxyKind;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

/// Which services the proxy needs clusters for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceFilter {
    /// Hosts in any namespace.
    hosts: BTreeSet<Hostname>,
    /// Services of one namespace.
    services: BTreeSet<ServiceKey>,
}

/// The services that the proxy's routes, its EnvoyFilters and the mesh's extension providers
/// reference.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct GatewayServiceFilter;

/// The services that its EnvoyFilters, the mesh's extension providers and the issuers of its tokens
/// reference.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ExtensionServiceFilter;

/// The services that EnvoyFilters of the view's proxy, extension providers and issuers of tokens
/// reference.
pub(crate) fn named_by_extensions(view: &View<'_>) -> Arc<ServiceFilter> {
    view.get(&ExtensionServiceFilter)
}

/// The services that the proxy needs clusters for; `None` means all visible ones.
pub(super) fn needed_services(view: &View<'_>) -> Option<Arc<ServiceFilter>> {
    let filtered =
        view.mesh().settings.filter_gateway_clusters && view.proxy().kind() == ProxyKind::Router;
    filtered.then(|| view.get(&GatewayServiceFilter))
}

impl ServiceFilter {
    /// Whether a service is needed.
    pub(crate) fn contains(&self, service: &ServiceKey) -> bool {
        self.hosts.contains(&service.hostname) || self.services.contains(service)
    }

    /// Adds a service as referenced in mesh config: a host, or `namespace/host`.
    fn add(&mut self, name: &str) {
        match name.split_once('/') {
            Some((namespace, host)) => _ = self.services.insert(ServiceKey::new(namespace, host)),
            None => _ = self.hosts.insert(Hostname::new(name)),
        }
    }
}

/// The service of an extension provider, if any.
fn service_of(provider: &ExtensionProvider) -> Option<&str> {
    let ExtensionProvider {
        envoy_ext_authz_http,
        envoy_ext_authz_grpc,
        zipkin,
        datadog,
        skywalking,
        opentelemetry,
        envoy_http_als,
        envoy_tcp_als,
        envoy_otel_als,
        sds,
        ..
    } = provider;

    let services = [
        envoy_ext_authz_http
            .as_ref()
            .map(|provider| &provider.service),
        envoy_ext_authz_grpc
            .as_ref()
            .map(|provider| &provider.service),
        zipkin.as_ref().map(|provider| &provider.service),
        datadog.as_ref().map(|provider| &provider.service),
        skywalking.as_ref().map(|provider| &provider.service),
        opentelemetry.as_ref().map(|provider| &provider.service),
        envoy_http_als.as_ref().map(|provider| &provider.service),
        envoy_tcp_als.as_ref().map(|provider| &provider.service),
        envoy_otel_als.as_ref().map(|provider| &provider.service),
        sds.as_ref().map(|provider| &provider.service),
    ];

    services.into_iter().flatten().next().map(String::as_str)
}

impl Query for ExtensionServiceFilter {
    type Value = ServiceFilter;

    fn compute(&self, view: &View<'_>) -> ServiceFilter {
        let mut wanted = ServiceFilter::default();

        for service in view
            .mesh()
            .config
            .extension_providers
            .iter()
            .filter_map(service_of)
        {
            wanted.add(service);
        }
        for service in referenced_services(view).iter() {
            wanted.add(service);
        }

        wanted.hosts.extend(
            authentication::key_hosts(view)
                .into_iter()
                .map(Hostname::new),
        );

        wanted
    }
}

impl Query for GatewayServiceFilter {
    type Value = ServiceFilter;

    fn compute(&self, view: &View<'_>) -> ServiceFilter {
        let mesh = view.mesh();
        let mut wanted = (*view.get(&ExtensionServiceFilter)).clone();

        for gateway in gateway::serving_gateways(view).iter() {
            // If gateways are limited to their namespace, so are routes that reference the
            // namespaces of their clients.
            let own = gateway
                .split_once('/')
                .map(|(namespace, _)| Namespace::new(namespace));

            for name in sidecar_scope::gateway_virtual_services(view, gateway).iter() {
                let destinations = virtual_service::destinations(view, name);
                let destinations = match own
                    .as_ref()
                    .filter(|_| mesh.settings.scope_gateway_to_namespace)
                {
                    Some(namespace) => destinations.from_namespace(Some(namespace)),
                    None => destinations.all(),
                };
                wanted.hosts.extend(destinations.into_keys());
            }
        }

        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_by_host_or_by_namespace_and_host() {
        let mut wanted = ServiceFilter::default();
        wanted.add("shop/tracing.example");
        wanted.add("authz.example");
        assert!(wanted.contains(&ServiceKey::new("shop", "tracing.example")));
        assert!(!wanted.contains(&ServiceKey::new("bank", "tracing.example")));
        assert!(wanted.contains(&ServiceKey::new("bank", "authz.example")));
    }
}

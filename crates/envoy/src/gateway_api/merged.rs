//! VirtualServices of routes. Those of HTTP and gRPC with the same parent and host are merged,
//! since the order of rules applies to all routes together (istiod's `mergeHTTPRoutes`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::inference_pools::RulePickers;
use super::l4_rules;
use super::order;
use super::route_kinds::{RouteKind, RouteName};
use super::routes::{Rules, RulesOf};
use super::virtual_service_heads::{HeadOf, RoutePart, heads_at};
use super::{GATEWAY_SEMANTICS, PARENTS, ROUTE_SEMANTICS};
use navarch_api::istio::{HttpMatchRequest, HttpRoute, MESH_GATEWAY, VirtualService};
use navarch_api::object::{NamespacedName, Object, ObjectMeta};
use navarch_push::query::Query;
use navarch_push::view::View;

/// The VirtualService of this name that is generated from routes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GeneratedVirtualService(pub(super) NamespacedName);

/// The endpoint pickers of the rules of a VirtualService.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PickersOf(NamespacedName);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RoutesOfGateway(Arc<str>);

impl RoutePart {
    fn rules(&self, view: &View<'_>) -> Arc<Rules> {
        let mesh = *self.binding.gateway == *MESH_GATEWAY;
        (*view.get(&RulesOf {
            route: self.route.clone(),
            mesh,
        }))
        .clone()
    }

    /// The source, for an annotation.
    fn origin(&self) -> String {
        format!(
            "{}/{}.{}",
            self.route.kind.as_str(),
            self.route.name.name,
            self.route.name.namespace
        )
    }
}

impl Query for GeneratedVirtualService {
    type Value = Option<Arc<Object<VirtualService>>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let head = (*view.get(&HeadOf(self.0.clone()))).clone()?;
        let mut spec = VirtualService {
            hosts: head
                .parts
                .first()
                .map(|part| part.binding.host.clone())
                .into_iter()
                .collect(),
            gateways: vec![head.gateway.to_string()],
            ..VirtualService::default()
        };

        for part in &head.parts {
            let rules = part.rules(view);
            let binding = &part.binding;

            match part.route.kind {
                RouteKind::Http | RouteKind::Grpc => {
                    spec.http.extend(http_for_port(&rules.http, binding.port))
                }
                RouteKind::Tls if *binding.gateway == *MESH_GATEWAY => {
                    let routes =
                        l4_rules::tls_for_parent(&rules.tls, binding.port, &binding.parent_hosts);
                    spec.tls
                        .extend(l4_rules::tls_for_host(&routes, &binding.host));
                }
                RouteKind::Tls if binding.listener_host.is_empty() => {
                    spec.tls.extend(rules.tls.iter().cloned())
                }
                RouteKind::Tls => spec.tls.extend(l4_rules::tls_for_listener(
                    &rules.tls,
                    &binding.listener_host,
                )),
                RouteKind::Tcp => match binding.port {
                    Some(port) => spec.tcp.extend(l4_rules::tcp_for_port(&rules.tcp, port)),
                    None => spec.tcp.extend(rules.tcp.iter().cloned()),
                },
            }
        }

        order::sort(&mut spec.http);
        let origins: Vec<String> = head.parts.iter().map(RoutePart::origin).collect();
        let annotations = [
            (PARENTS, origins.join(",")),
            (ROUTE_SEMANTICS, GATEWAY_SEMANTICS.to_owned()),
        ];
        let annotations = annotations
            .into_iter()
            .map(|(key, value)| (Arc::from(key), Arc::from(value)));

        let meta = ObjectMeta {
            key: self.0.clone(),
            created: head.created,
            annotations: annotations.collect(),
            ..ObjectMeta::default()
        };

        Some(Arc::new(Object { meta, spec }))
    }
}

/// HTTP routes, for one port if a parent in the mesh has one.
fn http_for_port(routes: &[HttpRoute], port: Option<u32>) -> Vec<HttpRoute> {
    let mut routes = routes.to_vec();
    for route in routes.iter_mut().filter(|_| port.is_some()) {
        if route.matches.is_empty() {
            route.matches.push(HttpMatchRequest::default());
        }
        route
            .matches
            .iter_mut()
            .for_each(|one| one.port = port.unwrap_or_default());
    }
    routes
}

impl Query for PickersOf {
    type Value = Arc<BTreeMap<String, RulePickers>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Some(head) = (*view.get(&HeadOf(self.0.clone()))).clone() else {
            return Arc::default();
        };
        let mut pickers = BTreeMap::new();
        for part in &head.parts {
            pickers.extend(
                part.rules(view)
                    .pickers
                    .iter()
                    .map(|(name, pickers)| (name.clone(), pickers.clone())),
            );
        }
        Arc::new(pickers)
    }
}

impl Query for RoutesOfGateway {
    type Value = BTreeSet<RouteName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let heads = heads_at(view, &self.0);
        heads
            .values()
            .flat_map(|head| &head.parts)
            .map(|part| part.route.clone())
            .collect()
    }
}

/// The VirtualService of this name, if it is generated from routes.
pub(crate) fn virtual_service(
    view: &View<'_>,
    name: &NamespacedName,
) -> Option<Arc<Object<VirtualService>>> {
    (*view.get(&GeneratedVirtualService(name.clone()))).clone()
}

/// The endpoint pickers of a VirtualService, by name of the rule.
pub(super) fn pickers(
    view: &View<'_>,
    name: &NamespacedName,
) -> Arc<BTreeMap<String, RulePickers>> {
    (*view.get(&PickersOf(name.clone()))).clone()
}

/// The routes that are bound to a Gateway, as `namespace/name`.
pub(super) fn routes_of_gateway(view: &View<'_>, gateway: &Arc<str>) -> Arc<BTreeSet<RouteName>> {
    view.get(&RoutesOfGateway(gateway.clone()))
}

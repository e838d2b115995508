//! The HTTP routes of a VirtualService.

use std::collections::BTreeMap;

use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::Metadata;
use navarch_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use navarch_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use navarch_proto::envoy::config::route::v3::{Decorator, Route, route, route_match};
use prost_types::{Any, Struct, Value, value};

use super::context::{RouteClient, RouteContext};
use super::settings::RouteSettings;
use super::{
    action, cors, fault, header_formats, headers, matchers, on_demand, redirect, regex_size,
    stateful_session,
};
use crate::filters::ext_proc;
use crate::gateway_api;
use crate::names::{OutboundCluster, VipCluster};
use crate::virtual_service::{self, RouteSemantics};
use navarch_api::istio::{HttpMatchRequest, HttpRoute};
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::NamespacedName;

/// The routes of a VirtualService in a context: those whose matches apply to the proxy, up to the
/// first that matches everything.
#[must_use]
pub fn http_routes(context: &RouteContext<'_>, name: &NamespacedName) -> Vec<Route> {
    let Some(spec) = virtual_service::merged(context.view, name) else {
        return Vec::new();
    };

    let source = Source {
        name,
        semantics: virtual_service::semantics(context.view, name),
    };
    let mut routes = Vec::new();

    for declared in &spec.http {
        if declared.matches.is_empty() {
            push(
                context,
                &source,
                translate(context, &source, declared, None),
                &mut routes,
            );
            return routes;
        }

        for matched in declared
            .matches
            .iter()
            .filter(|matched| applies(context, matched))
        {
            let route = translate(context, &source, declared, Some(matched));
            let is_last = route.r#match.as_ref().is_some_and(matchers::is_catch_all);
            push(context, &source, route, &mut routes);
            if is_last {
                return routes;
            }
        }
    }

    routes
}

/// Adds a route unless its action is invalid: Envoy would reject all other routes because of it.
fn push(
    context: &RouteContext<'_>,
    source: &Source<'_>,
    mut route: Route,
    routes: &mut Vec<Route>,
) {
    let fault = fault_of(&route)
        .map(str::to_owned)
        .or_else(|| regex_size::fault(&route));
    let Some(fault) = fault else {
        header_formats::leave_out_rejected(context.view, source.name, &mut route);
        routes.push(route);
        return;
    };
    let object = source.name;
    let name = &route.name;
    context.view.remark(format!(
        "VirtualService {object}: route {name:?} is ignored: {fault}"
    ));
}

/// Why Envoy would reject a route, if it would.
fn fault_of(route: &Route) -> Option<&'static str> {
    match &route.action {
        None => Some("Envoy does not support its redirectCode; use 301, 302, 303, 307 or 308"),
        Some(route::Action::Route(action)) => match &action.cluster_specifier {
            Some(ClusterSpecifier::WeightedClusters(all)) => {
                let weights = all
                    .clusters
                    .iter()
                    .map(|cluster| u64::from(cluster.weight.unwrap_or_default()));
                let sum: u64 = weights.sum();
                (sum == 0 || sum > u64::from(u32::MAX)).then_some(
                    "the weights of its destinations add up to 0, or to more than Envoy's maximum",
                )
            }
            Some(_) | None => None,
        },
        Some(_) => None,
    }
}

/// Whether a VirtualService has any route in a context. Translates no routes.
pub(super) fn has_routes(context: &RouteContext<'_>, name: &NamespacedName) -> bool {
    virtual_service::merged(context.view, name).is_some_and(|spec| {
        spec.http.iter().any(|route| {
            route.matches.is_empty()
                || route
                    .matches
                    .iter()
                    .any(|matched| applies(context, matched))
        })
    })
}

/// The source VirtualService of a route.
struct Source<'a> {
    name: &'a NamespacedName,
    semantics: RouteSemantics,
}

/// Whether a match applies to this port, gateway and proxy. If gateways are set, only they decide.
fn applies(context: &RouteContext<'_>, matched: &HttpMatchRequest) -> bool {
    // The labels of clients in ambient mode are unknown.
    if context.client == RouteClient::Waypoint && !matched.source_labels.is_empty() {
        return false;
    }

    if matched.port != 0 && matched.port != u32::from(context.listen_port) {
        return false;
    }

    if !matched.gateways.is_empty() {
        return matched
            .gateways
            .iter()
            .any(|gateway| context.gateways.contains(gateway));
    }

    let proxy = context.view.proxy();
    let labels = matched
        .source_labels
        .iter()
        .map(|(key, value)| (key.as_str().into(), value.as_str().into()));

    proxy.selected_by(&labels.collect())
        && (matched.source_namespace.is_empty()
            || proxy
                .namespace_among([Namespace::new(&matched.source_namespace)])
                .is_some())
}

/// The route of one match.
fn translate(
    context: &RouteContext<'_>,
    source: &Source<'_>,
    declared: &HttpRoute,
    matched: Option<&HttpMatchRequest>,
) -> Route {
    let mut out = Route {
        name: route_name(declared, matched),
        r#match: Some(matched.map_or_else(matchers::everything, |matched| {
            matchers::route_match(matched, source.semantics)
        })),
        metadata: Some(config_metadata(source.name)),
        stat_prefix: matched
            .map(|matched| matched.stat_prefix.clone())
            .unwrap_or_default(),
        ..Route::default()
    };

    let changes = declared
        .headers
        .as_deref()
        .map(headers::changes)
        .unwrap_or_default();
    out.request_headers_to_add = changes.request_add;
    out.request_headers_to_remove = changes.request_remove;
    out.response_headers_to_add = changes.response_add;

    out.response_headers_to_remove = changes.response_remove;
    let mut services = Vec::new();

    if let Some(declared) = &declared.redirect {
        let redirect = redirect::redirect(declared, context.listen_port, context.is_tls);
        out.action = redirect.map(route::Action::Redirect);
    } else if let Some(declared) = &declared.direct_response {
        out.action = Some(route::Action::DirectResponse(redirect::direct_response(
            declared,
        )));
    } else {
        services = action::forward(
            &mut out,
            context,
            declared,
            source.semantics,
            changes.authority,
        );
    }

    out.decorator = Some(Decorator {
        operation: operation(&out, source.name, context.listen_port),
        propagate: None,
    });
    let settings = context.view.get(&RouteSettings);
    let sessions = services.iter().map(|service| {
        service.as_ref().and_then(|service| {
            stateful_session::per_route(service, settings.session_labels.as_ref())
        })
    });
    out.typed_per_filter_config = filter_config(declared, first_of_last_run(sessions));

    if source.semantics == RouteSemantics::Gateway {
        let pickers = gateway_api::endpoint_pickers(context.view, source.name);
        if let Some(pickers) = pickers.get(&declared.name) {
            ext_proc::set_pickers(&mut out, pickers);
        }
    }

    on_demand::except_missing(context, &mut out);

    if context.advertises_http3 {
        let value = format!("h3=\":{}\"; ma=86400", context.listen_port);
        out.response_headers_to_add.push(headers::header(
            "alt-svc",
            &value,
            HeaderAppendAction::AppendIfExistsOrAdd,
        ));
    }

    out
}

/// `route`, or `route.match` if the match has a name.
fn route_name(declared: &HttpRoute, matched: Option<&HttpMatchRequest>) -> String {
    match matched.map(|matched| matched.name.as_str()) {
        None | Some("") => declared.name.clone(),
        Some(matched) => format!("{}.{matched}", declared.name),
    }
}

/// Per-route filter configuration.
fn filter_config(declared: &HttpRoute, session: Option<Any>) -> BTreeMap<String, Any> {
    let fault = declared
        .fault
        .as_deref()
        .map(|fault| ("envoy.filters.http.fault", pack(&fault::injection(fault))));
    let cors = declared
        .cors_policy
        .as_deref()
        .map(|cors| ("envoy.filters.http.cors", pack(&cors::policy(cors))));
    let session = session.map(|session| (stateful_session::FILTER, session));
    let all = [fault, cors, session].into_iter().flatten();
    all.map(|(filter, config)| (filter.to_owned(), config))
        .collect()
}

/// The session that Istio uses for several destinations: a destination without a session discards
/// the previous one, and of two consecutive sessions the first is used.
fn first_of_last_run(sessions: impl Iterator<Item = Option<Any>>) -> Option<Any> {
    let mut picked = None;
    for session in sessions {
        if picked.is_some() && session.is_some() {
            break;
        }
        picked = session;
    }
    picked
}

/// Route metadata with the source object, for config dumps.
fn config_metadata(name: &NamespacedName) -> Metadata {
    let path = format!(
        "/apis/networking.istio.io/v1/namespaces/{}/virtual-service/{}",
        name.namespace, name.name
    );
    let config = Value {
        kind: Some(value::Kind::StringValue(path)),
    };
    let istio = Struct {
        fields: [("config".to_owned(), config)].into(),
    };
    Metadata {
        filter_metadata: [("istio".to_owned(), istio)].into(),
        ..Metadata::default()
    }
}

/// The span name of a route: host and port of its only cluster, else the VirtualService and the
/// listener's port, with the path.
fn operation(out: &Route, name: &NamespacedName, listen_port: u16) -> String {
    use route_match::PathSpecifier;

    let path = match out
        .r#match
        .as_ref()
        .and_then(|matched| matched.path_specifier.as_ref())
    {
        Some(PathSpecifier::Prefix(prefix)) => format!("{prefix}*"),
        Some(PathSpecifier::Path(path)) => path.clone(),
        Some(PathSpecifier::SafeRegex(regex)) => regex.regex.clone(),
        Some(
            PathSpecifier::PathSeparatedPrefix(_)
            | PathSpecifier::ConnectMatcher(_)
            | PathSpecifier::PathMatchPolicy(_),
        )
        | None => "/*".to_owned(),
    };

    if let Some(route::Action::Route(action)) = &out.action
        && let Some(ClusterSpecifier::Cluster(cluster)) = &action.cluster_specifier
        && let Some((host, port)) = service_of_cluster(cluster)
    {
        return format!("{host}:{port}{path}");
    }
    format!("{}:{listen_port}{path}", name.name)
}

/// The host and port of a cluster's service.
fn service_of_cluster(cluster: &str) -> Option<(Hostname, u16)> {
    let outbound = OutboundCluster::parse(cluster).map(|cluster| (cluster.host, cluster.port));
    outbound.or_else(|| VipCluster::parse(cluster).map(|cluster| (cluster.host, cluster.port)))
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::config::route::v3::weighted_cluster::ClusterWeight;
    use navarch_proto::envoy::config::route::v3::{RouteAction, WeightedCluster};

    use super::*;

    #[test]
    fn weights_must_add_up_to_something() {
        let route = |weights: &[u32]| {
            let cluster = |weight: &u32| ClusterWeight {
                weight: Some(*weight),
                ..ClusterWeight::default()
            };
            let all = WeightedCluster {
                clusters: weights.iter().map(cluster).collect(),
                ..Default::default()
            };
            let specifier = Some(ClusterSpecifier::WeightedClusters(all));

            let action = RouteAction {
                cluster_specifier: specifier,
                ..RouteAction::default()
            };
            Route {
                action: Some(route::Action::Route(action)),
                ..Route::default()
            }
        };

        assert!(fault_of(&route(&[])).is_some());
        assert!(fault_of(&route(&[u32::MAX, 1])).is_some());
        assert!(fault_of(&route(&[1, 2])).is_none());
        assert!(fault_of(&Route::default()).is_some());
    }

    #[test]
    fn a_destination_without_a_session_forgets_the_ones_before_it() {
        let session = |name: &str| {
            Some(Any {
                type_url: name.to_owned(),
                value: Vec::new(),
            })
        };
        assert_eq!(
            first_of_last_run([session("a"), session("b")].into_iter()),
            session("a")
        );
        assert_eq!(first_of_last_run([session("a"), None].into_iter()), None);
        assert_eq!(
            first_of_last_run([session("a"), None, session("b")].into_iter()),
            session("b")
        );
    }
}

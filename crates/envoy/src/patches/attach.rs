//! Whether an EnvoyFilter applies to a proxy.

use std::sync::Arc;

use super::compiled::{CompiledFilter, Patch, VersionMatch};
use navarch_push::proxy::ProxyKind;
use navarch_push::proxy_view::ProxyView;
use navarch_push::view::View;

/// The label of Gateway API pods with the name of their Gateway.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
/// The group of Gateway and GatewayClass.
const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
const WAYPOINT_CLASS: &str = "istio-waypoint";

/// Whether a filter applies to the view's proxy. The caller has checked that its namespace is the
/// proxy's or the root namespace.
///
/// Target references only apply to gateways of the Gateway API, selectors to all proxies except
/// waypoints.
pub(super) fn attaches(view: &View<'_>, filter: &CompiledFilter) -> bool {
    let proxy = view.proxy();
    let labels = proxy.labels();
    let Some(gateway) = labels.get(GATEWAY_NAME) else {
        return filter.target_refs.is_empty() && selects(proxy, filter);
    };

    let is_waypoint = proxy.kind() == ProxyKind::Waypoint;

    if filter.target_refs.is_empty() {
        let by_selector = view.mesh().settings.selector_based_gateway_policy;
        return by_selector && !is_waypoint && selects(proxy, filter);
    }

    let root = &view.mesh().config.root_namespace;
    let namespace = proxy.namespace();
    filter.target_refs.iter().any(|target| {
        if target.group != GATEWAY_GROUP {
            return false;
        }
        let is_class = target.kind == "GatewayClass" && target.name == WAYPOINT_CLASS;
        if is_class && is_waypoint && filter.name.namespace.as_str() == root {
            return true;
        }
        let here = filter.name.namespace == namespace
            && (target.namespace.is_empty() || target.namespace == namespace.as_str());
        here && target.kind == "Gateway" && *target.name == **gateway
    })
}

/// Whether a filter's selector selects the proxy.
fn selects(proxy: ProxyView<'_>, filter: &CompiledFilter) -> bool {
    filter
        .selector
        .as_ref()
        .is_none_or(|selector| proxy.selected_by(selector))
}

/// Whether a patch applies to the proxy, by its metadata.
pub(super) fn matches_proxy(proxy: ProxyView<'_>, patch: &Patch) -> bool {
    let version: Option<Arc<str>> = proxy.meta("ISTIO_VERSION");
    let is_version = match &patch.version {
        VersionMatch::Any => true,
        VersionMatch::Never => false,
        VersionMatch::Pattern(pattern) => {
            version.is_some_and(|version| !version.is_empty() && pattern.is_match(&version))
        }
    };
    let metadata = patch.matches.proxy.iter().flat_map(|proxy| &proxy.metadata);
    is_version
        && metadata
            .into_iter()
            .all(|(key, value)| proxy.has_text(key, value))
}

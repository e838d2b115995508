//! Rules for EnvoyFilter: target, match, operation and value of each patch must be consistent, and
//! the value must be valid for Envoy.

mod value;

use super::path::Path;
use super::re2;
use super::scope::workload_selector;
use super::{Validate, Verdict};
use crate::istio::{
    ApplyTo, EnvoyConfigMatch, EnvoyConfigPatch, EnvoyFilter, EnvoyPatch, ListenerMatch,
    PatchContext, PatchOperation,
};
use crate::object::ObjectMeta;

/// The maximum length of a `proxyVersion` that is compiled; Istio's limit.
pub const MAX_PROXY_VERSION: usize = 1024;
/// The maximum number of patches of one object: each may be tried on every resource of a proxy.
pub const MAX_PATCHES: usize = 1024;
/// The maximum size of all patch values of one object as JSON, in bytes; an API server accepts no
/// larger objects.
pub(super) const MAX_VALUE_BYTES: usize = 1024 * 1024;

/// The filter that contains HTTP filters, by its current name.
const CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";
/// The same filter, by its old name.
const OLD_CONNECTION_MANAGER: &str = "envoy.http_connection_manager";

/// Old names of filters, which Navarch never generates, with their current names.
const OLD_FILTER_NAMES: [(&str, &str); 27] = [
    ("envoy.buffer", "envoy.filters.http.buffer"),
    ("envoy.cors", "envoy.filters.http.cors"),
    ("envoy.csrf", "envoy.filters.http.csrf"),
    ("envoy.http_dynamo_filter", "envoy.filters.http.dynamo"),
    ("envoy.ext_authz", "envoy.filters.http.ext_authz"),
    ("envoy.fault", "envoy.filters.http.fault"),
    (
        "envoy.grpc_http1_bridge",
        "envoy.filters.http.grpc_http1_bridge",
    ),
    (
        "envoy.grpc_json_transcoder",
        "envoy.filters.http.grpc_json_transcoder",
    ),
    ("envoy.grpc_web", "envoy.filters.http.grpc_web"),
    ("envoy.gzip", "envoy.filters.http.gzip"),
    ("envoy.health_check", "envoy.filters.http.health_check"),
    ("envoy.ip_tagging", "envoy.filters.http.ip_tagging"),
    ("envoy.lua", "envoy.filters.http.lua"),
    ("envoy.rate_limit", "envoy.filters.http.ratelimit"),
    ("envoy.router", "envoy.filters.http.router"),
    ("envoy.squash", "envoy.filters.http.squash"),
    (
        "envoy.listener.http_inspector",
        "envoy.filters.listener.http_inspector",
    ),
    (
        "envoy.listener.original_dst",
        "envoy.filters.listener.original_dst",
    ),
    (
        "envoy.listener.original_src",
        "envoy.filters.listener.original_src",
    ),
    (
        "envoy.listener.proxy_protocol",
        "envoy.filters.listener.proxy_protocol",
    ),
    (
        "envoy.listener.tls_inspector",
        "envoy.filters.listener.tls_inspector",
    ),
    (
        "envoy.client_ssl_auth",
        "envoy.filters.network.client_ssl_auth",
    ),
    (OLD_CONNECTION_MANAGER, CONNECTION_MANAGER),
    ("envoy.mongo_proxy", "envoy.filters.network.mongo_proxy"),
    ("envoy.ratelimit", "envoy.filters.network.ratelimit"),
    ("envoy.redis_proxy", "envoy.filters.network.redis_proxy"),
    ("envoy.tcp_proxy", "envoy.filters.network.tcp_proxy"),
];

impl Validate for EnvoyFilter {
    fn validate(&self, _: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let Self {
            workload_selector: selector,
            target_refs: _,
            config_patches,
            priority: _,
        } = self;

        let spec = Path::root("spec");
        verdict.warn(
            &spec,
            "changes the generated configuration of Envoy, which may differ between versions; prefer other kinds if possible",
        );
        let patches = &spec.field("configPatches");
        workload_selector(
            &mut verdict,
            &spec.field("workloadSelector"),
            selector.as_ref(),
        );

        if !verdict.is_valid() {
            verdict.warnings.clear();
            return verdict;
        }

        limits(&mut verdict, patches, config_patches);
        if !verdict.is_valid() {
            return verdict;
        }

        for (index, patch) in config_patches.iter().enumerate() {
            config_patch(&mut verdict, &patches.item(index), patch);
        }

        verdict
    }
}

/// Validates the size of all patches together, so that further validation is cheap for every
/// object.
fn limits(verdict: &mut Verdict, at: &Path<'_>, patches: &[EnvoyConfigPatch]) {
    if patches.len() > MAX_PATCHES {
        verdict.error(
            at,
            format!(
                "has {} patches; at most {MAX_PATCHES} are supported",
                patches.len()
            ),
        );
        return;
    }

    let values = patches
        .iter()
        .filter_map(|patch| patch.patch.as_ref()?.value.as_ref());
    let bytes: usize = values
        .map(|value| serde_json::to_vec(value).map_or(0, |json| json.len()))
        .sum();

    if bytes > MAX_VALUE_BYTES {
        verdict.error(
            at,
            format!("has values of {bytes} bytes; at most {MAX_VALUE_BYTES} are supported"),
        );
    }
}

/// Validates one patch. Stops at an error that makes the rest meaningless.
fn config_patch(verdict: &mut Verdict, at: &Path<'_>, config: &EnvoyConfigPatch) {
    let EnvoyConfigPatch {
        apply_to,
        matches,
        patch,
    } = config;
    if matches
        .as_ref()
        .is_some_and(|matches| matches.context == PatchContext::Waypoint)
    {
        return;
    }

    if *apply_to == ApplyTo::Invalid {
        verdict.error(
            &at.field("applyTo"),
            "is missing; write the type of the patched objects, such as CLUSTER",
        );
        return;
    }

    let patch_at = &at.field("patch");
    let Some(EnvoyPatch {
        operation,
        value,
        filter_class: _,
    }) = patch
    else {
        verdict.error(patch_at, "is missing; write the patch");
        return;
    };

    if *operation == PatchOperation::Invalid {
        verdict.error(
            &patch_at.field("operation"),
            "is missing; write the operation, such as MERGE",
        );
        return;
    }

    let value_at = &patch_at.field("value");

    if *operation != PatchOperation::Remove && value.is_none() {
        verdict.error(
            value_at,
            format!("is missing; {operation} needs Envoy's message, whole or in part"),
        );
        return;
    }

    if let Some(matches) = matches
        && !config_match(verdict, &at.field("match"), *apply_to, matches)
    {
        return;
    }
    if let Some(value) = value {
        value::value(verdict, value_at, *apply_to, value);
    }
}

/// Validates the match. Returns whether the rest of the patch is validated.
fn config_match(
    verdict: &mut Verdict,
    at: &Path<'_>,
    apply_to: ApplyTo,
    matches: &EnvoyConfigMatch,
) -> bool {
    let EnvoyConfigMatch {
        context: _,
        proxy,
        listener,
        route_configuration,
        cluster,
        waypoint,
    } = matches;

    if let Some(proxy) = proxy {
        let at = &at.field("proxy");
        let at = &at.field("proxyVersion");

        if proxy.proxy_version.len() > MAX_PROXY_VERSION {
            verdict.warn(
                at,
                format!("is longer than {MAX_PROXY_VERSION} bytes, so no proxy is matched"),
            );
        } else if let Err(reason) = re2::check(&proxy.proxy_version) {
            verdict.error(
                at,
                format!(
                    "{:?} is not an RE2 expression: {reason}",
                    proxy.proxy_version
                ),
            );
            return false;
        }
    }

    let members = [
        listener.is_some(),
        route_configuration.is_some(),
        cluster.is_some(),
        waypoint.is_some(),
    ];

    let count = members.into_iter().filter(|is_set| *is_set).count();
    if count > 1 {
        verdict.error(
            at,
            "has several kinds of objects; keep the one that matches applyTo",
        );
        return false;
    }

    let suits = match apply_to {
        ApplyTo::Listener | ApplyTo::FilterChain | ApplyTo::NetworkFilter | ApplyTo::HttpFilter => {
            listener.is_some()
        }
        ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute => {
            route_configuration.is_some()
        }
        ApplyTo::Cluster => cluster.is_some(),
        ApplyTo::Invalid
        | ApplyTo::ExtensionConfig
        | ApplyTo::Bootstrap
        | ApplyTo::ListenerFilter => true,
    };

    if count == 1 && !suits {
        verdict.error(
            at,
            format!("has a kind of object that does not match applyTo {apply_to}"),
        );
        // For routes and clusters, Istio validates the value nevertheless.
        return !matches!(
            apply_to,
            ApplyTo::Listener | ApplyTo::FilterChain | ApplyTo::NetworkFilter | ApplyTo::HttpFilter
        );
    }

    match listener {
        Some(listener) if apply_to != ApplyTo::ListenerFilter => {
            listener_match(verdict, &at.field("listener"), apply_to, listener)
        }
        Some(_) | None => true,
    }
}

/// Validates the match of a listener. Returns whether the rest of the patch is validated.
fn listener_match(
    verdict: &mut Verdict,
    at: &Path<'_>,
    apply_to: ApplyTo,
    listener: &ListenerMatch,
) -> bool {
    let Some(filter) = listener
        .filter_chain
        .as_ref()
        .and_then(|chain| chain.filter.as_ref())
    else {
        return true;
    };

    let at = &at.field("filterChain");
    let at = &at.field("filter");
    if matches!(apply_to, ApplyTo::Listener | ApplyTo::FilterChain) {
        verdict.warn(at, format!("has no effect on {apply_to}"));
    }

    let name_at = &at.field("name");

    if filter.name.is_empty() {
        verdict.error(name_at, "is missing; write the name of a network filter");
        return false;
    }

    let sub_at = &at.field("subFilter");

    if let Some(sub) = &filter.sub_filter {
        if apply_to != ApplyTo::HttpFilter {
            verdict.error(
                sub_at,
                format!("is for HTTP_FILTER only, not for {apply_to}"),
            );
            return false;
        }

        if !matches!(
            filter.name.as_str(),
            CONNECTION_MANAGER | OLD_CONNECTION_MANAGER
        ) {
            verdict.error(
                name_at,
                format!("must be {CONNECTION_MANAGER} where subFilter is set"),
            );
            return false;
        }

        if sub.name.is_empty() {
            verdict.error(
                &sub_at.field("name"),
                "is missing; write the name of an HTTP filter",
            );
            return false;
        }

        old_name(verdict, &sub_at.field("name"), &sub.name);
    }

    old_name(verdict, name_at, &filter.name);
    true
}

/// Warns of an old name that no filter has.
fn old_name(verdict: &mut Verdict, at: &Path<'_>, name: &str) {
    if let Some((_, now)) = OLD_FILTER_NAMES.iter().find(|(old, _)| *old == name) {
        verdict.warn(
            at,
            format!("{name:?} is an old name that no generated filter has; use {now:?}"),
        );
    }
}

#[cfg(test)]
mod tests;

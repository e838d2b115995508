//! Patches of network and HTTP filters.

use std::collections::{BTreeMap, BTreeSet};

use navarch_proto::any::pack;
use navarch_proto::envoy::config::listener::v3::{Filter, filter};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, http_filter,
};
use prost::Message;
use prost_types::Any;

use super::compiled::Patch;
use super::insert::place;
use super::matching::{matches_name, wanted_filter, wanted_sub_filter};
use super::merge::TargetAny;
use navarch_api::istio::{ApplyTo, PatchOperation};
use navarch_push::view::View;

/// The filter that contains HTTP filters.
const CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";

/// The terminal HTTP filter.
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
/// The terminal network filters.
const TERMINAL: [&str; 4] = [
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
    "envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy",
];

/// Applies patches to the filters of a chain. `patches` are those that match the chain, of all
/// types and in order.
pub(super) fn patch_filters(view: &View<'_>, patches: &[&Patch], filters: &mut Vec<Filter>) {
    let of_filters: Vec<&Patch> = patches
        .iter()
        .copied()
        .filter(|patch| patch.apply_to == ApplyTo::NetworkFilter)
        .collect();

    for patch in &of_filters {
        let wanted = wanted_filter(patch).map(|filter| filter.name.as_str());
        let matches = |filter: &Filter| matches_name(wanted, &filter.name);
        if place(
            filters,
            patch.operation,
            patch.value::<Filter>(),
            wanted.is_some(),
            matches,
        ) {
            patch.note(view);
        }
    }

    let ends = |filter: &Filter| match &filter.config_type {
        Some(filter::ConfigType::TypedConfig(config)) => {
            TERMINAL.iter().any(|name| config.type_url.ends_with(name))
        }
        Some(filter::ConfigType::ConfigDiscovery(_)) | None => false,
    };

    drop_unreachable(view, &of_filters, filters, ends, |filter| &filter.name);

    for filter in filters {
        merge_filter(view, &of_filters, filter);
        if filter.name == CONNECTION_MANAGER {
            patch_http_filters(view, patches, filter);
        }
    }
}

/// Removes filters that patches added after the terminal filter: they would be unreachable, so
/// Envoy rejects the chain.
fn drop_unreachable<T>(
    view: &View<'_>,
    patches: &[&Patch],
    filters: &mut Vec<T>,
    ends: impl Fn(&T) -> bool,
    name: impl Fn(&T) -> &str,
) {
    let Some(end) = filters.iter().position(ends) else {
        return;
    };

    let lost: Vec<T> = filters.drain((end + 1).min(filters.len())..).collect();
    if lost.is_empty() {
        return;
    }

    let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();

    for patch in patches {
        by_name
            .entry(patch.value_name())
            .or_default()
            .push(patch.describe());
    }

    let names: BTreeSet<&str> = lost.iter().map(name).collect();
    for name in names {
        let by = by_name
            .get(name)
            .map(|patches| patches.join(", "))
            .unwrap_or_default();
        view.remark(format!(
            "{by}: filter {name} is ignored: it would come after the terminal filter of its chain"
        ));
    }
}

/// Merges the matching patches into a network filter.
fn merge_filter(view: &View<'_>, patches: &[&Patch], filter: &mut Filter) {
    let Some(filter::ConfigType::TypedConfig(config)) = &mut filter.config_type else {
        return;
    };

    let mut config = TargetAny::new(config);
    for patch in patches
        .iter()
        .filter(|patch| patch.operation == PatchOperation::Merge)
    {
        if !matches_name(
            wanted_filter(patch).map(|filter| filter.name.as_str()),
            &filter.name,
        ) {
            continue;
        }

        let Some(value) = patch.value::<Filter>() else {
            continue;
        };
        if let Some(filter::ConfigType::TypedConfig(patched)) = &value.config_type {
            merge_config(view, patch, &filter.name, &mut config, patched);
        }
        if !value.name.is_empty() {
            filter.name = value.name;
        }
    }

    config.finish();
}

/// Merges the configuration of a filter; it is unchanged if the merge fails.
pub(super) fn merge_config(
    view: &View<'_>,
    patch: &Patch,
    filter: &str,
    config: &mut TargetAny<'_>,
    patched: &Any,
) {
    match config.merge(patched) {
        Ok(()) => patch.note(view),
        Err(error) => view.remark(format!(
            "{} does not apply to filter {filter}: {error}",
            patch.describe()
        )),
    }
}

/// Applies patches to the HTTP filters of a connection manager.
fn patch_http_filters(view: &View<'_>, patches: &[&Patch], filter: &mut Filter) {
    let names_manager = |patch: &Patch| {
        matches_name(
            wanted_filter(patch).map(|filter| filter.name.as_str()),
            CONNECTION_MANAGER,
        )
    };

    let patches: Vec<&Patch> = patches
        .iter()
        .copied()
        .filter(|patch| patch.apply_to == ApplyTo::HttpFilter && names_manager(patch))
        .collect();
    let Some(filter::ConfigType::TypedConfig(config)) = &mut filter.config_type else {
        return;
    };

    if patches.is_empty() {
        return;
    }

    let Ok(mut manager) = HttpConnectionManager::decode(config.value.as_slice()) else {
        return;
    };

    for patch in &patches {
        let wanted = wanted_sub_filter(patch);
        let matches = |filter: &HttpFilter| matches_name(wanted, &filter.name);
        let filters = &mut manager.http_filters;
        if place(
            filters,
            patch.operation,
            patch.value::<HttpFilter>(),
            wanted.is_some(),
            matches,
        ) {
            patch.note(view);
        }
    }

    let ends = |filter: &HttpFilter| match &filter.config_type {
        Some(http_filter::ConfigType::TypedConfig(config)) => config.type_url.ends_with(ROUTER),
        Some(http_filter::ConfigType::ConfigDiscovery(_)) | None => false,
    };
    drop_unreachable(view, &patches, &mut manager.http_filters, ends, |filter| {
        &filter.name
    });
    for filter in &mut manager.http_filters {
        merge_http_filter(view, &patches, filter);
    }

    *config = pack(&manager);
}

/// Merges the matching patches into an HTTP filter.
fn merge_http_filter(view: &View<'_>, patches: &[&Patch], filter: &mut HttpFilter) {
    let Some(http_filter::ConfigType::TypedConfig(config)) = &mut filter.config_type else {
        return;
    };

    let mut config = TargetAny::new(config);
    for patch in patches
        .iter()
        .filter(|patch| patch.operation == PatchOperation::Merge)
    {
        if !matches_name(wanted_sub_filter(patch), &filter.name) {
            continue;
        }
        let Some(value) = patch.value::<HttpFilter>() else {
            continue;
        };
        if let Some(http_filter::ConfigType::TypedConfig(patched)) = &value.config_type {
            merge_config(view, patch, &filter.name, &mut config, patched);
        }
        if !value.name.is_empty() {
            filter.name = value.name;
        }
    }

    config.finish();
}

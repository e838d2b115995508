//! Patches of network and HTTP filters.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::listener::v3::{Filter, filter};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, http_filter,
};
use prost::Message;
use prost_types::Any;

use super::compiled::Patch;
use super::insert::place;
use super::matching::{is_wanted, wanted_filter, wanted_sub_filter};
use super::merge::merge_any;
use crate::api::istio::{ApplyTo, PatchOperation};
use crate::push::view::View;

/// The filter that holds HTTP filters.
const CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";

/// The HTTP filter that ends a chain of them.
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
/// The network filters that end a chain.
const TERMINAL: [&str; 4] = [
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
    "envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy",
];

/// Makes patches to the filters of a chain. `patches` are those that name the chain, of all kinds and in order.
pub(super) fn patch_filters(view: &View<'_>, patches: &[&Patch], filters: &mut Vec<Filter>) {
    let of_filters: Vec<&Patch> =
        patches.iter().copied().filter(|patch| patch.apply_to == ApplyTo::NetworkFilter).collect();
    for patch in &of_filters {
        let wanted = wanted_filter(patch).map(|filter| filter.name.as_str());
        let matches = |filter: &Filter| is_wanted(wanted, &filter.name);
        if place(filters, patch.operation, patch.value::<Filter>(), wanted.is_some(), matches) {
            patch.note(view);
        }
    }
    let ends = |filter: &Filter| match &filter.config_type {
        Some(filter::ConfigType::TypedConfig(config)) => TERMINAL.iter().any(|name| config.type_url.ends_with(name)),
        Some(filter::ConfigType::ConfigDiscovery(_)) | None => false,
    };
    drop_unreachable(view, &of_filters, filters, ends, |filter| &filter.name);
    for filter in filters {
        for patch in of_filters.iter().filter(|patch| patch.operation == PatchOperation::Merge) {
            merge_filter(view, patch, filter);
        }
        if filter.name == CONNECTION_MANAGER {
            patch_http_filters(view, patches, filter);
        }
    }
}

/// Takes away what patches put behind the filter that ends a chain: nothing would reach it, so Envoy refuses the chain.
fn drop_unreachable<T>(
    view: &View<'_>,
    patches: &[&Patch],
    filters: &mut Vec<T>,
    ends: impl Fn(&T) -> bool,
    name: impl Fn(&T) -> &str,
) {
    let Some(end) = filters.iter().position(ends) else { return };
    let lost: Vec<T> = filters.drain((end + 1).min(filters.len())..).collect();
    for filter in &lost {
        let name = name(filter);
        let by = patches.iter().filter(|patch| patch.names_value(name)).map(|patch| patch.describe());
        let by: Vec<String> = by.collect();
        let by = by.join(", ");
        view.remark(format!("{by}: filter {name} is left out, as it would stand behind the one that ends its chain"));
    }
}

/// Merges a patch into a network filter, if it names it.
fn merge_filter(view: &View<'_>, patch: &Patch, filter: &mut Filter) {
    if !is_wanted(wanted_filter(patch).map(|filter| filter.name.as_str()), &filter.name) {
        return;
    }
    let Some(filter::ConfigType::TypedConfig(config)) = &mut filter.config_type else { return };
    let Some(value) = patch.value::<Filter>() else { return };
    if let Some(filter::ConfigType::TypedConfig(patched)) = &value.config_type {
        merge_config(view, patch, &filter.name, config, patched);
    }
    if !value.name.is_empty() {
        filter.name = value.name;
    }
}

/// Merges the configuration of a filter; what does not fit leaves it as it is.
pub(super) fn merge_config(view: &View<'_>, patch: &Patch, filter: &str, config: &mut Any, patched: &Any) {
    match merge_any(config, patched) {
        Ok(merged) => {
            *config = merged;
            patch.note(view);
        }
        Err(error) => view.remark(format!("{} is not made to filter {filter}: {error}", patch.describe())),
    }
}

/// Makes patches to the HTTP filters of a connection manager.
fn patch_http_filters(view: &View<'_>, patches: &[&Patch], filter: &mut Filter) {
    let names_manager =
        |patch: &Patch| is_wanted(wanted_filter(patch).map(|filter| filter.name.as_str()), CONNECTION_MANAGER);
    let patches: Vec<&Patch> =
        patches.iter().copied().filter(|patch| patch.apply_to == ApplyTo::HttpFilter && names_manager(patch)).collect();
    let Some(filter::ConfigType::TypedConfig(config)) = &mut filter.config_type else { return };
    if patches.is_empty() {
        return;
    }
    let Ok(mut manager) = HttpConnectionManager::decode(config.value.as_slice()) else { return };
    for patch in &patches {
        let wanted = wanted_sub_filter(patch);
        let matches = |filter: &HttpFilter| is_wanted(wanted, &filter.name);
        let filters = &mut manager.http_filters;
        if place(filters, patch.operation, patch.value::<HttpFilter>(), wanted.is_some(), matches) {
            patch.note(view);
        }
    }
    let ends = |filter: &HttpFilter| match &filter.config_type {
        Some(http_filter::ConfigType::TypedConfig(config)) => config.type_url.ends_with(ROUTER),
        Some(http_filter::ConfigType::ConfigDiscovery(_)) | None => false,
    };
    drop_unreachable(view, &patches, &mut manager.http_filters, ends, |filter| &filter.name);
    for filter in &mut manager.http_filters {
        for patch in patches.iter().filter(|patch| patch.operation == PatchOperation::Merge) {
            merge_http_filter(view, patch, filter);
        }
    }
    *config = pack(&manager);
}

/// Merges a patch into an HTTP filter, if it names it.
fn merge_http_filter(view: &View<'_>, patch: &Patch, filter: &mut HttpFilter) {
    if !is_wanted(wanted_sub_filter(patch), &filter.name) {
        return;
    }
    let Some(http_filter::ConfigType::TypedConfig(config)) = &mut filter.config_type else { return };
    let Some(value) = patch.value::<HttpFilter>() else { return };
    if let Some(http_filter::ConfigType::TypedConfig(patched)) = &value.config_type {
        merge_config(view, patch, &filter.name, config, patched);
    }
    if !value.name.is_empty() {
        filter.name = value.name;
    }
}

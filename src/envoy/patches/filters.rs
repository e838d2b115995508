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

/// Makes patches to the filters of a chain. `patches` are those that name the chain, of all kinds and in order.
pub(super) fn patch_filters(view: &View<'_>, patches: &[&Patch], filters: &mut Vec<Filter>) {
    let of_filters: Vec<&Patch> =
        patches.iter().copied().filter(|patch| patch.apply_to == ApplyTo::NetworkFilter).collect();
    for patch in &of_filters {
        let wanted = wanted_filter(patch).map(|filter| filter.name.as_str());
        let matches = |filter: &Filter| is_wanted(wanted, &filter.name);
        place(filters, patch.operation, patch.value::<Filter>(), wanted.is_some(), matches);
    }
    for filter in filters {
        for patch in of_filters.iter().filter(|patch| patch.operation == PatchOperation::Merge) {
            merge_filter(view, patch, filter);
        }
        if filter.name == CONNECTION_MANAGER {
            patch_http_filters(view, patches, filter);
        }
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
        Ok(merged) => *config = merged,
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
        place(&mut manager.http_filters, patch.operation, patch.value::<HttpFilter>(), wanted.is_some(), matches);
    }
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

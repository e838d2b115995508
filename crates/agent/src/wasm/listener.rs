//! Modules that listeners contain inline: in a network filter, or in an HTTP filter of a connection
//! manager.

use navarch_proto::any;
use navarch_proto::envoy::config::listener::v3::filter::ConfigType;
use navarch_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType as HttpConfigType;
use prost::Message as _;
use prost_types::Any;

use super::cache::Cache;
use super::convert::{ConvertError, localize_filter};

/// The type URL of the connection manager.
const MANAGER: &str = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
/// Parts of the type URLs of both filters, which rarely occur elsewhere.
const NAMES: [&[u8]; 2] = [
    b"filters.http.wasm.v3.Wasm",
    b"filters.network.wasm.v3.Wasm",
];

/// Whether these bytes may contain a Wasm filter. Scans all bytes.
pub(super) fn may_name_module(bytes: &[u8]) -> bool {
    NAMES
        .iter()
        .any(|name| memchr::memmem::find(bytes, name).is_some())
}

/// Replaces remote modules by files. Returns whether there were any.
pub(super) async fn localize(cache: &Cache, resource: &mut Any) -> Result<bool, ConvertError> {
    if !may_name_module(&resource.value) {
        return Ok(false);
    }

    let mut listener = Listener::decode(&resource.value[..])?;
    let mut changed = false;
    let Listener {
        filter_chains,
        default_filter_chain,
        ..
    } = &mut listener;

    for FilterChain { filters, .. } in filter_chains.iter_mut().chain(default_filter_chain) {
        for Filter { name, config_type } in filters {
            let Some(ConfigType::TypedConfig(typed)) = config_type else {
                continue;
            };
            changed |= if typed.type_url == MANAGER {
                in_manager(cache, typed).await?
            } else {
                localize_filter(cache, name, typed).await?
            };
        }
    }

    if changed {
        resource.value = listener.encode_to_vec();
    }

    Ok(changed)
}

/// The same for the filters of a connection manager.
async fn in_manager(cache: &Cache, typed: &mut Any) -> Result<bool, ConvertError> {
    if !may_name_module(&typed.value) {
        return Ok(false);
    }
    let mut manager = HttpConnectionManager::decode(&typed.value[..])?;
    let mut changed = false;
    for filter in &mut manager.http_filters {
        if let Some(HttpConfigType::TypedConfig(typed)) = &mut filter.config_type {
            changed |= localize_filter(cache, &filter.name, typed).await?;
        }
    }
    if changed {
        *typed = any::pack(&manager);
    }
    Ok(changed)
}

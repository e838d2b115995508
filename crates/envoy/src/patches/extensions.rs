//! Extension configurations in EnvoyFilters, for filters that reference them by name.

use navarch_proto::envoy::config::core::v3::TypedExtensionConfig;

use super::select::{PatchClass, patches};
use navarch_api::istio::PatchOperation;
use navarch_push::view::View;

/// The configuration of this name, from the first patch that adds it.
#[must_use]
pub fn extension_config(view: &View<'_>, name: &str) -> Option<TypedExtensionConfig> {
    let patches = patches(view, PatchClass::Extensions)?;
    let added = patches
        .iter()
        .filter(|patch| patch.operation == PatchOperation::Add);
    added
        .filter_map(|patch| patch.value::<TypedExtensionConfig>())
        .find(|config| config.name == name)
}

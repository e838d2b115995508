//! Configurations of extensions that EnvoyFilters hold, for filters that ask for them by name.

use navarch_proto::envoy::config::core::v3::TypedExtensionConfig;

use super::select::{PatchClass, patches};
use navarch_api::istio::PatchOperation;
use navarch_push::view::View;

/// The configuration of this name. The first patch that adds it holds.
#[must_use]
pub fn extension_config(view: &View<'_>, name: &str) -> Option<TypedExtensionConfig> {
    let patches = patches(view, PatchClass::Extensions)?;
    let added = patches.iter().filter(|patch| patch.operation == PatchOperation::Add);
    added.filter_map(|patch| patch.value::<TypedExtensionConfig>()).find(|config| config.name == name)
}

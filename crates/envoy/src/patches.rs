//! EnvoyFilter: changes of users to the generated resources.
//!
//! ```text
//! EnvoyFilter ─▶ compiled once ─┬▶ those that apply to the proxy, by class and in order ─▶ patched resource
//!                 proxy ────────┘
//! ```
//!
//! The applying patches are an attribute of the proxy: proxies with the same patches share the
//! results, and if no object patches a class, the attribute is not read and resources are not
//! decoded. Agrees in meaning with Istio's `pilot/pkg/networking/core/envoyfilter`. istiod skips
//! all patches if one cannot be merged; here only that one is skipped.

mod attach;
mod bootstrap;
pub mod clusters;
mod compiled;
mod extensions;
mod filters;
mod insert;
mod listeners;
mod matching;
mod merge;
mod outbound;
mod routes;
mod select;

pub use bootstrap::patch_bootstrap;
pub use extensions::extension_config;
pub use listeners::{added_listeners, names_change, patch_listener};
pub(crate) use outbound::{named_clusters, outbound_filters_changed_by};
pub use routes::{RoutesIdentity, patch_routes};
pub use select::{PatchClass, Patches, patches, referenced_services};

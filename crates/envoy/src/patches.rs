//! EnvoyFilter: what users change of the generated resources.
//!
//! ```text
//! EnvoyFilter ─▶ compiled once ─┬▶ those that apply to the proxy, by class and in order ─▶ patched resource
//!                 proxy ────────┘
//! ```
//!
//! Which patches apply is an attribute of the proxy: proxies to which the same ones apply share the results, and
//! where no object patches a class, nothing is asked and nothing is taken apart. Agrees in meaning with Istio's
//! `pilot/pkg/networking/core/envoyfilter`. Where istiod gives up on all patches since one does not fit what it would be
//! merged into, only that one is left out here.

mod attach;
pub mod clusters;
mod compiled;
mod extensions;
mod filters;
mod insert;
mod listeners;
mod matching;
mod merge;
mod routes;
mod select;

pub use extensions::extension_config;
pub use listeners::{added_listeners, names_change, patch_listener};
pub use routes::{RoutesIdentity, patch_routes};
pub use select::{PatchClass, Patches, patches, referenced_services};

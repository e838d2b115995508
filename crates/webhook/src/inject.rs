//! Injection: which pods get a proxy, and the patch that gives it to them.
//!
//! ```text
//! values, config, mesh ─▶ Rules (parsed once, swapped whole)
//!                           │
//! pod ─▶ selected? ─▶ overlays (typed, or a template's text) ─▶ merged ─▶ overrides ─▶ finish ─▶ patch
//! ```
//!
//! An overlay is the part of a pod that injection adds. Navarch builds the overlays of Istio's own template names
//! (`sidecar`, `gateway`, `grpc-agent`, `grpc-simple`) as typed Kubernetes objects from the values, so that whatever an
//! annotation holds stays the text of one field. A template that the config carries under any name is rendered instead
//! of the built-in one, as istiod would. What follows the overlay is the same for both ways.

mod annotations;
pub mod config;
mod context;
pub mod error;
mod finish;
pub mod gateway;
mod go_json;
mod image;
pub mod injector;
mod merge;
mod multus;
mod names;
pub mod offline;
mod openshift;
mod overlay;
mod overrides;
pub mod parameters;
mod patch;
mod pod;
mod proxy_settings;
mod quantity;
pub mod request;
mod rules;
mod selection;
pub mod settings;
mod strip;
mod template;
mod tidy;
mod values;
pub mod workload;

pub use config::InjectionConfig;
pub use error::{ConfigError, InjectError};
pub use gateway::{GatewayPort, GatewayRequest, lay_over};
pub use injector::Injector;
pub use offline::{Note, OfflineError, inject_object};
pub use parameters::parameters;
pub use request::{InjectRequest, Injection, Outcome, SkipReason};
pub use settings::{InjectorInputs, NativeSidecars};
pub use workload::Workload;

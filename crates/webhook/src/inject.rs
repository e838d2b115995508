//! Injection: selects the pods that get a proxy, and creates the patch that adds it.
//!
//! ```text
//! values, config, mesh ─▶ Rules (parsed once, swapped whole)
//!                           │
//! pod ─▶ selected? ─▶ overlays (typed, or a template's text) ─▶ merged ─▶ overrides ─▶ finish ─▶ patch
//! ```
//!
//! An overlay is the part of a pod that injection adds. Navarch builds the overlays of Istio's own
//! template names (`sidecar`, `gateway`, `grpc-agent`, `grpc-simple`) as typed Kubernetes objects
//! from the values, so that the text of an annotation always remains the text of one field. A
//! template of the config replaces the built-in one of its name and is rendered as in istiod. All
//! steps after the overlay are the same for both.

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
pub use gateway::{GatewayPort, GatewayRequest, apply_overlay};
pub use injector::Injector;
pub use offline::{Note, OfflineError, inject_object};
pub use parameters::parameters;
pub use request::{InjectRequest, Injection, InjectionOutcome, SkipReason};
pub use settings::{InjectorInputs, NativeSidecars};
pub use workload::Workload;

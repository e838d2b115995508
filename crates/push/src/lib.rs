//! The control plane on the engine: the mesh state with its immutable snapshots, translators that
//! read them through a recording view, and the resources of each connected proxy.
//!
//! `navarch_engine` computes, with the types of `view/inputs.rs`: a cache reused by trace replay,
//! and the reverse index that returns the results and proxies that a change affects.
//!
//! ```text
//! events ─▶ MeshState (store + registry) ─▶ changed facts ─▶ Engine: mark what read them
//!                                                               │ re-verify, recompute, cut off
//!                            Sink::publish(collection) ◀────────┘ one per group of proxies that read alike
//! ```
//!
//! One thread owns all of it ([`worker`]); streams hold immutable collections. It has no sockets
//! and no Envoy types.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "builders of test values read better if they take values"
    )
)]

mod addresses;
pub mod attr;
mod change;
pub mod chunked_list;
pub mod cluster_ref;
mod configuration_metrics;
pub mod context;
mod delivery;
pub mod engine;
pub mod fact;
mod fair_queue;
mod grouped_list;
pub mod learned;
pub mod mesh_state;
pub mod metrics;
pub mod name_list;
pub mod name_parts;
pub mod namespace_list;
pub mod notice;
pub mod observer;
mod pod_of_proxy;
pub mod progress;
pub mod proxy;
pub mod proxy_view;
pub mod quarantine;
mod quarantined;
pub mod query;
mod read;
mod remark_log;
mod remotes;
pub mod resource;
pub mod rollout;
mod rollouts;
mod subscription;
mod sweep_schedule;
pub mod targets;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod versions;
pub mod view;
pub mod worker;

pub use configuration_metrics::ConfigurationMetrics;

pub use resource::resources;

/// Which kinds are read in remote clusters.
pub use remotes::counts_in_remotes;

/// A kind of object that views can list.
pub use navarch_store::Stored;

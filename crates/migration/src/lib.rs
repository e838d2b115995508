//! The move of a namespace from sidecars to ambient mode, in steps that change no verdict.
//!
//! ```text
//! objects ─▶ steps (edits) ─▶ the objects after each step ─▶ at rest (istio-cni, waypoints, restarts)
//!               │                                              │
//!               │        mesh state, proxies of the pods ◀─────┘
//!               ▼                    │ walk, for each kind of request
//!             Plan ◀── changes ── verdicts before and after
//! ```
//!
//! Policies of sidecars stay in force during the move: the rules of the waypoint are bound first,
//! then sidecars and ztunnel accept what has passed the waypoint, then it gets the requests. Pure
//! functions: nothing here reads or changes a cluster.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "builders of test values read better if they take values"
    )
)]

mod at_rest;
mod attributes;
mod counterpart;
mod edit;
mod edited;
pub mod installation;
mod judge;
mod objects;
mod plan;
mod pods;
mod policies;
mod requests;
mod revert;
mod routes;
mod snapshot;
mod state;
mod steps;
mod text;
mod verdict;

#[cfg(test)]
mod tests;

pub use counterpart::{Counterpart, Loss, NotJudged};
pub use edit::{Change, Edit, FieldChange};
pub use edited::EditedKind;
pub use judge::MeshSettings;
pub use objects::{ObjectName, Objects};
pub use plan::{Plan, PlanError, PlannedStep, plan};
pub use pods::{DataPlane, Owner, sidecars_of};
pub use requests::RequestKind;
pub use snapshot::{SidecarPod, Snapshot, pods_by_workload, sidecar_pods};
pub use state::{DoneStep, FORMAT, RecordedStep, State, StateError, is_permitted};
pub use steps::{Step, returning, waiting};
pub use text::edit_lines;
pub use verdict::{Effect, Verdict, VerdictChange};

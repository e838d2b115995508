//! Injection and admission: the webhooks that the API server calls before it stores a pod or an
//! Istio object.
//!
//! ```text
//! API server ─▶ routes (limits, content type) ─▶ review (v1, v1beta1) ─┬▶ validation ─▶ verdict, neighbours
//!                                                                      ├▶ injection ──▶ inject ◀── injector_source
//!                                                                      └▶ advice ─────▶ the planner of changes
//! registration ─▶ the API server's webhook configurations, with the roots of the webhooks' certificate
//! ```
//!
//! Responses are pure functions of the request and, where other objects matter, of a snapshot. Does
//! not depend on proxies.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "builders of test values read better if they take values"
    )
)]

mod advice;
mod caller_shares;
pub mod inject;
mod injection;
pub mod injector_source;
mod injector_state;
mod limits;
mod metrics;
mod neighbours;
pub mod registration;
mod review;
mod routes;
mod validation;
pub mod verdict;

pub use advice::{Advice, Adviser, Intent};
pub use injection::inject_review;
pub use injector_state::{CurrentInjector, InjectorState};
pub use limits::{Limits, MAX_BODY, SMALL_BODY};
pub use metrics::Metrics;
pub use routes::{ObjectsProvider, Webhooks, routes};
pub use validation::validate_review;

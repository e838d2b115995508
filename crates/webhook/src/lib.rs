//! Injection and admission: what the API server asks before it stores a pod or an object of Istio's.
//!
//! ```text
//! API server ─▶ routes (limits, content type) ─▶ review (v1, v1beta1) ─┬▶ validation ─▶ verdict, neighbours
//!                                                                      ├▶ injection ──▶ inject
//!                                                                      └▶ advice ─────▶ whoever knows what changes do
//! registration ─▶ the API server's webhook configurations: whom to ask, and by which roots to know it
//! ```
//!
//! Answers are pure functions of the request, and of a snapshot where other objects matter. Knows nothing of proxies.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "builders of test values read best taking values"))]

mod advice;
mod caller_shares;
pub mod inject;
mod injection;
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

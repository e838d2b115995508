//! The HTTP endpoints for operators and tools: health, version, metrics, the debug API, ControlZ.
//!
//! Paths and JSON match istiod's (`pilot/pkg/xds/debug.go`), so that its tools and dashboards work.
//! Pages read a snapshot, or run on the push thread; only operators on the same machine can change
//! something. No other module depends on this one.

mod access;
mod ambientz;
mod applied;
mod ca;
mod cachez;
mod clusterz;
mod config_dump;
mod configz;
mod ctrlz;
mod debug;
mod distribution;
mod doctor;
mod endpointz;
mod exposition;
mod health;
mod log_scopes;
mod mcsz;
mod over_xds;
mod page;
mod paths;
mod plan;
mod policies;
mod proxies;
mod push_status;
mod quarantine;
mod redact;
mod registryz;
mod reply;
mod rollout;
mod scopes;
mod scratch;
mod state;
mod syncz;
mod why;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;

pub use access::DebugAccess;
pub use ca::COMMAND as CA_COMMAND;
pub use ctrlz::control_routes;
pub use distribution::{configuration, progresses};
pub use doctor::{ApiServerHealth, Certificates, Hooks, Right};
pub use exposition::Exposition;
pub use health::missing;
pub use log_scopes::{LogScope, LogScopes, ScopeError, ScopeLevel};
pub use over_xds::DebugOverXds;
pub(crate) use plan::MirrorSource as PlanAsker;
pub use plan::Plans;
pub use scratch::PlanLimit;
pub use state::{AdminState, Build, Readiness};
pub(crate) use why::other_input as input_in_words;

/// Enables pages of the debug API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugSwitches {
    /// `ENABLE_DEBUG_ON_HTTP`: all pages. Default true.
    pub on_http: bool,
    /// `UNSAFE_ENABLE_ADMIN_ENDPOINTS`: pages that can do harm. Default false.
    pub harmful: bool,
    /// `--profile`: profiling pages. Default true.
    pub profiles: bool,
}

/// The pages of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The debug API.
    pub debug: bool,
    /// Metrics and version on port 8080, if they have no port of their own.
    pub monitoring: bool,
}

/// The routes of port 8080: `/ready` and the debug API.
pub fn http_routes(state: AdminState, pages: Pages) -> Router {
    let mut routes = Router::new()
        .route("/ready", get(health::ready))
        .merge(debug_routes(&state, pages));
    if pages.monitoring {
        routes = routes.merge(monitoring()).merge(page_routes(&state, pages));
    }
    routes.fallback(paths::fallback).with_state(state)
}

/// The routes of port 15014: the operators' page at `/`, `/metrics`, `/version` and the debug API.
pub fn monitoring_routes(state: AdminState, pages: Pages) -> Router {
    let for_people = page_routes(&state, pages);
    monitoring()
        .merge(for_people)
        .merge(debug_routes(&state, pages))
        .fallback(paths::fallback)
        .with_state(state)
}

/// Metrics and version.
fn monitoring() -> Router<AdminState> {
    Router::new()
        .route("/metrics", get(health::metrics))
        .route("/version", get(health::version))
}

/// The operators' page, for callers with access to the debug API. It is served before the first
/// sync, to show what is missing.
fn page_routes(state: &AdminState, pages: Pages) -> Router<AdminState> {
    if !pages.debug {
        return Router::new();
    }
    page::routes().route_layer(from_fn_with_state(state.clone(), access::guard))
}

/// The debug API, for callers with access, after the first sync.
fn debug_routes(state: &AdminState, pages: Pages) -> Router<AdminState> {
    if !pages.debug {
        return Router::new();
    }
    debug::pages(state)
        .route_layer(from_fn_with_state(state.clone(), health::guard))
        .merge(debug::own_pages(state))
        .route_layer(from_fn_with_state(state.clone(), access::guard))
}

//! What people and machines see of a running Navarch: health, version, metrics, the debug API, ControlZ.
//!
//! Paths and JSON are istiod's (`pilot/pkg/xds/debug.go`), so that its tools and dashboards work. Reads a snapshot, or runs on the
//! push thread; changes nothing but what operators on the same machine ask for. No other module depends on this one.

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
mod pprof;
mod proxies;
mod push_status;
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

pub use access::{DebugAccess, is_of_this_machine};
pub use applied::{Compared, changed_at, last_change};
pub use ca::COMMAND as CA_COMMAND;
pub use clusterz::{ManagedClusters, SyncStatus};
pub use ctrlz::control_routes;
pub use distribution::{Share, configuration, shares};
pub use doctor::{ApiServerLook, Certificates, Hooks, Right};
pub use exposition::Exposition;
pub use health::missing;
pub use log_scopes::{LogScope, LogScopes, ScopeError};
pub use over_xds::DebugOverXds;
pub(crate) use plan::Asker as PlanAsker;
pub use plan::Plans;
pub use rollout::{OperatorOrder, OperatorRequest, RolloutControl, RolloutRefusal};
pub use scratch::PlanLimit;
pub use state::{AdminState, Build, Problems, Readiness};
pub(crate) use why::other_input as input_in_words;

/// Which pages of the debug API there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugSwitches {
    /// `ENABLE_DEBUG_ON_HTTP`: any. Default true.
    pub on_http: bool,
    /// `UNSAFE_ENABLE_ADMIN_ENDPOINTS`: those that do harm. Default false.
    pub harmful: bool,
    /// `--profile`: those of profiles. Default true.
    pub profiles: bool,
}

/// Which pages there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The debug API.
    pub debug: bool,
    /// Metrics and version on port 8080, as they have no port of their own.
    pub monitoring: bool,
}

/// What port 8080 serves: `/ready` and the debug API.
pub fn http_routes(state: AdminState, pages: Pages) -> Router {
    let mut routes = Router::new().route("/ready", get(health::ready)).merge(debug_routes(&state, pages));
    if pages.monitoring {
        routes = routes.merge(monitoring()).merge(page_routes(&state, pages));
    }
    routes.fallback(paths::fallback).with_state(state)
}

/// What port 15014 serves: the page for people at `/`, `/metrics`, `/version` and the debug API.
pub fn monitoring_routes(state: AdminState, pages: Pages) -> Router {
    let for_people = page_routes(&state, pages);
    monitoring().merge(for_people).merge(debug_routes(&state, pages)).fallback(paths::fallback).with_state(state)
}

/// Metrics and version.
fn monitoring() -> Router<AdminState> {
    Router::new().route("/metrics", get(health::metrics)).route("/version", get(health::version))
}

/// The page for people, for those who may see the debug API that it asks; there before anything is read, to say what is waited for.
fn page_routes(state: &AdminState, pages: Pages) -> Router<AdminState> {
    if !pages.debug {
        return Router::new();
    }
    page::routes().route_layer(from_fn_with_state(state.clone(), access::guard))
}

/// The debug API, for those who may see it, and once there is something to see.
fn debug_routes(state: &AdminState, pages: Pages) -> Router<AdminState> {
    if !pages.debug {
        return Router::new();
    }
    debug::pages(state)
        .route_layer(from_fn_with_state(state.clone(), health::guard))
        .merge(debug::own_pages(state))
        .route_layer(from_fn_with_state(state.clone(), access::guard))
}

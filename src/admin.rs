//! What people and machines see of a running Navarch: health, version, metrics, the debug API.
//!
//! Paths and shapes are istiod's (`reference/ports-and-http.md`), so that its tools and dashboards work. Reads a snapshot,
//! or takes a look on the push thread; changes nothing but what `/debug/ca` is
//! told to. Nothing depends on this room.

mod access;
mod ca;
mod clusterz;
mod config_dump;
mod configz;
mod debug;
mod distribution;
mod endpointz;
mod exposition;
mod health;
mod push_status;
mod registryz;
mod reply;
mod state;
mod syncz;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;

pub use access::DebugAccess;
pub use ca::ORDER as CA_ORDER;
pub use clusterz::{ManagedClusters, SyncStatus};
pub use distribution::{Share, configuration, shares};
pub use exposition::Exposition;
pub use state::{AdminState, Build, Problems, Readiness};

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
        routes = routes.merge(monitoring());
    }
    routes.with_state(state)
}

/// What port 15014 serves: `/metrics`, `/version` and the debug API.
pub fn monitoring_routes(state: AdminState, pages: Pages) -> Router {
    monitoring().merge(debug_routes(&state, pages)).with_state(state)
}

/// Metrics and version.
fn monitoring() -> Router<AdminState> {
    Router::new().route("/metrics", get(health::metrics)).route("/version", get(health::version))
}

/// The debug API, for those who may see it, and once there is something to see.
fn debug_routes(state: &AdminState, pages: Pages) -> Router<AdminState> {
    if !pages.debug {
        return Router::new();
    }
    Router::new()
        .route("/debug/adsz", get(syncz::adsz))
        .route("/debug/ca", get(ca::status).post(ca::order))
        .route("/debug/clusterz", get(clusterz::clusterz))
        .route("/debug/connections", get(syncz::connections))
        .route("/debug/syncz", get(syncz::syncz))
        .route("/debug/config_dump", get(config_dump::config_dump))
        .route("/debug/config_distribution", get(distribution::config_distribution))
        .route("/debug/configz", get(configz::configz))
        .route("/debug/mesh", get(configz::mesh))
        .route("/debug/endpointz", get(endpointz::endpointz))
        .route("/debug/endpointShardz", get(endpointz::endpointz))
        .route("/debug/registryz", get(registryz::registryz))
        .route("/debug/push_status", get(push_status::push_status))
        .route_layer(from_fn_with_state(state.clone(), health::guard))
        .route("/debug", get(debug::index))
        .route("/debug/", get(debug::index))
        .route("/debug/list", get(debug::list))
        .route_layer(from_fn_with_state(state.clone(), access::guard))
}

//! The index of the debug API, and the routes of its pages.

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{Html, Response};
use axum::routing::{get, post};
use serde_json::Value;

use super::reply::{Parameters, json};
use super::state::AdminState;
use super::{
    ambientz, applied, ca, cachez, clusterz, config_dump, configz, distribution, doctor, endpointz,
    mcsz, page, plan, policies, push_status, quarantine, registryz, rollout, scopes, syncz, why,
};
use navarch_scope::evidence::MAX_EDGE_EVIDENCE;

/// Each page with what it shows, in the order of the list of names.
const PAGES: [(&str, &str); 49] = [
    (
        "adsz",
        "Connected proxies and the resources they watch (?proxyID=)",
    ),
    (
        "adsz?push=true",
        "Pushes all watched resources to all proxies again",
    ),
    (
        "ambientz",
        "Workloads, services and policies of ambient mode",
    ),
    (
        "applied",
        "Which proxies have acknowledged an object (?object=KIND/NAMESPACE/NAME)",
    ),
    ("authorizationz", "All AuthorizationPolicies"),
    (
        "ca",
        "The trusted roots of the mesh, and the proxies that do not trust them yet",
    ),
    (
        "cachez",
        "Names of the encoded resources that proxies share",
    ),
    (
        "cachez?clear=true",
        "Clears the cache and computes all resources again",
    ),
    (
        "cachez?sizes=true",
        "Bytes of the encoded resources that proxies share",
    ),
    (
        "clusterz",
        "The clusters that are read, with their sync status",
    ),
    (
        "config_distribution",
        "The share of affected proxies that have acknowledged an object (?kind=, &namespace=, &name=)",
    ),
    (
        "config_dump",
        "The configuration that was sent to a proxy, as Envoy's config dump (?proxyID=, &types=, &include_eds)",
    ),
    ("configz", "All Istio configuration"),
    ("connections", "Connected proxies"),
    (
        "doctor",
        "Problems, each with a next step (?whole: includes checks against the API server)",
    ),
    (
        "ecdsz",
        "The extension configs that were sent to a proxy (?proxyID=)",
    ),
    (
        "edsz",
        "The endpoints that were sent to a proxy (?proxyID=)",
    ),
    (
        "endpointShardz",
        "Endpoints by service, namespace and cluster",
    ),
    ("endpointz", "The same under the old name"),
    ("inject", "The injection templates"),
    (
        "instancesz",
        "The service ports that the workloads of proxies serve",
    ),
    ("krtz", "The tables from which all configuration is derived"),
    ("list", "The names of these pages"),
    ("mcsz", "Services that are exported to other clusters"),
    ("mesh", "The current mesh config"),
    (
        "ndsz",
        "The name table that was sent to a proxy (?proxyID=)",
    ),
    ("networkz", "The gateways between networks"),
    (
        "plan",
        "The effect of a change (POST of a proposal, see navarch plan; ?part: to be merged with those of other replicas)",
    ),
    (
        "push_status",
        "Rejected configuration with reasons, and the last pushes",
    ),
    (
        "pushcontext",
        "AuthorizationPolicies, and gateways between networks",
    ),
    (
        "quarantine",
        "Objects whose previous version is served because proxies reject them",
    ),
    ("registryz", "All services"),
    ("resourcesz", "The kinds of configuration that are read"),
    (
        "rollout",
        "Rollouts: changes that proxies receive in stages (?object=KIND/NAMESPACE/NAME)",
    ),
    ("sidecarz", "The Sidecar scope of a proxy (?proxyID=)"),
    (
        "syncz",
        "The sent and acknowledged versions of each proxy (?namespace=)",
    ),
    (
        "telemetryz",
        "All Telemetries, or those that apply to a proxy (?proxyID=)",
    ),
    (
        "view/changes",
        "The last changes, each from the event to the last ACK (?limit=)",
    ),
    (
        "view/edges",
        "Used, denied and allowed calls of a namespace's workloads (POST of the output of navarch scope suggest -o json; ?namespace=, &workload=, &allowed, &filter=, &offset=, &limit=)",
    ),
    (
        "view/mesh",
        "Who may call whom, and whether over mutual TLS: namespaces, or the services of one (?namespace=)",
    ),
    (
        "view/objects",
        "Istio objects with affected proxies and problems (?filter=, &kind=, &namespace=, &problems, &offset=, &limit=)",
    ),
    (
        "view/proxies",
        "Proxies that are synced, lagging, or rejected a response (?filter=, &state=, &kind=, &offset=, &limit=)",
    ),
    (
        "view/replicas",
        "This replica of the control plane, and the others",
    ),
    (
        "view/resources",
        "The resources that were sent to a proxy (?proxyID=, &type=, &filter=, &name=, &offset=, &limit=)",
    ),
    (
        "why/not",
        "Why requests of a proxy, or at a gateway, fail (?proxy=POD.NAMESPACE&host=, &port=, &path=, &method=, &claims=)",
    ),
    (
        "why/proxy",
        "The objects from which a resource of a proxy is generated (?proxy=POD.NAMESPACE&resource=, &type=, &fields)",
    ),
    (
        "why/push",
        "The causes of the last pushes to a proxy (?proxy=POD.NAMESPACE)",
    ),
    ("force_disconnect", "Ends the stream of a proxy (?proxyID=)"),
    ("pprof/", "Profiles of the process"),
];
/// The page that is served only if enabled (`UNSAFE_ENABLE_ADMIN_ENDPOINTS`).
const UNSAFE_PAGE: &str = "force_disconnect";
/// The pages that are served unless disabled (`--profile`).
const PROFILE_PAGES: &str = "pprof/";

/// The profiles of a control plane.
pub(super) const PROFILES: navarch_pprof::Pages = navarch_pprof::Pages {
    max_seconds: 300,
    has_heap: true,
};

/// The pages about the mesh; the server must add access control.
pub(super) fn pages(state: &AdminState) -> Router<AdminState> {
    let mut pages = Router::new()
        .route("/debug/adsz", get(syncz::adsz).post(syncz::adsz))
        .route("/debug/ambientz", get(ambientz::ambientz))
        .route("/debug/applied", get(applied::applied))
        .route("/debug/authorizationz", get(policies::authorizationz))
        .route("/debug/ca", get(ca::status).post(ca::command))
        .route("/debug/cachez", get(cachez::cachez).post(cachez::cachez))
        .route("/debug/clusterz", get(clusterz::clusterz))
        .route("/debug/connections", get(syncz::connections))
        .route(
            "/debug/config_distribution",
            get(distribution::config_distribution),
        )
        .route("/debug/config_dump", get(config_dump::config_dump))
        .route("/debug/configz", get(configz::configz))
        .route("/debug/ecdsz", get(config_dump::ecdsz))
        .route("/debug/edsz", get(config_dump::edsz))
        .route("/debug/endpointz", get(endpointz::endpointz))
        .route("/debug/endpointShardz", get(endpointz::endpointz))
        .route("/debug/inject", get(configz::inject))
        .route("/debug/instancesz", get(scopes::instancesz))
        .route("/debug/krtz", get(cachez::krtz))
        .route("/debug/mcsz", get(mcsz::mcsz))
        .route("/debug/mesh", get(configz::mesh))
        .route("/debug/ndsz", get(config_dump::ndsz))
        .route("/debug/networkz", get(policies::networkz))
        .route(
            "/debug/plan",
            post(plan::plan).layer(DefaultBodyLimit::max(plan::MAX_BYTES)),
        )
        .route("/debug/push_status", get(push_status::push_status))
        .route("/debug/pushcontext", get(policies::pushcontext))
        .route(
            "/debug/quarantine",
            get(quarantine::list)
                .post(quarantine::release)
                .layer(DefaultBodyLimit::max(quarantine::MAX_BYTES)),
        )
        .route("/debug/registryz", get(registryz::registryz))
        .route("/debug/resourcesz", get(configz::resourcesz))
        .route(
            "/debug/rollout",
            get(rollout::status)
                .post(rollout::command)
                .layer(DefaultBodyLimit::max(rollout::MAX_BYTES)),
        )
        .route("/debug/sidecarz", get(scopes::sidecarz))
        .route("/debug/syncz", get(syncz::syncz))
        .route("/debug/telemetryz", get(policies::telemetryz))
        .route("/debug/view/changes", get(page::changes::changes))
        .route(
            "/debug/view/edges",
            post(page::edges::edges).layer(DefaultBodyLimit::max(MAX_EDGE_EVIDENCE)),
        )
        .route("/debug/view/mesh", get(page::mesh::mesh))
        .route("/debug/view/objects", get(page::objects::objects))
        .route("/debug/view/proxies", get(page::proxies::proxies))
        .route("/debug/view/replicas", get(page::replicas::replicas))
        .route("/debug/view/resources", get(page::resources::resources))
        .route("/debug/why/not", get(why::not))
        .route("/debug/why/proxy", get(why::proxy_resource))
        .route("/debug/why/push", get(why::push));

    if state.unsafe_pages {
        pages = pages.route(
            "/debug/force_disconnect",
            get(syncz::force_disconnect).post(syncz::force_disconnect),
        );
    }

    pages
}

/// The pages about the debug API and the process, which are served before the first sync.
pub(super) fn own_pages(state: &AdminState) -> Router<AdminState> {
    let pages = Router::new()
        .route("/debug", get(index))
        .route("/debug/", get(index))
        .route("/debug/list", get(list));
    // The doctor also reports what blocks the first sync.
    let pages = pages.route("/debug/doctor", get(doctor::doctor));
    if state.profiles {
        pages.merge(navarch_pprof::routes(PROFILES))
    } else {
        pages
    }
}

/// The served pages.
fn served(state: &AdminState) -> impl Iterator<Item = (&'static str, &'static str)> {
    let unsafe_pages = state.unsafe_pages;
    let profiles = state.profiles;
    PAGES.into_iter().filter(move |(name, _)| match *name {
        UNSAFE_PAGE => unsafe_pages,
        PROFILE_PAGES => profiles,
        _ => true,
    })
}

/// The names of all pages that istioctl can request.
async fn list(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let mut names: Vec<&str> = served(&state).map(|(name, _)| name).collect();
    names.retain(|name| !matches!(*name, "list" | PROFILE_PAGES));
    names.sort_unstable();
    json(
        &parameters,
        &Value::Array(names.into_iter().map(Value::from).collect()),
    )
}

/// A page with a link to each.
async fn index(State(state): State<AdminState>) -> Html<String> {
    let rows: String = served(&state)
        .map(|(name, what)| {
            format!(
                "<tr><td><a href=\"/debug/{name}\">/debug/{name}</a></td><td>{what}</td></tr>\n"
            )
        })
        .collect();
    Html(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Navarch debug</title></head>\n\
         <body><h1>Debug endpoints</h1>\n<table>\n{rows}</table></body></html>\n"
    ))
}

#[cfg(test)]
mod tests {
    use navarch_security::rules::{Interface, rule};

    use super::*;
    use crate::admin::access;

    #[test]
    fn every_page_has_a_rule() {
        for (name, _) in PAGES {
            let path = format!("/debug/{}", name.split('?').next().unwrap());
            assert!(
                rule(Interface::Debug, access::page(&path)).is_some(),
                "nobody may see {path}"
            );
        }
    }
}

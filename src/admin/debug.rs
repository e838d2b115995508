//! The index of the debug API.

use axum::response::{Html, Response};
use serde_json::Value;

use super::reply::{Parameters, json};

/// Each page with what it shows, by name.
const PAGES: [(&str, &str); 13] = [
    ("adsz", "Connected proxies with what they watch"),
    ("ca", "The roots that the mesh trusts, and which proxies have yet to take them"),
    ("clusterz", "The clusters that are read, and how far each has come"),
    (
        "config_distribution",
        "Which share of the proxies that an object reaches has taken it (?kind=, &namespace=, &name=)",
    ),
    ("config_dump", "What a proxy was sent, as Envoy's config dump (?proxyID=, &types=)"),
    ("configz", "All Istio configuration"),
    ("connections", "Connected proxies"),
    ("endpointShardz", "Endpoints by service, namespace and cluster (also endpointz)"),
    ("list", "The names of these pages"),
    ("mesh", "The mesh config in force"),
    ("push_status", "What is refused and why, and what the last pushes did"),
    ("registryz", "All services"),
    ("syncz", "What each proxy was sent and has acknowledged (?namespace=)"),
];

/// The names of all pages.
pub(super) async fn list(parameters: Parameters) -> Response {
    let names = PAGES.iter().map(|(name, _)| Value::from(*name)).filter(|name| name != "list");
    json(&parameters, &Value::Array(names.collect()))
}

/// A page with a link to each.
pub(super) async fn index() -> Html<String> {
    let rows: String = PAGES
        .iter()
        .map(|(name, what)| format!("<tr><td><a href=\"/debug/{name}\">/debug/{name}</a></td><td>{what}</td></tr>\n"))
        .collect();
    Html(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Navarch debug</title></head>\n\
         <body><h1>Debug endpoints</h1>\n<table>\n{rows}</table></body></html>\n"
    ))
}

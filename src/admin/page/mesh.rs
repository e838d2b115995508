//! `/debug/view/mesh`: allowed calls between services, and whether they use mutual TLS. Namespaces
//! first, then the services of one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::rows::{Rows, fits};
use super::service_access::{Access, Callers, Demand, Policies};
use super::waypoints;
use crate::admin::reply::{self, Parameters};
use crate::admin::state::AdminState;
use navarch_api::names::Namespace;
use navarch_push::context::PushContext;
use navarch_push::proxy::ProxyKind;
use navarch_registry::model::{ExportTo, Service};

/// Maximum number of namespaces shown at once.
const MAX_NAMESPACES: usize = 200;
/// Maximum number of arrows between namespaces.
const MAX_ARROWS: usize = 1_000;

/// The summary of a namespace.
#[derive(Debug, Default)]
struct Sum {
    services: usize,
    /// Services by mTLS mode.
    mtls: BTreeMap<&'static str, usize>,
    /// Services that accept calls from everyone.
    open: usize,
    connected: Connected,
}

/// Connected proxies.
#[derive(Clone, Copy, Debug, Default)]
struct Connected {
    /// Number of all proxies.
    proxies: usize,
    /// Number of waypoints, and of ztunnels.
    waypoints: usize,
    ztunnels: usize,
}

/// The namespaces, or the services of the requested `namespace`.
pub(in crate::admin) async fn mesh(
    State(state): State<AdminState>,
    parameters: Parameters,
) -> Response {
    let context = state.push.context();
    let mut proxies: BTreeMap<Namespace, Connected> = BTreeMap::new();

    for info in state.connections.list() {
        let connected = proxies.entry(info.proxy.namespace.clone()).or_default();
        connected.proxies += 1;
        connected.waypoints += usize::from(info.proxy.kind == ProxyKind::Waypoint);
        connected.ztunnels += usize::from(info.proxy.kind == ProxyKind::Ztunnel);
    }

    let requested = parameters.clone();

    // A large mesh would block a thread of the runtime for too long.
    let work = tokio::task::spawn_blocking(move || {
        match requested.get("namespace").filter(|name| !name.is_empty()) {
            Some(namespace) => services(&context, &Namespace::new(namespace), &requested),
            None => namespaces(&context, proxies, &requested),
        }
    });

    match work.await {
        Ok(mut answer) => {
            add_waypoints(&state, &mut answer).await;
            reply::json(&parameters, &answer)
        }
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed to compute the mesh overview; see the log",
        )
            .into_response(),
    }
}

/// Adds the waypoint of each shown service of a namespace.
async fn add_waypoints(state: &AdminState, answer: &mut Value) {
    let Some(namespace) = answer
        .get("namespace")
        .and_then(Value::as_str)
        .map(str::to_owned)
    else {
        return;
    };

    let Some(rows) = answer.get_mut("rows").and_then(Value::as_array_mut) else {
        return;
    };

    let host = |row: &Value| row.get("host").and_then(Value::as_str).map(str::to_owned);
    let hosts: Vec<String> = rows.iter().filter_map(host).collect();
    let mut waypoints = waypoints::before(state, &namespace, &hosts).await;

    for row in rows {
        let waypoint = host(row).and_then(|host| waypoints.remove(&host));
        if let (Some(row), Some(waypoint)) = (row.as_object_mut(), waypoint) {
            row.insert("waypoint".to_owned(), waypoint);
        }
    }
}

fn by_namespace(context: &PushContext) -> BTreeMap<&Namespace, Vec<&Arc<Service>>> {
    let mut all: BTreeMap<&Namespace, Vec<&Arc<Service>>> = BTreeMap::new();
    for (key, services) in &context.directory.services {
        all.entry(&key.namespace)
            .or_default()
            .extend(services.first());
    }
    all
}

/// The access to a service according to policies.
fn access(context: &PushContext, policies: &Policies<'_>, service: &Service) -> Access {
    let endpoints = context.directory.endpoints.get(&service.key);
    policies.access(service, endpoints.map_or(&[], |all| &all.endpoints))
}

/// Namespaces, and the allowed calls between them.
fn namespaces(
    context: &PushContext,
    proxies: BTreeMap<Namespace, Connected>,
    parameters: &Parameters,
) -> Value {
    let all = by_namespace(context);
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    let mut arrows: BTreeMap<(String, String), usize> = BTreeMap::new();

    for (namespace, services) in &all {
        let policies = Policies::of(context, namespace);
        let sum = sums.entry(namespace.to_string()).or_default();
        for service in services {
            let access = access(context, &policies, service);
            sum.services += 1;
            sum.open += usize::from(access.callers.anyone && access.mtls != Demand::Outside);
            *sum.mtls.entry(word(access.mtls)).or_default() += 1;
            for from in sources(&access.callers) {
                *arrows.entry((from, namespace.to_string())).or_default() += 1;
            }
        }
    }

    for (namespace, connected) in proxies {
        sums.entry(namespace.to_string()).or_default().connected = connected;
    }

    let total = sums.len();
    let chosen: BTreeMap<String, Sum> = sums
        .into_iter()
        .filter(|(name, _)| fits(parameters, &[name]))
        .collect();

    // Arrows from and to a chosen namespace are shown, even if the other end is not.
    arrows.retain(|(from, to), _| chosen.contains_key(from) || chosen.contains_key(to));
    let rows: Vec<Value> = chosen
        .iter()
        .take(MAX_NAMESPACES)
        .map(|(name, sum)| {
            json!({
                "name": name, "services": sum.services, "proxies": sum.connected.proxies, "mtls": sum.mtls,
                "open": sum.open, "waypoints": sum.connected.waypoints, "ztunnels": sum.connected.ztunnels,
            })
        })
        .collect();

    let total_arrows = arrows.len();
    let mut arrows: Vec<_> = arrows.into_iter().collect();

    // If there are too many, those for most services come first.
    arrows.sort_by_key(|(_, services)| std::cmp::Reverse(*services));
    let arrows: Vec<Value> = arrows
        .into_iter()
        .take(MAX_ARROWS)
        .map(|((from, to), services)| json!({ "from": from, "to": to, "services": services }))
        .collect();

    json!({
        "total": total, "namespaces": rows, "moreArrows": total_arrows.saturating_sub(arrows.len()), "arrows": arrows,
        "root": context.mesh.config.root_namespace, "services": context.directory.services.len(),
    })
}

/// The namespaces of callers, as far as policies name them.
fn sources(callers: &Callers) -> BTreeSet<String> {
    let of_account = |account: &String| {
        let parts: Vec<&str> = account.split('/').collect();
        match parts.as_slice() {
            [_, "ns", namespace, "sa", _] | [namespace, _] => Some((*namespace).to_owned()),
            _ => None,
        }
    };
    let accounts = callers.accounts.iter().filter_map(of_account);
    callers
        .namespaces
        .iter()
        .cloned()
        .chain(accounts)
        .filter(|name| !name.contains('*'))
        .collect()
}

/// The services of one namespace, each with its allowed callers.
fn services(context: &PushContext, namespace: &Namespace, parameters: &Parameters) -> Value {
    let mut all = by_namespace(context).remove(namespace).unwrap_or_default();
    all.retain(|service| fits(parameters, &[&service.name, service.key.hostname.as_str()]));
    let rows = Rows::from_parameters(parameters);
    let total = all.len();
    let policies = Policies::of(context, namespace);
    let row = |service: &Arc<Service>| {
        let ports: Vec<Value> = service
            .ports
            .iter()
            .map(|port| json!({ "port": port.port, "protocol": port.protocol.as_str() }))
            .collect();

        let seen = match &service.export_to {
            ExportTo::Unset | ExportTo::Public => Value::Null,
            ExportTo::Nobody => json!([]),
            ExportTo::Namespaces(some) => json!(some),
        };

        json!({
            "name": &*service.name, "host": service.key.hostname, "object": service.origin.to_string(),
            "ports": ports, "visibleTo": seen, "access": access(context, &policies, service),
        })
    };

    let shown: Vec<Value> = rows.of(all).into_iter().map(row).collect();
    let mut answer = rows.answer(total, &shown);
    if let Some(answer) = answer.as_object_mut() {
        answer.insert("namespace".to_owned(), json!(namespace));
    }

    answer
}

/// The mTLS mode as a word.
fn word(demand: Demand) -> &'static str {
    match demand {
        Demand::Strict => "strict",
        Demand::Permissive => "permissive",
        Demand::Disable => "disable",
        Demand::Mixed => "mixed",
        Demand::Outside => "outside",
    }
}

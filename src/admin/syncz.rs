//! `/debug/syncz`, `/debug/connections`, `/debug/adsz`: what proxies watch, were sent and have
//! acknowledged.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::proxies::{self, Missing};
use super::reply::{self, Parameters};
use super::scratch;
use super::state::AdminState;
use navarch_push::engine::{Engine, ProxyId};
use navarch_push::proxy::Locality;
use navarch_push::proxy_view::{EffectiveLabels, EffectiveLocality};
use navarch_push::resource::ResourceType;
use navarch_registry::model::Labels;
use navarch_security::rules::Visibility;
use navarch_xds::connections::{ConnectionInfo, Mark, TypeInfo};

/// The sync status of each proxy, by type; only of one `namespace` if the request has it.
pub(super) async fn syncz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let namespace = parameters.get("namespace");
    let chosen =
        |info: &ConnectionInfo| namespace.is_none_or(|name| info.proxy.namespace.as_str() == name);
    let all = state.connections.list().into_iter().filter(chosen);
    reply::json(
        &parameters,
        &Value::Array(all.map(|info| status(&info)).collect()),
    )
}

/// The connected clients.
pub(super) async fn connections(
    State(state): State<AdminState>,
    parameters: Parameters,
) -> Response {
    let clients: Vec<Value> = state
        .connections
        .list()
        .iter()
        .map(|info| Value::Object(client(info)))
        .collect();
    reply::json(&parameters, &page(&clients))
}

/// The connected clients, and the subscriptions of each; only one proxy with `proxyID`. With
/// `push`, everything is sent to all proxies again.
pub(super) async fn adsz(
    State(state): State<AdminState>,
    Extension(visibility): Extension<Visibility>,
    parameters: Parameters,
) -> Response {
    if parameters.get("push").is_some_and(|push| !push.is_empty()) {
        return format!("Pushed to {} servers\n", state.connections.resend()).into_response();
    }

    let chosen = match proxies::chosen(&state, &visibility, &parameters) {
        Ok(chosen) => chosen,
        Err(missing) => return missing.into_response(),
    };
    let proxies = chosen.iter().map(|info| info.proxy.clone()).collect();
    let ask = |engine: &mut Engine, ids: &[ProxyId]| {
        let ask_one = |id: &ProxyId| {
            let labels = engine.query(*id, &EffectiveLabels)?;
            let locality = engine.query(*id, &EffectiveLocality)?;
            Some((labels, locality))
        };
        ids.iter().map(ask_one).collect::<Option<Vec<_>>>()
    };

    let Some(places) = scratch::run(&state, proxies, ask).await.flatten() else {
        return reply::ended();
    };

    let clients = chosen
        .iter()
        .zip(places)
        .map(|(info, (labels, locality))| watches(info, &labels, &locality));
    reply::json(&parameters, &page(&clients.collect::<Vec<_>>()))
}

/// Ends the stream of a proxy (`UNSAFE_ENABLE_ADMIN_ENDPOINTS`).
pub(super) async fn force_disconnect(
    State(state): State<AdminState>,
    Extension(visibility): Extension<Visibility>,
    parameters: Parameters,
) -> Response {
    match proxies::named(&state, &visibility, &parameters) {
        Ok(info) if state.connections.disconnect(&info.id) => "OK".into_response(),
        Ok(_) => Missing::NotConnected.into_response(),
        Err(missing) => missing.into_response(),
    }
}

/// Clients as a page. The list is omitted if it is empty.
fn page(clients: &[Value]) -> Value {
    match clients.is_empty() {
        true => json!({ "totalClients": 0 }),
        false => json!({ "totalClients": clients.len(), "clients": clients }),
    }
}

/// One proxy in the format of `adsz`, with the labels and the locality that its configuration
/// depends on.
fn watches(info: &ConnectionInfo, labels: &Labels, locality: &Locality) -> Value {
    let mut client = client(info);
    let watches: Map<String, Value> = info
        .types
        .iter()
        .map(|resource_type| {
            (
                resource_type.resource_type.type_url().to_owned(),
                json!(names(resource_type)),
            )
        })
        .collect();
    client.insert("labels".to_owned(), reply::map(labels));
    client.insert("metadata".to_owned(), (*info.proxy.metadata).clone());

    let Locality {
        region,
        zone,
        sub_zone,
    } = locality;
    client.insert(
        "locality".to_owned(),
        json!({ "region": &**region, "zone": &**zone, "sub_zone": &**sub_zone }),
    );

    let mut client = Value::Object(client);
    reply::leave_out_unset(&mut client);

    // A wildcard subscription has no names, but is listed.
    if let Some(client) = client.as_object_mut() {
        client.insert("watches".to_owned(), Value::Object(watches));
    }

    client
}

/// The fields that identify a proxy in all pages.
fn client(info: &ConnectionInfo) -> Map<String, Value> {
    let mut client = Map::new();
    client.insert("connectionId".to_owned(), json!(&*info.id));
    client.insert(
        "connectedAt".to_owned(),
        json!(info.connected_at.to_string()),
    );
    client.insert(
        "address".to_owned(),
        json!(info.peer.map(|peer| peer.to_string())),
    );
    client
}

/// The subscribed names of a type.
fn names(watch: &TypeInfo) -> Vec<&str> {
    watch.names.iter().map(|name| name.as_str()).collect()
}

/// One proxy in the format of `syncz`.
fn status(info: &ConnectionInfo) -> Value {
    let meta = |key: &str| info.proxy.meta(key).unwrap_or_default();
    let mut status = Map::new();
    status.insert("cluster_id".to_owned(), json!(meta("CLUSTER_ID")));
    status.insert("proxy".to_owned(), json!(&*info.proxy.name));
    status.insert(
        "proxy_type".to_owned(),
        json!(info.proxy.node_id.split('~').next()),
    );

    status.insert("istio_version".to_owned(), json!(meta("ISTIO_VERSION")));
    let mut resources = Map::new();

    for watch in &info.types {
        if let Some(name) = long_name(watch.resource_type) {
            status.insert(format!("{name}_sent"), json!(nonce(watch.sent.as_ref())));
            status.insert(format!("{name}_acked"), json!(nonce(watch.acked.as_ref())));
        }
        resources.insert(watch.resource_type.type_url().to_owned(), resource(watch));
    }

    status.insert("resources".to_owned(), Value::Object(resources));
    let mut status = Value::Object(status);
    reply::leave_out_unset(&mut status);
    status
}

/// One type of one proxy.
fn resource(watch: &TypeInfo) -> Value {
    json!({
        "sent": nonce(watch.sent.as_ref()),
        "acked": nonce(watch.acked.as_ref()),
        "sentTime": watch.sent.as_ref().map(|mark| mark.at.to_string()),
        "lastAckTime": watch.acked.as_ref().map(|mark| mark.at.to_string()),
        "lastError": watch.rejected.as_ref().map(|rejected| rejected.message.to_string()),
        "inSync": watch.in_sync,
        "count": watch.resources.as_ref().map_or(0, |sent| sent.resources.len()),
    })
}

/// The nonce of a response.
fn nonce(mark: Option<&Mark>) -> Option<Arc<str>> {
    mark.map(|mark| mark.nonce.clone())
}

/// The name of a type in its own fields.
fn long_name(resource_type: ResourceType) -> Option<&'static str> {
    match resource_type {
        ResourceType::Cluster => Some("cluster"),
        ResourceType::Endpoint => Some("endpoint"),
        ResourceType::Listener => Some("listener"),
        ResourceType::Route => Some("route"),
        ResourceType::ExtensionConfig => Some("extensionconfig"),
        ResourceType::VirtualHost
        | ResourceType::Secret
        | ResourceType::NameTable
        | ResourceType::ProxyConfig
        | ResourceType::Bootstrap
        | ResourceType::Locality
        | ResourceType::ObjectStatus
        | ResourceType::Address
        | ResourceType::Workload
        | ResourceType::Authorization
        | ResourceType::Object(_) => None,
    }
}

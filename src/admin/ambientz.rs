//! `/debug/ambientz`: workloads, services and policies of ambient mode, as ztunnel gets them.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use navarch_proto::any::type_url;
use navarch_proto::istio::workload::address::Type;
use navarch_proto::istio::workload::{Address, GatewayAddress, NetworkAddress, gateway_address};
use navarch_proto::json::{Codec, JsonError};
use prost::{Message, Name};
use serde_json::{Value, json};

use super::reply::{self, Parameters};
use super::scratch;
use super::state::AdminState;
use navarch_push::engine::{Engine, Interest, ProxyId};
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::resource::{Collection, ResourceType};

/// The node ID of the request for everything.
const NODE_ID: &str = "ztunnel~127.0.0.1~debug.navarch~cluster.local";

/// All resources of ztunnel; none without ambient mode.
pub(super) async fn ambientz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let Ok(client) = Proxy::parse(NODE_ID, json!({}), Locality::default()) else {
        return reply::ended();
    };

    let is_ambient = state.push.context().mesh.settings.ambient;
    let ask = move |engine: &mut Engine, ids: &[ProxyId]| {
        let shown = |engine: &mut Engine, resource_type| {
            let id = *ids.first()?;
            engine.subscribe(
                id,
                resource_type,
                Interest {
                    wildcard: true,
                    ..Interest::default()
                },
            );
            engine.published(id, resource_type)
        };

        let types = [ResourceType::Address, ResourceType::Authorization];
        let [addresses, policies] = types.map(|resource_type| {
            if is_ambient {
                shown(engine, resource_type)
            } else {
                None
            }
        });

        page(addresses.as_deref(), policies.as_deref())
    };

    match scratch::run(&state, vec![client.into()], ask).await {
        Some(Ok(page)) => reply::json(&parameters, &page),
        Some(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        None => reply::ended(),
    }
}

/// The page of these resources. Empty lists are `null`, as in Go.
fn page(addresses: Option<&Collection>, policies: Option<&Collection>) -> Result<Value, JsonError> {
    let mut workloads = Vec::new();
    let mut services = Vec::new();
    let mut authorizations = Vec::new();
    let codec = Codec::new();

    for resource in addresses.into_iter().flat_map(|all| &all.resources) {
        match Address::decode(&*resource.body)
            .ok()
            .and_then(|address| address.r#type)
        {
            Some(Type::Workload(mut workload)) => {
                workload.addresses = workload.addresses.iter().map(readable).collect();
                readable_gateway(workload.waypoint.as_mut());
                readable_gateway(workload.network_gateway.as_mut());
                workloads.push(message(&codec, &workload)?);
            }
            Some(Type::Service(mut service)) => {
                service.addresses.iter_mut().for_each(readable_network);
                readable_gateway(service.waypoint.as_mut());
                services.push(message(&codec, &service)?);
            }
            None => {}
        }
    }

    for resource in policies.into_iter().flat_map(|all| &all.resources) {
        authorizations.push(without_type(
            codec.any_to_json(resource.resource_type.type_url(), &resource.body)?,
        ));
    }

    let list = |all: Vec<Value>| {
        if all.is_empty() {
            Value::Null
        } else {
            Value::Array(all)
        }
    };

    Ok(
        json!({ "workloads": list(workloads), "services": list(services), "policies": list(authorizations) }),
    )
}

fn message<T: Message + Name>(codec: &Codec, message: &T) -> Result<Value, JsonError> {
    codec
        .any_to_json(&type_url::<T>(), &message.encode_to_vec())
        .map(without_type)
}

/// The JSON of an `Any` without its type, as the JSON of its message.
fn without_type(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("@type");
    }
    value
}

/// An address as text in the bytes field. (JSON shows both in base64, as istiod does.)
fn readable(address: &bytes::Bytes) -> bytes::Bytes {
    let text = match (
        <[u8; 4]>::try_from(&**address),
        <[u8; 16]>::try_from(&**address),
    ) {
        (Ok(v4), _) => std::net::IpAddr::from(v4).to_string(),
        (_, Ok(v6)) => std::net::IpAddr::from(v6).to_string(),
        (Err(_), Err(_)) => return address.clone(),
    };
    text.into_bytes().into()
}

fn readable_network(address: &mut NetworkAddress) {
    address.address = readable(&address.address);
}

fn readable_gateway(gateway: Option<&mut GatewayAddress>) {
    if let Some(gateway_address::Destination::Address(address)) =
        gateway.and_then(|gateway| gateway.destination.as_mut())
    {
        readable_network(address);
    }
}

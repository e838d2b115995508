//! The waypoints of services, as sent to a ztunnel that subscribes to these services only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_proto::istio::workload::address::Type;
use navarch_proto::istio::workload::gateway_address::Destination;
use navarch_proto::istio::workload::{Address, GatewayAddress};
use prost::Message;
use serde_json::{Value, json};

use crate::admin::scratch;
use crate::admin::state::AdminState;
use navarch_api::names::ResourceName;
use navarch_push::context::PushContext;
use navarch_push::engine::{Engine, Interest, ProxyId};
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::resource::ResourceType;
use navarch_registry::model::ServiceKey;

/// The node ID of the request.
const NODE_ID: &str = "ztunnel~127.0.0.1~page.navarch~cluster.local";

/// The waypoint of each of these hosts of a namespace, by host; empty without ambient mode.
pub(super) async fn before(
    state: &AdminState,
    namespace: &str,
    hosts: &[String],
) -> BTreeMap<String, Value> {
    let context = state.push.context();
    if !context.mesh.settings.ambient || hosts.is_empty() {
        return BTreeMap::new();
    }

    let Ok(client) = Proxy::parse(NODE_ID, json!({}), Locality::default()) else {
        return BTreeMap::new();
    };

    let names: BTreeSet<ResourceName> = hosts
        .iter()
        .map(|host| ResourceName::new(format!("{namespace}/{host}")))
        .collect();
    let ask = move |engine: &mut Engine, ids: &[ProxyId]| {
        let id = *ids.first()?;
        engine.subscribe(
            id,
            ResourceType::Address,
            Interest {
                wildcard: false,
                names: Arc::new(names),
            },
        );
        engine.published(id, ResourceType::Address)
    };

    let Some(Some(shown)) = scratch::run(state, vec![client.into()], ask).await else {
        return BTreeMap::new();
    };

    let services = shown.resources.iter().filter_map(|resource| {
        match Address::decode(&*resource.body).ok()?.r#type? {
            Type::Service(service) => Some(service),
            Type::Workload(_) => None,
        }
    });

    let waypoint = |address: &GatewayAddress| named(&context, address);
    services
        .filter_map(|service| {
            Some((
                service.hostname,
                service.waypoint.as_ref().and_then(waypoint)?,
            ))
        })
        .collect()
}

/// The name of a waypoint: that of its Service, or its address.
fn named(context: &PushContext, address: &GatewayAddress) -> Option<Value> {
    match address.destination.as_ref()? {
        Destination::Hostname(host) => {
            let key = ServiceKey::new(&host.namespace, &host.hostname);
            let service = context
                .directory
                .services
                .get(&key)
                .and_then(|services| services.first());
            let name = service.map_or(host.hostname.as_str(), |service| &*service.name);
            Some(json!({ "name": name, "namespace": host.namespace }))
        }
        Destination::Address(address) => {
            let ip = match address.address.as_ref() {
                [a, b, c, d] => std::net::IpAddr::from([*a, *b, *c, *d]),
                bytes => std::net::IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
            };
            let has_it = |service: &&Arc<navarch_registry::model::Service>| {
                let text = ip.to_string();
                service
                    .cluster_vips
                    .iter()
                    .any(|(_, vips)| vips.iter().any(|vip| **vip == *text))
            };

            let found = context
                .directory
                .services
                .values()
                .flat_map(|services| services.iter())
                .find(has_it);

            Some(match found {
                Some(service) => {
                    json!({ "name": &*service.name, "namespace": service.key.namespace })
                }
                None => json!({ "name": ip.to_string(), "namespace": "" }),
            })
        }
    }
}

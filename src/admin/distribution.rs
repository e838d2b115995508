//! How far objects have come: which proxies each reaches, and which of them have taken what is made of it.
//! `/debug/config_distribution` shows it; the status of the objects can, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_api::any_object::AnyObject;
use navarch_api::object::{Kind, Object, ObjectRef};
use navarch_push::context::{PushContext, facts_of};
use navarch_push::engine::ProxyId;
use navarch_push::resource::ResourceType;
use navarch_push::worker::{Ended, PushHandle};
use navarch_store::Stored;
use navarch_xds::connections::Connections;

/// How many objects are looked up before the push thread goes on with its work.
const AT_ONCE: usize = 32;

/// How many proxies an object reaches, and how many of them are up to date with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// `metadata.generation` of what is in force.
    pub generation: i64,
    /// Proxies that are shown something made of it.
    pub reached: usize,
    /// Those of them that have taken all that they are shown of those types.
    pub current: usize,
}

/// The shares of these objects. What a proxy is shown of a type is taken when all of it is: one resource that it refused
/// keeps all objects behind that type from being current there.
///
/// # Errors
/// When the push thread has ended.
pub async fn shares(
    push: &PushHandle,
    connections: &Connections,
    objects: Vec<AnyObject>,
) -> Result<BTreeMap<ObjectRef, Share>, Ended> {
    let mut shares = BTreeMap::new();
    for some in objects.chunks(AT_ONCE) {
        let asked: Vec<_> = some.iter().map(|object| (object.clone(), facts_of(object))).collect();
        let reached = push.inspect(move |inspect| {
            let reach = |(object, facts): (AnyObject, Vec<_>)| (object, inspect.engine.reached(&facts));
            asked.into_iter().map(reach).collect::<Vec<_>>()
        });
        let reached = reached.await?;
        // Looked at after the engine, so that what it has published counts as not taken until it is.
        let behind = behind(connections);
        for (object, proxies) in reached {
            let is_current = |(proxy, kinds): &(&ProxyId, &BTreeSet<ResourceType>)| {
                behind.get(proxy).is_none_or(|behind| behind.is_disjoint(kinds))
            };
            let share = Share {
                generation: object.meta().generation,
                reached: proxies.len(),
                current: proxies.iter().filter(is_current).count(),
            };
            shares.insert(object.object_ref(), share);
        }
    }
    Ok(shares)
}

/// The types of which proxies have not taken all that there is.
fn behind(connections: &Connections) -> BTreeMap<ProxyId, BTreeSet<ResourceType>> {
    let mut all = BTreeMap::new();
    for info in connections.list() {
        let kinds: BTreeSet<_> = info.types.iter().filter(|kind| !kind.in_sync).map(|kind| kind.kind).collect();
        if !kinds.is_empty() {
            all.insert(info.proxy_id, kinds);
        }
    }
    all
}

/// All objects of the mesh's configuration.
#[must_use]
pub fn configuration(context: &PushContext) -> Vec<AnyObject> {
    use navarch_api::istio as kinds;
    let mut all = Vec::new();
    add::<kinds::VirtualService>(context, &mut all);
    add::<kinds::DestinationRule>(context, &mut all);
    add::<kinds::Gateway>(context, &mut all);
    add::<kinds::ServiceEntry>(context, &mut all);
    add::<kinds::WorkloadEntry>(context, &mut all);
    add::<kinds::Sidecar>(context, &mut all);
    add::<kinds::EnvoyFilter>(context, &mut all);
    add::<kinds::ProxyConfig>(context, &mut all);
    add::<kinds::PeerAuthentication>(context, &mut all);
    add::<kinds::AuthorizationPolicy>(context, &mut all);
    add::<kinds::RequestAuthentication>(context, &mut all);
    add::<kinds::Telemetry>(context, &mut all);
    add::<kinds::WasmPlugin>(context, &mut all);
    add::<kinds::TrafficExtension>(context, &mut all);
    all
}

/// Adds the objects of one kind.
fn add<T: Stored>(context: &PushContext, all: &mut Vec<AnyObject>)
where
    AnyObject: From<Arc<Object<T>>>,
{
    all.extend(T::table(&context.objects).iter().cloned().map(AnyObject::from));
}

/// The page: all objects, or those that `kind`, `namespace` and `name` choose.
pub(super) async fn config_distribution(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let chosen = |object: &AnyObject| {
        let is = |key: &str, value: &str| parameters.get(key).is_none_or(|wanted| wanted == value);
        let ObjectRef { kind, name } = object.object_ref();
        is("kind", Kind::as_str(kind)) && is("namespace", name.namespace.as_str()) && is("name", &name.name)
    };
    let objects = configuration(&state.push.context()).into_iter().filter(chosen).collect();
    let Ok(shares) = shares(&state.push, &state.connections, objects).await else { return reply::ended() };
    let row = |(object, share): (ObjectRef, Share)| {
        json!({
            "kind": object.kind.as_str(), "namespace": object.name.namespace.as_str(), "name": &*object.name.name,
            "generation": share.generation, "proxies": share.reached, "upToDate": share.current,
        })
    };
    reply::json(&parameters, &Value::Array(shares.into_iter().map(row).collect()))
}

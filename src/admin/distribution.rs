//! The distribution progress of objects: the proxies that each reaches, and those that have
//! acknowledged it. `/debug/config_distribution` shows it; the status of the objects can show it,
//! too.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::applied::{Distribution, distribution};
use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_api::any_object::AnyObject;
use navarch_api::object::{Kind, Object, ObjectRef};
use navarch_push::context::PushContext;
use navarch_push::worker::{Ended, PushHandle};
use navarch_store::Stored;
use navarch_xds::connections::Connections;

/// The number of proxies that an object reaches, and how many of them are up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// `metadata.generation` of the current version.
    pub generation: i64,
    /// Proxies with a resource that depends on it.
    pub reached: usize,
    /// Proxies that have acknowledged its last change.
    pub current: usize,
}

/// The shares of these objects: exactly as `/debug/applied` counts them.
///
/// # Errors
/// When the push thread has ended.
pub async fn shares(
    push: &PushHandle,
    connections: &Connections,
    objects: Vec<AnyObject>,
) -> Result<BTreeMap<ObjectRef, Share>, Ended> {
    let share = |(object, progress): (AnyObject, Distribution)| {
        let generation = object.meta().generation;
        let share = Share {
            generation,
            reached: progress.reached,
            current: progress.reached - progress.unacknowledged.len(),
        };
        (object.object_ref(), share)
    };
    Ok(distribution(push, connections, objects)
        .await?
        .into_iter()
        .map(share)
        .collect())
}

/// All configuration objects of the mesh.
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
    all.extend(
        T::table(&context.objects)
            .iter()
            .cloned()
            .map(AnyObject::from),
    );
}

/// The page: all objects, or those that `kind`, `namespace` and `name` select.
pub(super) async fn config_distribution(
    State(state): State<AdminState>,
    parameters: Parameters,
) -> Response {
    let chosen = |object: &AnyObject| {
        let is = |key: &str, value: &str| parameters.get(key).is_none_or(|wanted| wanted == value);
        let ObjectRef { kind, name } = object.object_ref();
        is("kind", Kind::as_str(kind))
            && is("namespace", name.namespace.as_str())
            && is("name", &name.name)
    };

    let objects = configuration(&state.push.context())
        .into_iter()
        .filter(chosen)
        .collect();
    let Ok(shares) = shares(&state.push, &state.connections, objects).await else {
        return reply::ended();
    };

    let row = |(object, share): (ObjectRef, Share)| {
        json!({
            "kind": object.kind.as_str(), "namespace": object.name.namespace.as_str(), "name": &*object.name.name,
            "generation": share.generation, "proxies": share.reached, "upToDate": share.current,
        })
    };

    reply::json(
        &parameters,
        &Value::Array(shares.into_iter().map(row).collect()),
    )
}

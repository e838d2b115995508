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
use navarch_status::Progress;
use navarch_store::Stored;
use navarch_xds::connections::Connections;

/// The progress of these objects: exactly as `/debug/applied` counts them.
///
/// # Errors
/// When the push thread has ended.
pub async fn progresses(
    push: &PushHandle,
    connections: &Connections,
    objects: Vec<AnyObject>,
) -> Result<BTreeMap<ObjectRef, Progress>, Ended> {
    let progress = |(object, distribution): (AnyObject, Distribution)| {
        let progress = Progress {
            generation: object.meta().generation,
            reached: distribution.reached,
            current: distribution.reached - distribution.unacknowledged.len(),
        };
        (object.object_ref(), progress)
    };
    Ok(distribution(push, connections, objects)
        .await?
        .into_iter()
        .map(progress)
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
    let Ok(progresses) = progresses(&state.push, &state.connections, objects).await else {
        return reply::ended();
    };

    let row = |(object, progress): (ObjectRef, Progress)| {
        json!({
            "kind": object.kind.as_str(), "namespace": object.name.namespace.as_str(), "name": &*object.name.name,
            "generation": progress.generation, "proxies": progress.reached, "upToDate": progress.current,
        })
    };

    reply::json(
        &parameters,
        &Value::Array(progresses.into_iter().map(row).collect()),
    )
}

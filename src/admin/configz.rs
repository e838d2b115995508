//! `/debug/configz`, `/debug/mesh`, `/debug/inject` and `/debug/resourcesz`: the configuration in force, and its kinds.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_api::istio as kinds;
use navarch_api::object::{Kind, Object};
use navarch_push::context::PushContext;
use navarch_store::Stored;
use navarch_webhook::InjectorState;

/// All of Istio's objects as Kubernetes objects.
pub(super) async fn configz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let context = state.push.context();
    let mut all = Vec::new();
    add::<kinds::DestinationRule>(&context, &mut all);
    add::<kinds::EnvoyFilter>(&context, &mut all);
    add::<kinds::Gateway>(&context, &mut all);
    add::<kinds::ProxyConfig>(&context, &mut all);
    add::<kinds::ServiceEntry>(&context, &mut all);
    add::<kinds::Sidecar>(&context, &mut all);
    add::<kinds::VirtualService>(&context, &mut all);
    add::<kinds::WorkloadEntry>(&context, &mut all);
    add::<kinds::WorkloadGroup>(&context, &mut all);
    add::<kinds::AuthorizationPolicy>(&context, &mut all);
    add::<kinds::PeerAuthentication>(&context, &mut all);
    add::<kinds::RequestAuthentication>(&context, &mut all);
    add::<kinds::Telemetry>(&context, &mut all);
    add::<kinds::TrafficExtension>(&context, &mut all);
    add::<kinds::WasmPlugin>(&context, &mut all);
    reply::json(&parameters, &Value::Array(all))
}

/// The mesh config with all defaults.
pub(super) async fn mesh(State(state): State<AdminState>, parameters: Parameters) -> Response {
    reply::json(&parameters, &json!(state.push.context().mesh.config))
}

/// The injection templates of the configuration by name, in Go's language; 404 where nothing is injected here.
pub(super) async fn inject(State(state): State<AdminState>, parameters: Parameters) -> Response {
    match &**state.injector.load() {
        InjectorState::Off(_) => StatusCode::NOT_FOUND.into_response(),
        InjectorState::Pending(_) | InjectorState::Failed(_) => reply::json(&parameters, &json!({})),
        InjectorState::Ready { injector, .. } => reply::json(&parameters, &json!(injector.raw_templates())),
    }
}

/// The kinds that are read, but for the core ones of Kubernetes, which make up the registry.
pub(super) async fn resourcesz(parameters: Parameters) -> Response {
    let configures = |kind: &Kind| kind.group().ends_with("istio.io") || kind.group().contains("networking");
    let one = |kind: Kind| json!({ "group": kind.group(), "version": version(kind), "kind": object_kind(kind) });
    reply::json(&parameters, &Value::Array(Kind::ALL.into_iter().filter(configures).map(one).collect()))
}

/// The version of its API under which a kind is stored.
fn version(kind: Kind) -> &'static str {
    #[expect(clippy::wildcard_enum_match_arm, reason = "most kinds have a first version")]
    match kind {
        Kind::WasmPlugin | Kind::TrafficExtension => "v1alpha1",
        Kind::EnvoyFilter => "v1alpha3",
        Kind::ProxyConfig => "v1beta1",
        Kind::TcpRoute => "v1alpha2",
        Kind::XBackendTrafficPolicy | Kind::XBackend => "v1alpha1",
        _ => "v1",
    }
}

/// The name of a kind within its group.
fn object_kind(kind: Kind) -> &'static str {
    if kind == Kind::KubernetesGateway { "Gateway" } else { kind.as_str() }
}

/// Adds the objects of one kind.
fn add<T: Stored + Serialize>(context: &PushContext, all: &mut Vec<Value>) {
    all.extend(T::table(&context.objects).iter().map(|object| one(object)));
}

/// One object.
fn one<T: Stored + Serialize>(object: &Object<T>) -> Value {
    let meta = &object.meta;
    let mut metadata = json!({
        "name": &*meta.key.name,
        "namespace": meta.key.namespace,
        "creationTimestamp": meta.created.map(|created| created.to_string()),
        "resourceVersion": &*meta.resource_version,
        "labels": meta.labels,
        "annotations": meta.annotations,
    });
    reply::leave_out_unset(&mut metadata);
    json!({
        "kind": object_kind(T::KIND),
        "apiVersion": format!("{}/{}", T::KIND.group(), version(T::KIND)),
        "metadata": metadata,
        "spec": reply::spec(&object.spec),
    })
}

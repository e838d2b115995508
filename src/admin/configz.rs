//! `/debug/configz`, `/debug/mesh`, `/debug/inject` and `/debug/resourcesz`: the current
//! configuration, and its kinds.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::reply::{self, Parameters};
use super::scratch;
use super::state::AdminState;
use navarch_api::any_object::AnyObject;
use navarch_api::encode::encode_value;
use navarch_api::gateway_api::{
    BackendTlsPolicy, GatewayClass, GrpcRoute, HttpRoute, InferencePool, KubernetesGateway,
    ListenerSet, ReferenceGrant, TcpRoute, TlsRoute, XBackend, XBackendTrafficPolicy,
};
use navarch_api::istio as kinds;
use navarch_api::kubernetes::Ingress;
use navarch_api::object::{Kind, Object, ObjectMeta};
use navarch_api::proto_json::to_proto_json;
use navarch_envoy::generated_objects::{GeneratedObjects, ListGeneratedObjects};
use navarch_push::context::PushContext;
use navarch_push::engine::{Engine, ProxyId};
use navarch_push::proxy::{Locality, Proxy};
use navarch_store::{Objects, Stored};
use navarch_webhook::InjectorState;

/// The node ID of the request for derived objects.
const NODE_ID: &str = "router~127.0.0.1~debug.navarch~cluster.local";

/// All objects of Istio's kinds and of the Gateway API, and Ingresses, as Kubernetes objects, by
/// kind as in istiod. Objects derived from Ingresses and from the Gateway API follow the configured
/// objects of their kind.
pub(super) async fn configz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let context = state.push.context();
    let made = if are_made(&context) {
        let Ok(client) = Proxy::parse(NODE_ID, json!({}), Locality::default()) else {
            return reply::ended();
        };
        let ask = |engine: &mut Engine, ids: &[ProxyId]| {
            ids.first()
                .and_then(|id| engine.query(*id, &ListGeneratedObjects))
        };
        let Some(made) = scratch::run(&state, vec![client.into()], ask)
            .await
            .flatten()
        else {
            return reply::ended();
        };
        made
    } else {
        Arc::default()
    };

    reply::json(&parameters, &Value::Array(all(&context.objects, &made)))
}

/// Whether there are objects that others are derived from.
fn are_made(context: &PushContext) -> bool {
    let kinds = [
        Kind::Ingress,
        Kind::KubernetesGateway,
        Kind::HttpRoute,
        Kind::GrpcRoute,
        Kind::TlsRoute,
        Kind::TcpRoute,
        Kind::BackendTlsPolicy,
        Kind::XBackendTrafficPolicy,
        Kind::XBackend,
        Kind::InferencePool,
    ];
    kinds
        .into_iter()
        .any(|kind| context.objects.count(kind) > 0)
}

/// All objects of the page.
fn all(objects: &Objects, made: &GeneratedObjects) -> Vec<Value> {
    let mut all = Vec::new();
    add::<kinds::AuthorizationPolicy>(objects, &[], &mut all);
    add_plain::<BackendTlsPolicy>(objects, &mut all);
    add(objects, &made.destination_rules, &mut all);
    add::<kinds::EnvoyFilter>(objects, &[], &mut all);
    add_plain::<GrpcRoute>(objects, &mut all);
    add(objects, &made.gateways, &mut all);
    add_plain::<GatewayClass>(objects, &mut all);

    add_plain::<HttpRoute>(objects, &mut all);
    add_plain::<KubernetesGateway>(objects, &mut all);
    add_plain::<ListenerSet>(objects, &mut all);
    add::<kinds::PeerAuthentication>(objects, &[], &mut all);
    add::<kinds::ProxyConfig>(objects, &[], &mut all);
    add_plain::<ReferenceGrant>(objects, &mut all);
    add::<kinds::RequestAuthentication>(objects, &[], &mut all);
    add::<kinds::ServiceEntry>(objects, &[], &mut all);

    add::<kinds::Sidecar>(objects, &[], &mut all);
    add_plain::<TcpRoute>(objects, &mut all);
    add_plain::<TlsRoute>(objects, &mut all);
    add::<kinds::Telemetry>(objects, &[], &mut all);
    add::<kinds::TrafficExtension>(objects, &[], &mut all);
    add(objects, &made.virtual_services, &mut all);
    add::<kinds::WasmPlugin>(objects, &[], &mut all);
    add::<kinds::WorkloadEntry>(objects, &[], &mut all);

    add::<kinds::WorkloadGroup>(objects, &[], &mut all);
    add_plain::<XBackend>(objects, &mut all);
    add_plain::<XBackendTrafficPolicy>(objects, &mut all);
    add_plain::<InferencePool>(objects, &mut all);
    add_plain::<Ingress>(objects, &mut all);

    all
}

/// The mesh config with all defaults.
pub(super) async fn mesh(State(state): State<AdminState>, parameters: Parameters) -> Response {
    reply::json(
        &parameters,
        &to_proto_json(&state.push.context().mesh.config),
    )
}

/// The injection templates of the configuration by name, as Go templates; 404 without injection.
pub(super) async fn inject(State(state): State<AdminState>, parameters: Parameters) -> Response {
    match &**state.injector.load() {
        InjectorState::Off(_) => StatusCode::NOT_FOUND.into_response(),
        InjectorState::Pending(_) | InjectorState::Failed(_) => {
            reply::json(&parameters, &json!({}))
        }
        InjectorState::Ready { injector, .. } => {
            reply::json(&parameters, &json!(injector.raw_templates()))
        }
    }
}

/// The kinds that are read, except the core Kubernetes kinds, which make up the registry.
pub(super) async fn resourcesz(parameters: Parameters) -> Response {
    let configures = |kind: &Kind| {
        let is_of_mesh = kind.group().ends_with("istio.io") || kind.group().contains("networking");
        is_of_mesh && *kind != Kind::IngressClass
    };
    let kinds = Kind::ALL.into_iter().filter(configures);
    reply::json(
        &parameters,
        &Value::Array(kinds.map(group_version_kind).collect()),
    )
}

/// A kind in Go's format of a `GroupVersionKind`.
fn group_version_kind(kind: Kind) -> Value {
    json!({ "group": kind.group(), "version": version(kind), "kind": kind.as_str() })
}

/// The API version in which a kind is stored.
fn version(kind: Kind) -> &'static str {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "most kinds have a previous version"
    )]
    match kind {
        Kind::WasmPlugin | Kind::TrafficExtension => "v1alpha1",
        Kind::EnvoyFilter => "v1alpha3",
        Kind::ProxyConfig | Kind::ReferenceGrant => "v1beta1",
        Kind::XBackendTrafficPolicy | Kind::XBackend => "v1alpha1",
        _ => "v1",
    }
}

/// Adds the configured and the derived objects of one of Istio's kinds.
fn add<T>(objects: &Objects, made: &[Arc<Object<T>>], all: &mut Vec<Value>)
where
    T: Stored + Serialize,
    AnyObject: From<Arc<Object<T>>>,
{
    let one = |object: &Arc<Object<T>>| {
        let mut value = plain(object);
        value.insert("spec".to_owned(), to_proto_json(&object.spec));
        Value::Object(value)
    };
    all.extend(T::table(objects).iter().chain(made).map(one));
}

/// Adds the objects of a kind that protobuf does not define.
fn add_plain<T: Stored>(objects: &Objects, all: &mut Vec<Value>)
where
    AnyObject: From<Arc<Object<T>>>,
{
    all.extend(
        T::table(objects)
            .iter()
            .map(|object| Value::Object(plain(object))),
    );
}

/// An object, with the fields that are kept.
fn plain<T: Stored>(object: &Arc<Object<T>>) -> Map<String, Value>
where
    AnyObject: From<Arc<Object<T>>>,
{
    let encoded = encode_value(&AnyObject::from(object.clone())).unwrap_or_default();
    let mut value = Map::new();
    value.insert("kind".to_owned(), T::KIND.as_str().into());
    value.insert(
        "apiVersion".to_owned(),
        format!("{}/{}", T::KIND.group(), version(T::KIND)).into(),
    );
    value.insert("metadata".to_owned(), metadata(&object.meta));

    let mut spec = encoded.get("spec").cloned().unwrap_or_else(|| json!({}));
    reply::leave_out_unset(&mut spec);
    value.insert("spec".to_owned(), spec);

    let mut status = encoded.get("status").cloned().unwrap_or_default();
    reply::leave_out_unset(&mut status);

    if status.as_object().is_some_and(|status| !status.is_empty()) {
        value.insert("status".to_owned(), status);
    }
    value
}

/// Metadata, with the fields that istiod shows.
fn metadata(meta: &ObjectMeta) -> Value {
    let uid = meta.uid.to_string();
    let members = [
        ("name", json!(&*meta.key.name)),
        ("namespace", json!(meta.key.namespace)),
        ("uid", json!(uid)),
        ("resourceVersion", json!(&*meta.resource_version)),
        (
            "generation",
            if meta.generation == 0 {
                Value::Null
            } else {
                json!(meta.generation)
            },
        ),
        (
            "creationTimestamp",
            json!(meta.created.map(|created| created.to_string())),
        ),
        ("labels", reply::map(&meta.labels)),
        ("annotations", reply::map(&meta.annotations)),
    ];

    let is_set = |value: &Value| !value.is_null() && *value != "";
    let set = members.into_iter().filter(|(_, value)| is_set(value));
    Value::Object(set.map(|(name, value)| (name.to_owned(), value)).collect())
}

/// An object in istiod's own format (`config.Config`) as encoded by Go; `domain` is the DNS suffix
/// of Kubernetes services.
pub(super) fn config<T: Stored + Serialize>(object: &Object<T>, domain: &str) -> Value {
    let mut config = json!({
        "type": group_version_kind(T::KIND),
        "domain": domain,
        // Go writes the zero time, and an empty status.
        "creationTimestamp": reply::time(object.meta.created),
        "Spec": to_proto_json(&object.spec),
        "Status": {},
        "Extra": null,
    });
    if let (Some(config), Value::Object(metadata)) =
        (config.as_object_mut(), metadata(&object.meta))
    {
        config.extend(metadata);
    }
    config
}

#[cfg(test)]
mod tests {
    use navarch_api::istio::{DestinationRule, Gateway, ServiceEntry};
    use navarch_api::object::NamespacedName;

    use super::*;

    fn meta(name: &str) -> ObjectMeta {
        let labels = [("empty".into(), "".into())].into_iter().collect();
        let key = NamespacedName::new("shop", name);
        ObjectMeta {
            key,
            labels,
            generation: 3,
            resource_version: "7".into(),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn configz_shows_objects_of_all_kinds() {
        let mut objects = Objects::default();
        let entry = ServiceEntry {
            hosts: vec!["a.example".to_owned()],
            ..ServiceEntry::default()
        };
        objects.put(Arc::new(Object {
            meta: meta("entry"),
            spec: entry,
        }));

        objects.put(Arc::new(Object {
            meta: meta("written"),
            spec: Gateway::default(),
        }));
        objects.put(Arc::new(Object {
            meta: meta("route"),
            spec: HttpRoute::default(),
        }));

        objects.put(Arc::new(Object {
            meta: meta("ingress"),
            spec: Ingress::default(),
        }));
        let gateway = Arc::new(Object {
            meta: meta("made"),
            spec: Gateway::default(),
        });

        let made = GeneratedObjects {
            gateways: vec![gateway],
            ..GeneratedObjects::default()
        };
        let all = all(&objects, &made);
        let names: Vec<_> = all
            .iter()
            .map(|object| [&object["kind"], &object["metadata"]["name"]])
            .collect();

        let expected = [
            ["Gateway", "written"],
            ["Gateway", "made"],
            ["HTTPRoute", "route"],
            ["ServiceEntry", "entry"],
            ["Ingress", "ingress"],
        ];

        assert_eq!(names, expected);

        // What has its zero value is left out, an empty label is not.
        let entry = json!({
            "kind": "ServiceEntry",
            "apiVersion": "networking.istio.io/v1",
            "metadata": {
                "name": "entry", "namespace": "shop", "generation": 3, "resourceVersion": "7", "labels": { "empty": "" },
            },
            "spec": { "hosts": ["a.example"] },
        });

        assert_eq!(all[3], entry);
    }

    #[test]
    fn a_merged_rule_is_shown_in_istiods_own_form() {
        let spec = DestinationRule {
            host: "web".to_owned(),
            ..DestinationRule::default()
        };
        let expected = json!({
            "type": { "group": "networking.istio.io", "version": "v1", "kind": "DestinationRule" },
            "name": "web", "namespace": "shop", "domain": "cluster.local",
            "generation": 3, "resourceVersion": "7", "labels": { "empty": "" },
            "creationTimestamp": "0001-01-01T00:00:00Z",
            "Spec": { "host": "web" }, "Status": {}, "Extra": null,
        });

        assert_eq!(
            config(
                &Object {
                    meta: meta("web"),
                    spec
                },
                "cluster.local"
            ),
            expected
        );
    }
}

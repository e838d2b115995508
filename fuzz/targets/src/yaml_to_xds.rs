//! Configuration of users, up to the resources of Envoys: text, objects, validation, mesh state,
//! translation, for a sidecar and a gateway.
//!
//! An input has up to three parts, separated by lines `=====`: objects, mesh config, and the
//! metadata of the proxies as JSON. Invalid objects are translated, too: a cluster may hold objects
//! that were written while the webhook was not installed.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch::api::decode::{Format, Outcome, decode_documents};
use navarch::api::mesh::MeshConfig;
use navarch::api::names::ResourceName;
use navarch::api::object::ObjectRef;
use navarch::api::settings::Settings;
use navarch::api::validation::validate_any;
use navarch::envoy::EnvoyTranslator;
use navarch::push::engine::{Engine, Interest, ProxyId, PushCause, Sink};
use navarch::push::mesh_state::{Change, MeshState};
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::{Collection, ResourceType};
use serde_json::{Value, json};

/// Discards pushes.
struct Ignore;

impl Sink for Ignore {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// Translates one input.
///
/// # Panics
/// If a translator panics. The engine catches that, but this function reports it.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split("\n=====\n");
    let objects = parts.next().unwrap_or_default();
    let mesh = parts
        .next()
        .and_then(|text| MeshConfig::istio_defaults().apply(text).ok());
    let metadata = parts
        .next()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or(Value::Null);

    let mut changes: Vec<Change> = mesh
        .map(|mesh| Change::Mesh(Arc::new(mesh.value)))
        .into_iter()
        .collect();
    let mut first: Option<ObjectRef> = None;

    for decoded in decode_documents(objects, Format::Yaml) {
        if let Outcome::Read { object, .. } = decoded.outcome {
            let _ = validate_any(&object);
            first.get_or_insert_with(|| object.object_ref());
            changes.push(Change::Put(object));
        }
    }

    let mut state = MeshState::new(Settings::default());
    state.apply(changes);
    let mut engine = Engine::new(state.context(), Arc::new(EnvoyTranslator));

    for kind in ["sidecar", "router"] {
        let Some(proxy) = proxy(kind, &metadata) else {
            continue;
        };
        let id = engine.connect(Arc::new(proxy), Arc::new(Ignore));
        follow(&mut engine, id);
    }

    if let Some(first) = first {
        let facts = state.apply([Change::Removed(first)]);
        engine.apply(state.context(), facts);
    }

    let faults = engine.faults();
    assert!(faults.is_empty(), "translators panicked: {faults:?}");
}

/// A proxy in the namespace `default`, with additional metadata.
fn proxy(kind: &str, more: &Value) -> Option<Proxy> {
    let mut metadata = json!({
        "NAMESPACE": "default", "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": "10.1.0.1", "SERVICE_ACCOUNT": "default",
        "LABELS": { "app": "a", "istio": "ingressgateway" },
    });
    if let (Some(to), Some(from)) = (metadata.as_object_mut(), more.as_object()) {
        to.extend(from.clone());
    }
    let node = format!("{kind}~10.1.0.1~a-0.default~default.svc.cluster.local");
    Proxy::parse(&node, metadata, Locality::parse("region1/zone1")).ok()
}

/// Subscribes a proxy to all types, and to every resource that a response names.
fn follow(engine: &mut Engine, id: ProxyId) {
    let mut ask = |resource_type, names: Option<BTreeSet<String>>| -> Vec<(String, Vec<u8>)> {
        let wildcard = names.is_none();
        let names = names
            .unwrap_or_default()
            .into_iter()
            .map(ResourceName::new)
            .collect();

        engine.subscribe(
            id,
            resource_type,
            Interest {
                wildcard,
                names: Arc::new(names),
            },
        );

        let shown = engine.published(id, resource_type);
        let resources = shown.iter().flat_map(|shown| &shown.resources);
        resources
            .map(|resource| (resource.name.to_string(), resource.body.to_vec()))
            .collect()
    };

    let clusters = ask(ResourceType::Cluster, None);
    ask(
        ResourceType::Endpoint,
        Some(clusters.iter().map(|(name, _)| name.clone()).collect()),
    );
    let listeners = ask(ResourceType::Listener, None);
    let named: BTreeSet<String> = listeners.iter().flat_map(|(_, body)| words(body)).collect();
    ask(ResourceType::Route, Some(named.clone()));

    ask(ResourceType::ExtensionConfig, Some(named));
    ask(ResourceType::NameTable, None);
    let secrets = clusters
        .iter()
        .chain(&listeners)
        .flat_map(|(_, body)| words(body));
    ask(
        ResourceType::Secret,
        Some(
            secrets
                .filter(|word| word.contains("://") || word == "default")
                .collect(),
        ),
    );
}

/// All texts in an encoded message that may be names: length-delimited and readable. Names of
/// routes, secrets and extensions are among them, wherever they are nested.
fn words(body: &[u8]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, length) in body.iter().enumerate() {
        let start = at + 1;
        let Some(bytes) = body.get(start..start + usize::from(*length)) else {
            continue;
        };
        if (2..128).contains(&bytes.len())
            && bytes.iter().all(u8::is_ascii_graphic)
            && let Ok(word) = std::str::from_utf8(bytes)
        {
            found.insert(word.to_owned());
        }
    }
    found
}

//! Node metadata of proxies, through translation to resources.
//!
//! The first line of an input is the node id, the rest its metadata as JSON.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch::api::decode::{Format, Outcome, decode_documents};
use navarch::api::names::ResourceName;
use navarch::api::settings::Settings;
use navarch::envoy::EnvoyTranslator;
use navarch::push::engine::{Engine, Interest, PushCause, Sink};
use navarch::push::mesh_state::{Change, MeshState};
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::{Collection, ResourceType};
use serde_json::Value;

/// The objects in the mesh.
const WORLD: &str = r#"
{apiVersion: v1, kind: Service, metadata: {name: a, namespace: default}, spec: {clusterIP: 10.2.0.1, selector: {app: a}, ports: [{name: http, port: 80}, {name: tcp, port: 81}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default, labels: {app: a}}, spec: {nodeName: n}, status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a, namespace: default, labels: {kubernetes.io/service-name: a}}, addressType: IPv4, endpoints: [{addresses: [10.1.0.1]}], ports: [{name: http, port: 80}, {name: tcp, port: 81}]}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: g, namespace: default}, spec: {selector: {app: a}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: tls}}]}}
---
{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: s, namespace: default}, spec: {egress: [{hosts: ['./*']}]}}
---
{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: f, namespace: default}, spec: {configPatches: [{applyTo: CLUSTER, match: {proxy: {proxyVersion: '1.*', metadata: {KEY: v}}}, patch: {operation: MERGE, value: {connectTimeout: 1s}}}]}}
---
{apiVersion: telemetry.istio.io/v1, kind: Telemetry, metadata: {name: t, namespace: default}, spec: {tracing: [{randomSamplingPercentage: 10}]}}
"#;

/// Discards pushes.
struct Ignore;

impl Sink for Ignore {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// Connects one proxy that subscribes to all types.
///
/// # Panics
/// If a translator panics. The engine catches that, but this function reports it.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (node, metadata) = text.split_once('\n').unwrap_or((&text, ""));
    let metadata = serde_json::from_str(metadata).unwrap_or(Value::Null);
    let Ok(mut proxy) = Proxy::parse(node.trim(), metadata, Locality::parse("r/z/s")) else {
        return;
    };

    proxy.uses_delta = true;
    let objects = decode_documents(WORLD, Format::Yaml)
        .into_iter()
        .filter_map(|decoded| match decoded.outcome {
            Outcome::Read { object, .. } => Some(Change::Put(object)),
            Outcome::Ignored | Outcome::Rejected(_) => None,
        });

    let mut state = MeshState::new(Settings::default());
    state.apply(objects);
    let mut engine = Engine::new(state.context(), Arc::new(EnvoyTranslator));
    let id = engine.connect(Arc::new(proxy), Arc::new(Ignore));
    let mut ask = |resource_type, names: Option<BTreeSet<ResourceName>>| {
        let interest = Interest {
            wildcard: names.is_none(),
            names: Arc::new(names.unwrap_or_default()),
        };
        engine.subscribe(id, resource_type, interest);
        let shown = engine.published(id, resource_type);
        let names = shown
            .iter()
            .flat_map(|shown| &shown.resources)
            .map(|resource| resource.name.clone());
        names.collect::<BTreeSet<_>>()
    };

    let clusters = ask(ResourceType::Cluster, None);
    ask(ResourceType::Endpoint, Some(clusters));
    ask(ResourceType::Listener, None);
    let routes = [
        "80",
        "443",
        "8080",
        "http.443",
        "https.443.https.g.default",
        "inbound|80||",
    ];

    ask(
        ResourceType::Route,
        Some(routes.map(ResourceName::new).into()),
    );
    ask(
        ResourceType::Secret,
        Some(
            ["default", "ROOTCA", "kubernetes://tls"]
                .map(ResourceName::new)
                .into(),
        ),
    );

    ask(ResourceType::NameTable, None);
    let faults = engine.faults();
    assert!(faults.is_empty(), "translators panicked: {faults:?}");
}

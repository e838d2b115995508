//! A small mesh for tests: YAML in, what a proxy is told out.

use std::sync::Arc;

use navarch_proto::envoy::config::route::v3::RouteConfiguration;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::Secret;
use prost::Message;
use serde_json::json;

use super::EnvoyTranslator;
use crate::api::decode::{Format, Outcome, decode_documents};
use crate::api::identity::Identity;
use crate::api::mesh::MeshConfig;
use crate::api::names::ResourceName;
use crate::api::object::NamespacedName;
use crate::api::settings::Settings;
use crate::push::engine::{Engine, Interest, ProxyId, PushCause, Settled, Sink};
use crate::push::proxy::{Locality, Proxy};
use crate::push::query::Query;
use crate::push::resource::{Collection, ResourceType};
use crate::push::world::{Change, World};

/// A world and the engine that shows it to proxies.
pub(in crate::envoy) struct TestMesh {
    /// The world.
    world: World,
    /// The engine.
    engine: Engine,
    /// How many proxies there are, for their addresses.
    proxies: usize,
}

/// Takes no pushes.
struct Ignore;

impl Sink for Ignore {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

impl TestMesh {
    /// A mesh of these documents.
    pub(in crate::envoy) fn new(yaml: &str) -> Self {
        Self::with_settings(yaml, Settings::default())
    }

    /// Lays mesh config over Istio's defaults.
    pub(in crate::envoy) fn mesh_config(&mut self, yaml: &str) {
        let config = MeshConfig::istio_defaults().apply(yaml).unwrap().value;
        self.change([Change::Mesh(Arc::new(config))]);
    }

    /// Adds or changes objects.
    pub(in crate::envoy) fn apply(&mut self, yaml: &str) -> Settled {
        self.change(changes(yaml))
    }

    fn change(&mut self, changes: impl IntoIterator<Item = Change>) -> Settled {
        let facts = self.world.apply(changes);
        self.engine.apply(self.world.context(), facts)
    }

    /// Connects a sidecar of a namespace whose pod has the label `app`.
    pub(in crate::envoy) fn sidecar(&mut self, namespace: &str, app: &str) -> ProxyId {
        self.connect("sidecar", namespace, app)
    }

    /// Sets what was given at start: only before anything else.
    pub(in crate::envoy) fn with_settings(yaml: &str, settings: Settings) -> Self {
        let mut world = World::new(settings);
        world.apply(changes(yaml));
        let engine = Engine::new(world.context(), Arc::new(EnvoyTranslator));
        Self { world, engine, proxies: 0 }
    }

    /// Connects a gateway that was proved to be this service account.
    pub(in crate::envoy) fn proved_gateway(&mut self, namespace: &str, account: &str) -> ProxyId {
        let mut proxy = self.proxy("router", namespace, "gateway");
        proxy.identity = Identity::parse(&format!("spiffe://cluster.local/ns/{namespace}/sa/{account}")).ok();
        self.engine.connect(Arc::new(proxy), Arc::new(Ignore))
    }

    /// Connects a gateway of a namespace.
    pub(in crate::envoy) fn gateway(&mut self, namespace: &str) -> ProxyId {
        self.connect("router", namespace, "gateway")
    }

    fn connect(&mut self, kind: &str, namespace: &str, app: &str) -> ProxyId {
        let proxy = self.proxy(kind, namespace, app);
        self.engine.connect(Arc::new(proxy), Arc::new(Ignore))
    }

    fn proxy(&mut self, kind: &str, namespace: &str, app: &str) -> Proxy {
        self.proxies += 1;
        let ip = format!("10.244.0.{}", self.proxies);
        let node = format!("{kind}~{ip}~{app}-{}.{namespace}~{namespace}.svc.cluster.local", self.proxies);
        let metadata =
            json!({"NAMESPACE": namespace, "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": ip, "LABELS": {"app": app}});
        Proxy::parse(&node, metadata, Locality::default()).unwrap()
    }

    /// Says whether a service account may read secrets.
    pub(in crate::envoy) fn review(&mut self, namespace: &str, account: &str, allowed: Option<bool>) -> Settled {
        self.change([Change::SecretReader(NamespacedName::new(namespace, account), allowed)])
    }

    /// Has a proxy ask for a secret; gives it.
    pub(in crate::envoy) fn secret(&mut self, proxy: ProxyId, name: &str) -> Option<Secret> {
        let names = Arc::new([ResourceName::new(name)].into_iter().collect());
        self.engine.subscribe(proxy, ResourceType::Secret, Interest { wildcard: false, names });
        let shown = self.engine.shown(proxy, ResourceType::Secret).unwrap();
        shown.resources.first().map(|resource| Secret::decode(resource.body.clone()).unwrap())
    }

    /// All that translators could not make use of.
    pub(in crate::envoy) fn remarks(&self) -> Vec<Arc<str>> {
        self.engine.remarks().into_iter().map(|remark| remark.text).collect()
    }

    /// What a query answers for a proxy.
    pub(in crate::envoy) fn ask<Q: Query>(&self, proxy: ProxyId, query: &Q) -> Arc<Q::Value> {
        self.engine.ask(proxy, query)
    }

    /// Has a proxy ask for a route configuration; gives it. Its bytes are those that the message itself would have.
    pub(in crate::envoy) fn routes(&mut self, proxy: ProxyId, name: &str) -> RouteConfiguration {
        let names = Arc::new([ResourceName::new(name)].into_iter().collect());
        self.engine.subscribe(proxy, ResourceType::Route, Interest { wildcard: false, names });
        let shown = self.engine.shown(proxy, ResourceType::Route).unwrap();
        let body = shown.resources.first().unwrap().body.clone();
        let decoded = RouteConfiguration::decode(body.clone()).unwrap();
        assert_eq!(decoded.encode_to_vec(), body);
        decoded
    }
}

/// The documents as changes.
fn changes(yaml: &str) -> Vec<Change> {
    let change = |outcome| match outcome {
        Outcome::Read { object, .. } => Change::Put(object),
        Outcome::Ignored => panic!("a document of no known kind"),
        Outcome::Rejected(error) => panic!("{error}"),
    };
    decode_documents(yaml, Format::Yaml).into_iter().map(|document| change(document.outcome)).collect()
}

/// A Service `name` of `namespace` with an HTTP port.
pub(in crate::envoy) fn service(namespace: &str, name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{clusterIP: 10.96.0.1, ports: [{{name: http, port: {port}}}]}}\n---\n"
    )
}

/// An object of Istio's networking API, its spec in flow style.
pub(in crate::envoy) fn networking(kind: &str, namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {spec}\n---\n"
    )
}

//! A small mesh for tests: objects in YAML in, a proxy's resources out.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use navarch_proto::envoy::config::route::v3::RouteConfiguration;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::Secret;
use prost::Message;
use serde_json::json;

use super::EnvoyTranslator;
use navarch_api::identity::Identity;
use navarch_api::mesh::MeshConfig;
use navarch_api::names::{ClusterId, ResourceName};
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::settings::Settings;
use navarch_push::engine::{Engine, Interest, ProxyId, PushStats};
use navarch_push::learned::{LearnedChange, ScopedClusters};
use navarch_push::mesh_state::{Change, MeshState, RemoteChange};
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::query::Query;
use navarch_push::resource::ResourceType;
use navarch_push::testing::{NoSink, changes};

/// A mesh state and the engine that shows it to proxies.
pub(crate) struct TestMesh {
    state: MeshState,
    engine: Engine,
    /// How many proxies there are, for their addresses.
    proxies: usize,
}

impl TestMesh {
    /// A mesh of these documents.
    pub(crate) fn new(yaml: &str) -> Self {
        Self::with_settings(yaml, Settings::default())
    }

    /// Lays mesh config over Istio's defaults.
    pub(crate) fn mesh_config(&mut self, yaml: &str) {
        let config = MeshConfig::istio_defaults().apply(yaml).unwrap().value;
        self.change([Change::Mesh(Arc::new(config))]);
    }

    /// Adds or changes objects.
    pub(crate) fn apply(&mut self, yaml: &str) -> PushStats {
        self.change(changes(yaml))
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) -> PushStats {
        let name = NamespacedName::new(namespace, name);
        self.change([Change::Removed(ObjectRef { kind, name })])
    }

    /// Replaces the objects of a remote cluster.
    pub(crate) fn reset_remote(&mut self, cluster: &str, yaml: &str) -> PushStats {
        let objects = changes(yaml).into_iter().filter_map(|change| {
            let Change::Put(object) = change else {
                return None;
            };
            Some(object)
        });
        let reset = RemoteChange::Reset(objects.collect());
        self.change([Change::Remote(ClusterId::new(cluster), reset)])
    }

    fn change(&mut self, changes: impl IntoIterator<Item = Change>) -> PushStats {
        let facts = self.state.apply(changes);
        self.engine.apply(self.state.context(), facts)
    }

    /// Connects a sidecar of a namespace whose pod has the label `app`.
    pub(crate) fn sidecar(&mut self, namespace: &str, app: &str) -> ProxyId {
        self.connect("sidecar", namespace, app)
    }

    /// Sets what was given at start: only before anything else.
    pub(crate) fn with_settings(yaml: &str, settings: Settings) -> Self {
        let mut state = MeshState::new(settings);
        state.apply(changes(yaml));
        let engine = Engine::new(state.context(), Arc::new(EnvoyTranslator));
        Self {
            state,
            engine,
            proxies: 0,
        }
    }

    /// Connects a gateway that was proved to be this service account.
    pub(crate) fn proved_gateway(&mut self, namespace: &str, account: &str) -> ProxyId {
        self.proved_gateway_in("Kubernetes", namespace, account)
    }

    /// The same in another cluster.
    pub(crate) fn proved_gateway_in(
        &mut self,
        cluster: &str,
        namespace: &str,
        account: &str,
    ) -> ProxyId {
        let mut proxy = self.proxy_in(cluster, "router", namespace, "gateway");
        proxy.identity = Identity::parse(&format!(
            "spiffe://cluster.local/ns/{namespace}/sa/{account}"
        ))
        .ok();
        self.engine.connect(Arc::new(proxy), Arc::new(NoSink))
    }

    /// Connects a proxy whose Envoy has these extensions alone.
    pub(crate) fn with_extensions(
        &mut self,
        kind: &str,
        namespace: &str,
        extensions: &[&str],
    ) -> ProxyId {
        let mut proxy = self.proxy(kind, namespace, "web");
        let extensions = extensions.iter().map(|&name| Arc::from(name));
        proxy.extensions = Some(Arc::new(extensions.collect()));
        self.engine.connect(Arc::new(proxy), Arc::new(NoSink))
    }

    /// Connects a proxy with these fields in its metadata.
    pub(crate) fn with_metadata(
        &mut self,
        kind: &str,
        namespace: &str,
        app: &str,
        fields: &serde_json::Value,
    ) -> ProxyId {
        let mut proxy = self.proxy(kind, namespace, app);
        let mut metadata = (*proxy.metadata).clone();
        for (key, value) in fields.as_object().into_iter().flatten() {
            metadata[key] = value.clone();
        }
        proxy.metadata = Arc::new(metadata);
        self.engine.connect(Arc::new(proxy), Arc::new(NoSink))
    }

    /// Connects a proxy with a stock Envoy, whose agent computes metrics from access logs.
    pub(crate) fn with_agent_metrics(&mut self, kind: &str, namespace: &str) -> ProxyId {
        let mut proxy = self.proxy(kind, namespace, "web");
        let mut metadata = (*proxy.metadata).clone();
        metadata["METRICS_FROM_ACCESS_LOGS"] = "true".into();
        proxy.metadata = Arc::new(metadata);
        let extensions = ["envoy.access_loggers.http_grpc", "envoy.hashable_string"];
        proxy.extensions = Some(Arc::new(extensions.map(Arc::from).into()));
        self.engine.connect(Arc::new(proxy), Arc::new(NoSink))
    }

    /// Connects a sidecar that was proved to be this service account, and whose scope was learned
    /// when its stream started.
    pub(crate) fn learned_sidecar(&mut self, namespace: &str, account: &str) -> ProxyId {
        let id = format!("spiffe://cluster.local/ns/{namespace}/sa/{account}");
        let proxy = Proxy {
            uses_delta: true,
            has_learned_scope: true,
            identity: Identity::parse(&id).ok(),
            ..self.proxy("sidecar", namespace, "web")
        };
        self.engine.connect(Arc::new(proxy), Arc::new(NoSink))
    }

    /// Has the mesh learn from clusters that a proxy requests; returns whether there was anything to
    /// learn.
    pub(crate) fn learn(&mut self, proxy: ProxyId, clusters: &[&str]) -> bool {
        let clusters = clusters.iter().map(ResourceName::new).collect();
        let Some((workload, hosts)) = self.engine.learned_by(proxy, clusters) else {
            return false;
        };
        self.change([Change::Learned(workload, LearnedChange::Add(hosts))]);
        true
    }

    /// How many clusters a proxy has that has requested these, by reason.
    pub(crate) fn scoped_clusters(
        &self,
        proxy: ProxyId,
        requested: &[&str],
    ) -> Option<ScopedClusters> {
        let requested = requested.iter().map(ResourceName::new).collect();
        self.engine.scoped_clusters(proxy, Arc::new(requested))
    }

    /// The names of all that a proxy gets of a type, with these names beside the wildcard.
    pub(crate) fn all_names_and(
        &mut self,
        proxy: ProxyId,
        resource_type: ResourceType,
        names: &[&str],
    ) -> Vec<String> {
        let names = Arc::new(names.iter().map(ResourceName::new).collect());
        let interest = Interest {
            wildcard: true,
            names,
        };
        self.engine.subscribe(proxy, resource_type, interest);
        let shown = self.engine.published(proxy, resource_type).unwrap();
        let resources = shown.resources.iter();
        resources
            .map(|resource| resource.name.to_string())
            .collect()
    }

    /// Connects a waypoint whose pod has the label `app`, as made for a Gateway.
    pub(crate) fn waypoint(&mut self, namespace: &str, app: &str) -> ProxyId {
        self.deployed(namespace, app, "istio.io-mesh-controller", "")
    }

    /// Connects a waypoint of a network whose pod has the label `app`, deployed by a controller.
    pub(crate) fn deployed(
        &mut self,
        namespace: &str,
        app: &str,
        controller: &str,
        network: &str,
    ) -> ProxyId {
        let proxy = self.proxy("waypoint", namespace, app);
        self.connect_managed(proxy, controller, network)
    }

    /// Connects a gateway of a network, deployed for a Gateway of the Gateway API.
    pub(crate) fn gateway_in(&mut self, namespace: &str, network: &str) -> ProxyId {
        let proxy = self.proxy("router", namespace, "gateway");
        self.connect_managed(proxy, "istio.io-gateway-controller", network)
    }

    fn connect_managed(&mut self, mut proxy: Proxy, controller: &str, network: &str) -> ProxyId {
        let mut metadata = (*proxy.metadata).clone();
        metadata["LABELS"]["gateway.istio.io/managed"] = controller.into();
        metadata["NETWORK"] = network.into();
        proxy.metadata = Arc::new(metadata);
        Arc::make_mut(&mut proxy.labels)
            .extend([(Arc::from("gateway.istio.io/managed"), Arc::from(controller))]);
        self.engine.connect(Arc::new(proxy), Arc::new(NoSink))
    }

    /// The names of all that a proxy gets of a type.
    pub(crate) fn all_names(&mut self, proxy: ProxyId, resource_type: ResourceType) -> Vec<String> {
        self.engine.subscribe(
            proxy,
            resource_type,
            Interest {
                wildcard: true,
                ..Interest::default()
            },
        );
        let shown = self.engine.published(proxy, resource_type).unwrap();
        shown
            .resources
            .iter()
            .map(|resource| resource.name.to_string())
            .collect()
    }

    /// Connects a gateway of a namespace.
    pub(crate) fn gateway(&mut self, namespace: &str) -> ProxyId {
        self.connect("router", namespace, "gateway")
    }

    /// Connects an application with gRPC whose pod has the label `app`, and these labels beside it.
    pub(crate) fn grpc(&mut self, namespace: &str, app: &str, labels: &[(&str, &str)]) -> ProxyId {
        let mut proxy = self.proxy("sidecar", namespace, app);
        let mut metadata = (*proxy.metadata).clone();
        metadata["GENERATOR"] = "grpc".into();
        proxy.metadata = Arc::new(metadata);
        let labels = labels
            .iter()
            .map(|(label, value)| (Arc::from(*label), Arc::from(*value)));
        Arc::make_mut(&mut proxy.labels).extend(labels);
        self.engine.connect(Arc::new(proxy), Arc::new(NoSink))
    }

    /// Has a proxy ask for resources by name; returns those that it gets, by name.
    pub(crate) fn named<M: Message + Default>(
        &mut self,
        proxy: ProxyId,
        resource_type: ResourceType,
        names: &[&str],
    ) -> BTreeMap<String, M> {
        let names = Arc::new(names.iter().map(ResourceName::new).collect());
        self.engine.subscribe(
            proxy,
            resource_type,
            Interest {
                wildcard: false,
                names,
            },
        );
        let shown = self.engine.published(proxy, resource_type).unwrap();
        let decoded = |body: &Bytes| M::decode(body.clone()).unwrap();
        shown
            .resources
            .iter()
            .map(|one| (one.name.to_string(), decoded(&one.body)))
            .collect()
    }

    fn connect(&mut self, kind: &str, namespace: &str, app: &str) -> ProxyId {
        let proxy = self.proxy(kind, namespace, app);
        self.engine.connect(Arc::new(proxy), Arc::new(NoSink))
    }

    fn proxy(&mut self, kind: &str, namespace: &str, app: &str) -> Proxy {
        self.proxy_in("Kubernetes", kind, namespace, app)
    }

    fn proxy_in(&mut self, cluster: &str, kind: &str, namespace: &str, app: &str) -> Proxy {
        self.proxies += 1;
        let ip = format!("10.244.0.{}", self.proxies);
        let node = format!(
            "{kind}~{ip}~{app}-{}.{namespace}~{namespace}.svc.cluster.local",
            self.proxies
        );
        let metadata = json!({"NAMESPACE": namespace, "CLUSTER_ID": cluster, "INSTANCE_IPS": ip, "LABELS": {"app": app}});
        Proxy::parse(&node, metadata, Locality::default()).unwrap()
    }

    /// Says whether a service account may read secrets.
    pub(crate) fn review(
        &mut self,
        namespace: &str,
        account: &str,
        allowed: Option<bool>,
    ) -> PushStats {
        self.change([Change::SecretReader(
            NamespacedName::new(namespace, account),
            allowed,
        )])
    }

    /// Has a proxy ask for a secret; returns it.
    pub(crate) fn secret(&mut self, proxy: ProxyId, name: &str) -> Option<Secret> {
        let names = Arc::new([ResourceName::new(name)].into_iter().collect());
        self.engine.subscribe(
            proxy,
            ResourceType::Secret,
            Interest {
                wildcard: false,
                names,
            },
        );
        let shown = self.engine.published(proxy, ResourceType::Secret).unwrap();
        shown
            .resources
            .first()
            .map(|resource| Secret::decode(resource.body.clone()).unwrap())
    }

    /// All that translators could not make use of.
    pub(crate) fn remarks(&self) -> Vec<Arc<str>> {
        self.engine
            .remarks()
            .into_iter()
            .map(|remark| remark.text)
            .collect()
    }

    /// What a query answers for a proxy.
    pub(crate) fn query<Q: Query>(&self, proxy: ProxyId, query: &Q) -> Arc<Q::Value> {
        self.engine
            .query(proxy, query)
            .expect("the proxies of a test mesh stay connected")
    }

    /// Has a proxy ask for a route configuration; returns it. Its bytes are those that the message
    /// itself would have.
    pub(crate) fn routes(&mut self, proxy: ProxyId, name: &str) -> RouteConfiguration {
        let names = Arc::new([ResourceName::new(name)].into_iter().collect());
        self.engine.subscribe(
            proxy,
            ResourceType::Route,
            Interest {
                wildcard: false,
                names,
            },
        );
        let shown = self.engine.published(proxy, ResourceType::Route).unwrap();
        let body = shown.resources.first().unwrap().body.clone();
        let decoded = RouteConfiguration::decode(body.clone()).unwrap();
        assert_eq!(decoded.encode_to_vec(), body);
        decoded
    }
}

/// A Service `name` of `namespace` with an HTTP port.
pub(crate) fn service(namespace: &str, name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{clusterIP: 10.96.0.1, ports: [{{name: http, port: {port}}}]}}\n---\n"
    )
}

/// An object of Istio's networking API, its spec in flow style.
pub(crate) fn networking(kind: &str, namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {spec}\n---\n"
    )
}

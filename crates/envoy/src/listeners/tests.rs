//! Listeners of sidecars through the engine: properties that parity cases cannot show.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use navarch_proto::envoy::config::listener::v3::Listener;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use parking_lot::Mutex;
use prost::Message;
use serde_json::json;

use crate::EnvoyTranslator;
use crate::test_mesh::TestMesh;
use navarch_api::names::ResourceName;
use navarch_api::settings::Settings;
use navarch_push::engine::{Engine, Interest, ProxyId};
use navarch_push::mesh_state::MeshState;
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::resource::ResourceType;
use navarch_push::testing::{NoSink, changes};
use navarch_push::view::{Translator, View};

/// Translates for Envoy and records the names of built listeners.
#[derive(Default)]
struct Noting(Mutex<Vec<String>>);

impl Translator for Noting {
    fn names(&self, resource_type: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        EnvoyTranslator.names(resource_type, view)
    }

    fn resource(
        &self,
        resource_type: ResourceType,
        name: &ResourceName,
        view: &View<'_>,
    ) -> Option<Bytes> {
        self.0.lock().push(name.to_string());
        EnvoyTranslator.resource(resource_type, name, view)
    }
}

impl Noting {
    /// The listeners that were built since the last call, sorted.
    fn take(&self) -> Vec<String> {
        let mut names = std::mem::take(&mut *self.0.lock());
        names.sort_unstable();
        names
    }
}

/// A mesh of YAML objects, and its engine.
struct Mesh {
    state: MeshState,
    engine: Engine,
}

impl Mesh {
    /// Services for each kind of outbound listener.
    fn new(translator: Arc<dyn Translator>) -> Self {
        let mut state = MeshState::new(Settings::default());
        for yaml in [
            a_service("cart", "10.1.0.1", "http", 8080),
            a_service("db", "10.1.0.2", "tcp", 5432),
            a_service("queue", "10.1.0.3", "tcp", 9092),
        ] {
            state.apply(changes(&yaml));
        }
        Self {
            engine: Engine::new(state.context(), translator),
            state,
        }
    }

    /// Puts objects into the mesh.
    fn put(&mut self, yaml: &str) {
        let facts = self.state.apply(changes(yaml));
        self.engine.apply(self.state.context(), facts);
    }

    /// Connects a proxy that subscribes to all listeners.
    fn connect(&mut self, proxy: Proxy) -> ProxyId {
        let id = self.engine.connect(Arc::new(proxy), Arc::new(NoSink));
        self.engine.subscribe(
            id,
            ResourceType::Listener,
            Interest {
                wildcard: true,
                ..Interest::default()
            },
        );
        id
    }

    /// The listeners of a proxy by name.
    fn listeners(&self, id: ProxyId) -> BTreeMap<String, Listener> {
        let shown = self.engine.published(id, ResourceType::Listener).unwrap();
        let decode = |body: &Bytes| Listener::decode(body.clone()).unwrap();
        shown
            .resources
            .iter()
            .map(|resource| (resource.name.to_string(), decode(&resource.body)))
            .collect()
    }
}

/// A Kubernetes Service with one port.
fn a_service(name: &str, ip: &str, protocol: &str, port: u16) -> String {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"clusterIP": ip, "clusterIPs": [ip], "ports": [{"name": protocol, "port": port}]},
    })
    .to_string()
}

/// A sidecar of namespace `shop`.
fn a_sidecar(pod: &str, meta: serde_json::Value) -> Proxy {
    let mut metadata = json!({"NAMESPACE": "shop", "CLUSTER_ID": "Kubernetes"});
    for (key, value) in meta.as_object().cloned().unwrap_or_default() {
        metadata[key] = value;
    }
    let id = format!("sidecar~10.2.0.9~{pod}.shop~shop.svc.cluster.local");
    Proxy::parse(&id, metadata, Locality::default()).unwrap()
}

/// The names of all network and HTTP filters of listeners.
fn filter_names(listeners: &BTreeMap<String, Listener>) -> Vec<String> {
    use navarch_proto::envoy::config::listener::v3::filter::ConfigType::TypedConfig;

    let chains = listeners.values().flat_map(|listener| {
        listener
            .filter_chains
            .iter()
            .chain(&listener.default_filter_chain)
    });

    let mut names = Vec::new();

    for filter in chains.flat_map(|chain| &chain.filters) {
        names.push(filter.name.clone());
        if let Some(TypedConfig(config)) = &filter.config_type
            && filter.name == "envoy.filters.network.http_connection_manager"
        {
            let manager = HttpConnectionManager::decode(config.value.as_slice()).unwrap();
            names.extend(manager.http_filters.into_iter().map(|filter| filter.name));
        }
    }

    names
}

#[test]
fn a_proxy_without_istios_filters_gets_the_same_without_them() {
    let mut mesh = Mesh::new(Arc::new(EnvoyTranslator));
    let istio = mesh.connect(a_sidecar("web-1", json!({})));
    let stock = Proxy {
        extensions: Some(Arc::new([Arc::from("envoy.filters.http.router")].into())),
        ..a_sidecar("web-2", json!({}))
    };
    let stock = mesh.connect(stock);
    let with = filter_names(&mesh.listeners(istio));

    let without = filter_names(&mesh.listeners(stock));
    assert!(
        with.iter().any(|name| name == "istio.alpn")
            && with.iter().any(|name| name == "istio.metadata_exchange")
    );
    let expected: Vec<String> = with
        .into_iter()
        .filter(|name| !name.starts_with("istio."))
        .collect();
    assert_eq!(without, expected);
}

#[test]
fn a_protocol_whose_filter_an_envoy_lacks_is_tcp() {
    const MYSQL: &str = "envoy.filters.network.mysql_proxy";
    const TCP: &str = "envoy.filters.network.tcp_proxy";
    let settings = Settings {
        mysql_filter: true,
        ..Settings::default()
    };
    let yaml = a_service("db", "10.1.0.9", "mysql", 3306);
    let mut mesh = TestMesh::with_settings(&yaml, settings);
    for (extensions, expected) in [(&[][..], &[TCP][..]), (&[MYSQL], &[MYSQL, TCP])] {
        let proxy = mesh.with_extensions("sidecar", "shop", extensions);
        let listeners: BTreeMap<String, Listener> =
            mesh.named(proxy, ResourceType::Listener, &["10.1.0.9_3306"]);
        assert_eq!(filter_names(&listeners), expected);
    }
}

#[test]
fn a_changed_service_rebuilds_only_its_listeners() {
    let translator = Arc::new(Noting::default());
    let mut mesh = Mesh::new(translator.clone());
    let id = mesh.connect(a_sidecar("web-1", json!({})));
    assert_eq!(
        translator.take(),
        [
            "0.0.0.0_8080",
            "10.1.0.2_5432",
            "10.1.0.3_9092",
            "virtualInbound",
            "virtualOutbound"
        ]
    );

    // One more HTTP service on a port changes only routes.
    mesh.put(&a_service("bill", "10.1.0.4", "http", 8080));
    assert_eq!(translator.take(), Vec::<String>::new());
    mesh.put(&a_service("db", "10.1.0.2", "tcp", 5433));
    assert_eq!(translator.take(), ["10.1.0.2_5433"]);
    assert!(!mesh.listeners(id).contains_key("10.1.0.2_5432"));
}

#[test]
fn sidecars_that_differ_only_in_name_and_address_share_listeners() {
    let translator = Arc::new(Noting::default());
    let mut mesh = Mesh::new(translator.clone());
    mesh.connect(a_sidecar("web-1", json!({})));
    translator.take();
    mesh.connect(a_sidecar(
        "web-2",
        json!({"INSTANCE_IPS": "10.2.0.10", "NAME": "web-2"}),
    ));
    assert_eq!(translator.take(), Vec::<String>::new());
}

#[test]
fn only_listeners_that_use_the_idle_timeout_depend_on_it() {
    let mut mesh = Mesh::new(Arc::new(EnvoyTranslator));
    let plain = mesh.connect(a_sidecar("web-1", json!({})));
    let timed = mesh.connect(a_sidecar("web-2", json!({"IDLE_TIMEOUT": "10s"})));
    let nonsense = mesh.connect(a_sidecar("web-3", json!({"IDLE_TIMEOUT": "soon"})));
    assert_ne!(mesh.listeners(plain), mesh.listeners(timed));
    assert_eq!(mesh.listeners(plain), mesh.listeners(nonsense));
}

#[test]
fn without_interception_nothing_is_redirected_and_listeners_bind() {
    let mut mesh = Mesh::new(Arc::new(EnvoyTranslator));
    let id = mesh.connect(a_sidecar("web-1", json!({"INTERCEPTION_MODE": "NONE"})));
    let listeners = mesh.listeners(id);
    assert_eq!(
        listeners.keys().collect::<Vec<_>>(),
        ["127.0.0.1_5432", "127.0.0.1_8080", "127.0.0.1_9092"]
    );
    assert!(
        listeners
            .values()
            .all(|listener| listener.bind_to_port.is_none())
    );
}

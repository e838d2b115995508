//! The cost of changes for the clusters and endpoints of a mesh, and how proxies share them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::EnvoyTranslator;
use navarch_api::names::ResourceName;
use navarch_api::settings::Settings;
use navarch_push::engine::{Engine, Interest, ProxyId, PushCause, PushStats, Sink};
use navarch_push::mesh_state::MeshState;
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::resource::{Collection, ResourceType};
use navarch_push::testing::changes;

const SERVICES: usize = 50;

/// Records the types of pushes.
#[derive(Default)]
struct Noted(Mutex<Vec<ResourceType>>);

impl Sink for Noted {
    fn publish(&self, resource_type: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {
        self.0.lock().push(resource_type);
    }
}

/// A mesh with proxies.
struct Mesh {
    state: MeshState,
    engine: Engine,
    noted: Arc<Noted>,
}

impl Mesh {
    /// Services `s0`, `s1`… of namespace `shop` with an endpoint each.
    fn new() -> Self {
        let mut state = MeshState::new(Settings::default());
        let mut text = String::new();
        for index in 0..SERVICES {
            write!(text, "{}---\n{}---\n", service(index), slice(index, 1)).unwrap();
        }
        state.apply(changes(&text));
        let engine = Engine::new(state.context(), Arc::new(EnvoyTranslator));
        Self {
            state,
            engine,
            noted: Arc::default(),
        }
    }

    /// Connects a sidecar in a namespace, which subscribes to all clusters and the endpoints of
    /// `s0` and `s1`.
    fn connect(&mut self, namespace: &str, address: &str) -> ProxyId {
        let node = format!("sidecar~{address}~client.{namespace}~{namespace}.svc.cluster.local");
        let metadata = serde_json::json!({"NAMESPACE": namespace, "CLUSTER_ID": "Kubernetes"});
        let proxy = Proxy::parse(&node, metadata, Locality::default()).unwrap();
        let id = self.engine.connect(Arc::new(proxy), self.noted.clone());
        let all = Interest {
            wildcard: true,
            names: Arc::default(),
        };
        self.engine.subscribe(id, ResourceType::Cluster, all);

        let names: BTreeSet<ResourceName> = (0..2)
            .map(|index| ResourceName::new(format!("outbound|80||s{index}.shop.svc.cluster.local")))
            .collect();
        self.engine.subscribe(
            id,
            ResourceType::Endpoint,
            Interest {
                wildcard: false,
                names: Arc::new(names),
            },
        );

        self.noted.0.lock().clear();
        id
    }

    /// Applies objects; returns the engine's statistics, and the types that were pushed, sorted.
    fn put(&mut self, text: &str) -> (PushStats, Vec<ResourceType>) {
        let changed = self.state.apply(changes(text));
        let stats = self.engine.apply(self.state.context(), changed);
        let mut published = std::mem::take(&mut *self.noted.0.lock());
        published.sort_unstable();
        (stats, published)
    }
}

/// A Kubernetes Service.
fn service(index: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: s{index}, namespace: shop}}\nspec:\n  clusterIP: 10.0.0.{}\n  \
         selector: {{app: s{index}}}\n  ports:\n  - {{name: http, port: 80, targetPort: 8080}}\n",
        index + 1
    )
}

/// The endpoint of a service.
fn slice(index: usize, version: usize) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: s{index}-x\n  namespace: shop\n  labels: \
         {{kubernetes.io/service-name: s{index}}}\naddressType: IPv4\nendpoints:\n- addresses: [10.1.{version}.{}]\nports:\n\
         - {{name: http, port: 8080}}\n",
        index + 1
    )
}

/// A rule for a service.
fn rule(index: usize, connections: usize) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: r{index}, namespace: shop}}\nspec:\n  \
         host: s{index}.shop.svc.cluster.local\n  trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: \
         {connections}}}}}}}\n"
    )
}

#[test]
fn proxies_of_all_namespaces_share_clusters_and_endpoints() {
    let mut mesh = Mesh::new();
    mesh.put(&rule(0, 1));
    mesh.connect("bank", "10.9.0.1");
    let before = mesh.engine.sizes().results;
    mesh.connect("mall", "10.9.0.2");
    let after = mesh.engine.sizes().results;
    assert!(
        after - before < 12,
        "{} more results for an identical proxy",
        after - before
    );
}

#[test]
fn an_endpoint_change_affects_only_its_endpoint_set() {
    let mut mesh = Mesh::new();
    mesh.connect("bank", "10.9.0.1");
    mesh.connect("mall", "10.9.0.2");
    let (stats, published) = mesh.put(&slice(1, 2));
    assert_eq!(published, [ResourceType::Endpoint, ResourceType::Endpoint]);
    assert!(stats.computed < 10, "{stats:?}");
    let (stats, published) = mesh.put(&slice(7, 2));
    assert_eq!(
        published,
        [],
        "no proxy has subscribed to the endpoints of s7"
    );
    assert!(stats.computed < 5, "{stats:?}");
}

#[test]
fn a_destination_rule_affects_only_clusters_of_its_host() {
    let mut mesh = Mesh::new();
    mesh.connect("bank", "10.9.0.1");
    mesh.put(&rule(0, 1));
    let (stats, published) = mesh.put(&rule(0, 2));
    assert_eq!(
        published,
        [ResourceType::Cluster],
        "the limits of a cluster do not affect its endpoints"
    );
    assert!(stats.computed < 12, "{stats:?}");
}

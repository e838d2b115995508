//! A small mesh, its proxies, and their resources, ready for walks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use navarch::api::decode::{Format, Outcome, decode_documents};
use navarch::api::mesh::MeshConfig;
use navarch::api::names::ResourceName;
use navarch::api::settings::Settings;
use navarch::envoy::EnvoyTranslator;
use navarch::envoy::routes::with_hosts;
use navarch::push::engine::{Engine, Interest, ProxyId};
use navarch::push::mesh_state::{Change, MeshState};
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::ResourceType;
use navarch::walk::{Resources, Routes};
use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use navarch_proto::envoy::config::listener::v3::Listener;
use navarch_proto::envoy::config::route::v3::RouteConfiguration;
use prost::Message;

use super::shown::{Ignore, sorted};

/// A mesh, as YAML documents.
#[derive(Default)]
pub(crate) struct Mesh {
    yaml: String,
    config: String,
    settings: Settings,
    found_out: Vec<Change>,
}

impl Mesh {
    /// Adds documents.
    pub(crate) fn with(mut self, yaml: &str) -> Self {
        self.yaml.push_str("---\n");
        self.yaml.push_str(yaml);
        self.yaml.push('\n');
        self
    }

    /// Adds lines of mesh config.
    pub(crate) fn config(mut self, yaml: &str) -> Self {
        self.config.push_str(yaml);
        self.config.push('\n');
        self
    }

    /// Changes Navarch's settings.
    pub(crate) fn settings(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(&mut self.settings);
        self
    }

    /// Adds a change that Navarch would discover by itself, such as resolved names.
    pub(crate) fn found_out(mut self, change: Change) -> Self {
        self.found_out.push(change);
        self
    }

    /// Adds an object of Istio's networking API, its spec in flow style.
    pub(crate) fn rule(self, kind: &str, namespace: &str, name: &str, spec: &str) -> Self {
        self.with(&format!(
            "apiVersion: networking.istio.io/v1\nkind: {kind}\n\
             metadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}"
        ))
    }

    /// Adds a Service in `shop` with one port, and its pods: address and labels.
    pub(crate) fn service(
        mut self,
        name: &str,
        ip: &str,
        port: (&str, u16),
        pods: &[(&str, &str, &str)],
    ) -> Self {
        let (port_name, port) = port;
        let mut endpoints = String::new();

        for (index, (address, labels, node)) in pods.iter().enumerate() {
            self = self.with(&format!(
                "apiVersion: v1\nkind: Pod\n\
                 metadata: {{name: {name}-{index}, namespace: shop, labels: {{app: {name}, {labels}}}}}\n\
                 spec: {{nodeName: {node}}}\n\
                 status: {{phase: Running, podIP: {address}, podIPs: [{{ip: {address}}}]}}"
            ));
            let target = format!("{{kind: Pod, name: {name}-{index}, namespace: shop}}");
            let conditions = "{ready: true}";
            write!(
                endpoints,
                "{{addresses: [{address}], nodeName: {node}, conditions: {conditions}, targetRef: {target}}}, "
            )
            .unwrap();
        }

        self.with(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec: {{clusterIP: {ip}, clusterIPs: [{ip}], selector: {{app: {name}}}, \
             ports: [{{name: {port_name}, port: {port}, targetPort: 8080, protocol: TCP}}]}}\n\
             ---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: {name}-x, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}\n\
             addressType: IPv4\nendpoints: [{endpoints}]\nports: [{{name: {port_name}, port: 8080, protocol: TCP}}]"
        ))
    }

    /// Adds a node in a region.
    pub(crate) fn node(self, name: &str, region: &str) -> Self {
        self.with(&format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: \
             {{topology.kubernetes.io/region: {region}, topology.kubernetes.io/zone: {region}-a}}}}"
        ))
    }

    /// The resources of a sidecar at 10.9.9.9, the proxy of a pod with the label `app` in a
    /// namespace.
    pub(crate) fn sidecar(&self, namespace: &str, app: &str) -> Resources {
        self.proxy("sidecar", "10.9.9.9", namespace, app, "r1/r1-a")
    }

    /// The resources of a gateway in `shop` whose pods have the label `istio: edge`.
    pub(crate) fn gateway(&self) -> Resources {
        self.proxy("router", "10.9.9.8", "shop", "edge", "")
    }

    /// The resources of a pod's proxy.
    pub(crate) fn proxy(
        &self,
        kind: &str,
        ip: &str,
        namespace: &str,
        app: &str,
        locality: &str,
    ) -> Resources {
        self.proxy_with(kind, ip, namespace, app, locality, &serde_json::json!({}))
    }

    /// The same with additional metadata.
    pub(crate) fn proxy_with(
        &self,
        kind: &str,
        ip: &str,
        namespace: &str,
        app: &str,
        locality: &str,
        more: &serde_json::Value,
    ) -> Resources {
        self.served(kind, ip, namespace, app, locality, more).0
    }

    /// The route configurations of the proxy that [`Mesh::sidecar`] or [`Mesh::gateway`] creates.
    pub(crate) fn routes_of(&self, kind: &str) -> BTreeMap<String, RouteConfiguration> {
        let (ip, app) = if kind == "router" {
            ("10.9.9.8", "edge")
        } else {
            ("10.9.9.9", "client")
        };
        self.served(kind, ip, "shop", app, "", &serde_json::json!({}))
            .1
    }

    /// The resources of a proxy, and its route configurations in decoded form.
    fn served(
        &self,
        kind: &str,
        ip: &str,
        namespace: &str,
        app: &str,
        locality: &str,
        more: &serde_json::Value,
    ) -> (Resources, BTreeMap<String, RouteConfiguration>) {
        let mut state = MeshState::new(self.settings.clone());
        state.apply(self.changes());
        let mut engine = Engine::new(state.context(), Arc::new(EnvoyTranslator));
        let first = ip.split(',').next().unwrap_or_default();
        let node = format!("{kind}~{first}~{app}-0.{namespace}~{namespace}.svc.cluster.local");
        let mut metadata = serde_json::json!({
            "NAMESPACE": namespace, "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": ip,
            "LABELS": { "app": app, "istio": app },
        });
        metadata
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());

        let proxy = Proxy::parse(&node, metadata.clone(), Locality::parse(locality)).unwrap();
        let id = engine.connect(Arc::new(proxy), Arc::new(Ignore));
        let (whole, tables) = gather(&mut engine, id);

        // Every result must also hold for proxies with on-demand virtual hosts.
        metadata["FINE_GRAINED_ROUTES"] = true.into();
        let proxy = Proxy::parse(&node, metadata, Locality::parse(locality)).unwrap();
        let id = engine.connect(
            Arc::new(Proxy {
                uses_delta: true,
                ..proxy
            }),
            Arc::new(Ignore),
        );

        let (_, joined) = gather(&mut engine, id);

        for (name, routes) in &tables {
            assert_eq!(
                sorted(routes),
                sorted(&joined[name]),
                "{name} in both forms"
            );
        }

        (whole, tables)
    }

    fn changes(&self) -> Vec<Change> {
        let read = |outcome| match outcome {
            Outcome::Read { object, .. } => Change::Put(object),
            Outcome::Ignored => panic!("a document of an unknown kind"),
            Outcome::Rejected(error) => panic!("{error}"),
        };
        let config = MeshConfig::istio_defaults()
            .apply(&self.config)
            .unwrap()
            .value;
        let objects = decode_documents(&self.yaml, Format::Yaml)
            .into_iter()
            .map(|document| read(document.outcome));
        std::iter::once(Change::Mesh(Arc::new(config)))
            .chain(objects)
            .chain(self.found_out.iter().cloned())
            .collect()
    }
}

/// All resources of a proxy that subscribes as Envoy does, and its route configurations.
fn gather(engine: &mut Engine, id: ProxyId) -> (Resources, BTreeMap<String, RouteConfiguration>) {
    let mut ask = |resource_type, names: Option<BTreeSet<ResourceName>>| {
        let interest = Interest {
            wildcard: names.is_none(),
            names: Arc::new(names.unwrap_or_default()),
        };
        engine.subscribe(id, resource_type, interest);
        let shown = engine.published(id, resource_type).unwrap();
        let faults = engine.faults();
        assert!(faults.is_empty(), "{faults:?}");
        shown
            .resources
            .iter()
            .map(|resource| (resource.name.to_string(), resource.body.clone()))
            .collect::<Vec<_>>()
    };

    let mut resources = Resources::default();

    for (name, body) in ask(ResourceType::Cluster, None) {
        resources
            .clusters
            .insert(name, Cluster::decode(body).unwrap());
    }

    let names = resources.clusters.keys().map(ResourceName::new).collect();
    for (name, body) in ask(ResourceType::Endpoint, Some(names)) {
        resources
            .endpoints
            .insert(name, ClusterLoadAssignment::decode(body).unwrap());
    }

    let mut routes = BTreeSet::new();

    for (_, body) in ask(ResourceType::Listener, None) {
        let listener = Listener::decode(body).unwrap();
        routes.extend(route_names(&listener));
        resources.listeners.push(Arc::new(listener));
    }

    let mut tables = BTreeMap::new();
    let bodies = ask(ResourceType::Route, Some(routes.clone()));
    let hosts = ask(ResourceType::VirtualHost, Some(routes));
    let hosts: Vec<_> = hosts
        .into_iter()
        .map(|(name, body)| (ResourceName::new(name), body))
        .collect();

    for (name, body) in bodies {
        let body = with_hosts(
            &ResourceName::new(&name),
            &body,
            hosts.iter().map(|(name, body)| (name, body)),
        );
        tables.insert(
            name.clone(),
            RouteConfiguration::decode(body.clone()).unwrap(),
        );
        resources.routes.insert(name, Arc::new(Routes::new(body)));
    }

    (resources, tables)
}

/// The RDS names in a listener.
fn route_names(listener: &Listener) -> Vec<ResourceName> {
    use navarch_proto::envoy::config::listener::v3::filter::ConfigType;
    use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
    use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;

    let chains = listener
        .filter_chains
        .iter()
        .chain(&listener.default_filter_chain);
    let configs = chains
        .flat_map(|chain| &chain.filters)
        .filter_map(|filter| filter.config_type.as_ref());
    let managers = configs.filter_map(|config| match config {
        ConfigType::TypedConfig(any) if any.type_url.ends_with("HttpConnectionManager") => {
            HttpConnectionManager::decode(any.value.as_slice()).ok()
        }
        _ => None,
    });

    let names = managers.filter_map(|manager| match manager.route_specifier {
        Some(RouteSpecifier::Rds(rds)) => Some(ResourceName::new(rds.route_config_name)),
        _ => None,
    });
    names.collect()
}

//! Scenarios of the registry: objects, and the resulting services and endpoints.

mod kubernetes;
mod networks;
mod random;
mod service_entries;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::aggregate::{Aggregate, ClusterChanges, ClusterObjects};
use crate::directory::{Directory, DirectoryChange};
use crate::model::{Endpoint, ServiceKey, ServiceTarget};
use imbl::OrdMap;
use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Format, Outcome, decode_documents};
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::names::ClusterId;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::settings::Settings;
use navarch_api::typed::Typed;
use navarch_api::yaml;
use navarch_store::Objects;

/// A registry and its input objects.
struct House {
    objects: Objects,
    remotes: OrdMap<ClusterId, Objects>,
    registry: Aggregate,
}

/// The objects of a text.
fn read(yaml: &str) -> Vec<AnyObject> {
    let mut objects = Vec::new();
    for decoded in decode_documents(yaml, Format::Yaml) {
        match decoded.outcome {
            Outcome::Read {
                object,
                unknown_fields,
            } => {
                assert!(unknown_fields.is_empty(), "{unknown_fields:?}");
                objects.push(object);
            }
            Outcome::Ignored => {}
            Outcome::Rejected(error) => panic!("{error} in {yaml}"),
        }
    }
    objects
}

impl House {
    /// A registry with these objects.
    fn of(yaml: &str) -> Self {
        Self::with(Settings::default(), &MeshNetworks::default(), yaml)
    }

    /// A registry with these objects, settings and networks.
    fn with(settings: Settings, networks: &MeshNetworks, yaml: &str) -> Self {
        let mut registry = Aggregate::new(settings);
        let objects = Objects::default();
        let remotes = OrdMap::new();
        registry.set_mesh(
            &MeshConfig::istio_defaults(),
            networks,
            ClusterObjects {
                own: &objects,
                remotes: &remotes,
            },
        );

        let mut house = Self {
            objects,
            remotes,
            registry,
        };
        house.put(yaml);

        house
    }

    /// Puts objects and updates the registry.
    fn put(&mut self, yaml: &str) -> DirectoryChange {
        let changed = self.store(yaml);
        self.apply(&changed)
    }

    /// Puts objects without updating the registry.
    fn store(&mut self, yaml: &str) -> BTreeSet<ObjectRef> {
        let objects = read(yaml);
        let names = objects.iter().map(AnyObject::object_ref).collect();
        for object in objects {
            self.objects.put_any(object);
        }
        names
    }

    /// Removes an object of the shop.
    fn remove(&mut self, kind: Kind, name: &str) -> DirectoryChange {
        let name = NamespacedName::new("shop", name);
        assert!(
            self.objects.remove_ref(kind, &name),
            "{kind} {name} is there"
        );
        self.apply(&BTreeSet::from([ObjectRef { kind, name }]))
    }

    fn all(&self) -> ClusterObjects<'_> {
        ClusterObjects {
            own: &self.objects,
            remotes: &self.remotes,
        }
    }

    /// Updates the registry, and checks that it equals a new one.
    fn apply(&mut self, changed: &BTreeSet<ObjectRef>) -> DirectoryChange {
        self.apply_all(&ClusterChanges {
            own: changed.clone(),
            ..ClusterChanges::default()
        })
    }

    /// The same for changes in all clusters.
    fn apply_all(&mut self, changed: &ClusterChanges) -> DirectoryChange {
        let before = self.registry.directory().clone();
        let all = ClusterObjects {
            own: &self.objects,
            remotes: &self.remotes,
        };
        let change = self.registry.apply(all, changed);
        self.check(&before, &change);
        change
    }

    /// Checks that a change equals the difference from before.
    fn check(&self, before: &Directory, change: &DirectoryChange) {
        let merged = DirectoryChange {
            remotes: BTreeMap::new(),
            clusters: false,
            ..change.clone()
        };

        assert_eq!(
            merged,
            before.change_to(self.registry.directory()),
            "the returned change equals the difference"
        );

        for (cluster, reported) in &change.remotes {
            let none = Arc::new(Directory::default());
            let of =
                |directory: &Directory| directory.remotes.get(cluster).unwrap_or(&none).clone();
            let differs = of(before).change_to(&of(self.registry.directory()));
            let parts = |change: &DirectoryChange| {
                (
                    change.pod_targets.clone(),
                    change.targets.clone(),
                    change.workloads.clone(),
                )
            };

            assert_eq!(
                parts(reported),
                parts(&differs),
                "the returned change of a remote cluster equals the difference"
            );
        }
    }
}

/// Mesh networks from YAML.
fn parse_networks(text: &str) -> MeshNetworks {
    let value = yaml::parse(text, yaml::Schema::V1_1).unwrap();
    Typed::from_proto_json(&value).unwrap().value
}

/// A ready pod.
fn a_pod(name: &str, ip: &str, labels: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{ name: {name}, namespace: shop, labels: {{ {labels} }} }}\n\
         spec: {{ serviceAccountName: {name}, nodeName: n1, containers: [{{ name: a, ports: [{{ name: named, containerPort: 8080 }}] }}] }}\n\
         status: {{ phase: Running, podIP: {ip}, conditions: [{{ type: Ready, status: 'True' }}] }}\n"
    )
}

fn a_service(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: shop }}\nspec: {{ {spec} }}\n"
    )
}

/// An EndpointSlice of a Service with these endpoints.
fn a_slice(name: &str, service: &str, endpoints: &str) -> String {
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{ name: {name}, namespace: shop, labels: {{ kubernetes.io/service-name: {service} }} }}\n\
         addressType: IPv4\nports: [{{ name: http, port: 8080 }}]\nendpoints: [{endpoints}]\n"
    )
}

/// An endpoint that refers to a pod.
fn of_pod(ip: &str, pod: &str) -> String {
    format!("{{ addresses: [{ip}], targetRef: {{ kind: Pod, name: {pod}, namespace: shop }} }}")
}

/// The key of a Kubernetes Service in `shop`.
fn key(service: &str) -> ServiceKey {
    ServiceKey::new("shop", &format!("{service}.shop.svc.cluster.local"))
}

const WEB: &str = "clusterIP: 10.0.0.1, selector: { app: web }, ports: [{ name: http, port: 80, targetPort: named }]";

impl House {
    /// Address, port and health of the endpoints of a service.
    fn endpoints(&self, key: &ServiceKey) -> Vec<String> {
        let endpoints = self.registry.directory().endpoints.get(key);
        let show = |endpoint: &Arc<Endpoint>| {
            let addresses: Vec<&str> = endpoint
                .addresses
                .iter()
                .map(|address| &**address)
                .collect();
            format!(
                "{}:{} {:?}",
                addresses.join("+"),
                endpoint.port,
                endpoint.health
            )
        };

        endpoints
            .into_iter()
            .flat_map(|endpoints| endpoints.endpoints.iter().map(show))
            .collect()
    }

    fn targets(&self, pod: &str) -> Vec<String> {
        let targets = self
            .registry
            .directory()
            .pod_targets
            .get(&NamespacedName::new("shop", pod));
        targets
            .into_iter()
            .flat_map(|targets| targets.iter().map(show_target))
            .collect()
    }
}

fn show_target(target: &ServiceTarget) -> String {
    format!(
        "{}:{} at {}",
        target.service.key.hostname, target.port.port, target.target_port
    )
}

/// A shop with one service and its pod.
fn a_shop() -> House {
    let web = a_service("web", WEB) + &a_pod("web-1", "10.1.0.1", "app: web");
    House::of(&(web + &a_slice("web-a", "web", &of_pod("10.1.0.1", "web-1"))))
}

//! Stories of the registry: what users write, and what it makes of it.

mod random;

use std::collections::BTreeSet;

use super::Registry;
use crate::api::decode::{Format, Outcome, decode_documents};
use crate::api::mesh::{MeshConfig, MeshNetworks};
use crate::api::object::{NamespacedName, ObjectRef};
use crate::api::settings::Settings;
use crate::api::typed::Typed;
use crate::api::yaml;
use crate::registry::directory::DirectoryChange;
use crate::registry::model::ServiceKey;
use crate::store::Objects;

/// A registry and the objects that it was told of.
struct House {
    objects: Objects,
    registry: Registry,
}

impl House {
    /// With these objects.
    fn of(yaml: &str) -> Self {
        Self::with(Settings::default(), &MeshNetworks::default(), yaml)
    }

    /// With these objects in another world.
    fn with(settings: Settings, networks: &MeshNetworks, yaml: &str) -> Self {
        let mut registry = Registry::new(settings);
        let objects = Objects::default();
        registry.set_mesh(&MeshConfig::istio_defaults(), networks, &objects);
        let mut house = Self { objects, registry };
        house.put(yaml);
        house
    }

    /// Puts objects and tells the registry.
    fn put(&mut self, yaml: &str) -> DirectoryChange {
        let changed = self.store(yaml);
        self.apply(&changed)
    }

    /// Puts objects; the registry is not told yet.
    fn store(&mut self, yaml: &str) -> BTreeSet<ObjectRef> {
        let mut changed = BTreeSet::new();
        for decoded in decode_documents(yaml, Format::Yaml) {
            match decoded.outcome {
                Outcome::Read { object, unknown_fields } => {
                    assert!(unknown_fields.is_empty(), "{unknown_fields:?}");
                    changed.insert(object.object_ref());
                    self.objects.put_any(object);
                }
                Outcome::Ignored => {}
                Outcome::Rejected(error) => panic!("{error} in {yaml}"),
            }
        }
        changed
    }

    /// Tells the registry, and checks that it equals one that starts afresh.
    fn apply(&mut self, changed: &BTreeSet<ObjectRef>) -> DirectoryChange {
        let before = self.registry.directory().clone();
        let change = self.registry.apply(&self.objects, changed);
        assert_eq!(change, before.change_to(self.registry.directory()), "what is told is what changed");
        change
    }
}

/// Mesh networks from YAML.
fn parse_networks(text: &str) -> MeshNetworks {
    let value = yaml::parse(text, yaml::Schema::V1_1).unwrap();
    Typed::from_proto_json(&value).unwrap().value
}

/// The Services of a small shop and their pods.
const SHOP: &str = r"
apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { clusterIP: 10.0.0.1, selector: { app: web }, ports: [{ name: http, port: 80, targetPort: named }] }
---
apiVersion: v1
kind: Pod
metadata: { name: web-1, namespace: shop, labels: { app: web, security.istio.io/tlsMode: istio } }
spec: { serviceAccountName: web, nodeName: n1, containers: [{ name: a, ports: [{ name: named, containerPort: 8080 }] }] }
status: { phase: Running, podIP: 10.1.0.1, conditions: [{ type: Ready, status: 'True' }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: web-a, namespace: shop, labels: { kubernetes.io/service-name: web } }
addressType: IPv4
endpoints: [{ addresses: [10.1.0.1], targetRef: { kind: Pod, name: web-1, namespace: shop } }]
ports: [{ name: http, port: 8080 }]
";

#[test]
fn a_service_has_the_endpoints_of_its_slices_and_its_pods_serve_it() {
    let house = House::of(SHOP);
    let directory = house.registry.directory();
    let key = ServiceKey::new("shop", "web.shop.svc.cluster.local");
    let endpoints = &directory.endpoints.get(&key).unwrap();
    assert_eq!(endpoints.endpoints.len(), 1);
    assert_eq!(endpoints.service_accounts, ["spiffe://cluster.local/ns/shop/sa/web".into()]);
    let targets = directory.pod_targets.get(&NamespacedName::new("shop", "web-1")).unwrap();
    assert_eq!(targets.iter().map(|target| (target.port.port, target.target_port)).collect::<Vec<_>>(), [(80, 8080)]);
}

//! Scenarios of the registry: objects, and the resulting services and endpoints.

mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::aggregate::{Aggregate, ClusterChanges, ClusterObjects};
use crate::directory::{Directory, DirectoryChange, ListedTargets};
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

fn a_service_entry(name: &str, created: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\n\
         metadata: {{ name: {name}, namespace: shop, creationTimestamp: '{created}' }}\nspec: {{ {spec} }}\n"
    )
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

#[test]
fn a_service_has_the_endpoints_of_its_slices_and_its_pods_serve_it() {
    let house = a_shop();
    assert_eq!(house.endpoints(&key("web")), ["10.1.0.1:8080 Healthy"]);
    let accounts = &house
        .registry
        .directory()
        .endpoints
        .get(&key("web"))
        .unwrap()
        .service_accounts;
    assert_eq!(
        *accounts,
        ["spiffe://cluster.local/ns/shop/sa/web-1".into()]
    );
    assert_eq!(
        house.targets("web-1"),
        ["web.shop.svc.cluster.local:80 at 8080"]
    );
}

#[test]
fn a_pod_touches_the_endpoints_of_its_services_and_nothing_else() {
    let mut house = a_shop();
    house.put(
        &(a_service(
            "db",
            "clusterIP: 10.0.0.2, ports: [{ name: http, port: 80 }]",
        ) + &a_slice("db-a", "db", "")),
    );
    let change = house.put(&a_pod("web-1", "10.1.0.1", "app: web, version: v2"));
    let expected = DirectoryChange {
        endpoints: BTreeSet::from([key("web")]),
        workloads: BTreeSet::from([NamespacedName::new("shop", "web-1")]),
        ..DirectoryChange::default()
    };
    assert_eq!(change, expected);
    let unchanged = house.put(&a_pod("web-1", "10.1.0.1", "app: web, version: v2"));
    assert_eq!(unchanged, DirectoryChange::default());
}

#[test]
fn an_endpoint_waits_for_its_pod_and_is_removed_with_it() {
    let mut house = House::of(
        &(a_service("web", WEB) + &a_slice("web-a", "web", &of_pod("10.1.0.1", "web-1"))),
    );
    assert_eq!(house.endpoints(&key("web")), Vec::<String>::new());
    assert_eq!(house.registry.pending_pods(), 1);
    house.put(&a_pod("web-1", "10.1.0.1", "app: web"));
    assert_eq!(house.endpoints(&key("web")), ["10.1.0.1:8080 Healthy"]);
    assert_eq!(house.registry.pending_pods(), 0);
    house.remove(Kind::Pod, "web-1");
    assert_eq!(house.endpoints(&key("web")), Vec::<String>::new());
    assert_eq!(house.registry.pending_pods(), 1);
    house.remove(Kind::EndpointSlice, "web-a");
    assert_eq!(house.registry.pending_pods(), 0);
}

#[test]
fn a_pod_in_two_slices_is_one_endpoint() {
    let mut house = a_shop();
    let change = house.put(&a_slice("web-b", "web", &of_pod("10.1.0.1", "web-1")));
    assert_eq!(change, DirectoryChange::default());
    house.remove(Kind::EndpointSlice, "web-a");
    assert_eq!(house.endpoints(&key("web")), ["10.1.0.1:8080 Healthy"]);
}

#[test]
fn endpoints_that_shut_down_drain_only_with_persistent_sessions() {
    let going = "{ addresses: [10.9.0.1], conditions: { ready: false, serving: true, terminating: true } }, \
                 { addresses: [10.9.0.2], conditions: { ready: false, serving: false, terminating: false } }";
    let mut house = House::of(&(a_service("web", WEB) + &a_slice("web-a", "web", going)));
    assert_eq!(
        house.endpoints(&key("web")),
        ["10.9.0.1:8080 Terminating", "10.9.0.2:8080 Unhealthy"]
    );
    let labelled = "name: web, namespace: shop, labels: { istio.io/persistent-session: cookie }";
    house.put(&a_service("web", WEB).replace("name: web, namespace: shop", labelled));
    assert_eq!(
        house.endpoints(&key("web")),
        ["10.9.0.1:8080 Draining", "10.9.0.2:8080 Unhealthy"]
    );
}

#[test]
fn a_dual_stack_pod_is_one_endpoint_with_both_addresses() {
    let pod = a_pod("web-1", "10.1.0.1", "app: web").replace(
        "podIP: 10.1.0.1",
        "podIPs: [{ ip: 10.1.0.1 }, { ip: 'fd00::1' }]",
    );
    let service = a_service(
        "web",
        "clusterIPs: [10.0.0.1, 'fd00::a'], selector: { app: web }, ports: [{ name: http, port: 80 }]",
    );

    let second = a_slice("web-b", "web", &of_pod("'fd00::1'", "web-1")).replace("IPv4", "IPv6");
    let yaml = service + &pod + &a_slice("web-a", "web", &of_pod("10.1.0.1", "web-1")) + &second;
    let dual = Settings {
        dual_stack: true,
        ..Settings::default()
    };
    let house = House::with(dual, &MeshNetworks::default(), &yaml);
    assert_eq!(
        house.endpoints(&key("web")),
        ["10.1.0.1+fd00::1:8080 Healthy"]
    );

    assert_eq!(
        House::of(&yaml).endpoints(&key("web")),
        ["10.1.0.1:8080 Healthy", "fd00::1:8080 Healthy"]
    );
}

#[test]
fn a_pod_that_no_service_selects_serves_those_that_list_its_address() {
    let bare = "clusterIP: None, ports: [{ name: http, port: 80 }]";
    let mut house = House::of(&(a_service("db", bare) + &a_pod("db-1", "10.1.0.7", "app: db")));
    assert_eq!(house.targets("db-1"), Vec::<String>::new());
    house.put(&a_slice("db-a", "db", "{ addresses: [10.1.0.7] }"));
    assert_eq!(
        house.targets("db-1"),
        ["db.shop.svc.cluster.local:80 at 8080"]
    );
    house.put(&a_service(
        "all",
        "clusterIP: 10.0.0.9, selector: { app: db }, ports: [{ name: tcp, port: 90 }]",
    ));
    assert_eq!(
        house.targets("db-1"),
        ["all.shop.svc.cluster.local:90 at 90"]
    );
}

#[test]
fn localities_come_from_nodes_unless_the_pod_has_a_label() {
    let mut house = a_shop();
    let locality = |house: &House| {
        let workload = house
            .registry
            .directory()
            .workloads
            .get(&NamespacedName::new("shop", "web-1"))
            .unwrap();
        workload.location.locality.to_string()
    };

    let node = "apiVersion: v1\nkind: Node\nmetadata: { name: n1, labels: { topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z } }\n";
    let change = house.put(node);
    assert_eq!(locality(&house), "r/z/");
    assert_eq!(change.endpoints, BTreeSet::from([key("web")]));
    house.put(&a_pod(
        "web-1",
        "10.1.0.1",
        "app: web, istio-locality: a.b.c",
    ));

    assert_eq!(locality(&house), "a/b/c");
}

#[test]
fn other_names_are_followed_to_the_service_that_they_name() {
    let mut house = a_shop();
    let alias = a_service(
        "old",
        "type: ExternalName, externalName: web.shop.svc.cluster.local",
    );
    let change = house.put(&alias);
    assert_eq!(change.services, BTreeSet::from([key("old"), key("web")]));
    let service = |house: &House| {
        house
            .registry
            .directory()
            .services
            .get(&key("web"))
            .unwrap()[0]
            .clone()
    };

    assert_eq!(service(&house).aliases, [key("old")]);
    house.remove(Kind::Service, "old");
    assert_eq!(service(&house).aliases, []);
}

#[test]
fn services_of_one_host_are_ordered_kubernetes_first_then_by_age() {
    let host = "hosts: [web.shop.svc.cluster.local], resolution: STATIC, ports: [{ number: 81, name: x, protocol: HTTP }]";
    let endpoints = |ip: &str| format!("{host}, endpoints: [{{ address: {ip} }}]");
    let entries = a_service_entry("a", "2026-01-02T00:00:00Z", &endpoints("10.5.0.1"))
        + &a_service_entry("b", "2026-01-01T00:00:00Z", &endpoints("10.5.0.2"));
    let mut house = House::of(&entries);
    let origins = |house: &House| -> Vec<String> {
        let slot = house
            .registry
            .directory()
            .services
            .get(&key("web"))
            .unwrap();
        slot.iter()
            .map(|service| service.origin.to_string())
            .collect()
    };

    assert_eq!(
        origins(&house),
        ["ServiceEntry shop/b", "ServiceEntry shop/a"]
    );
    assert_eq!(
        house.endpoints(&key("web")),
        ["10.5.0.1:81 Unknown", "10.5.0.2:81 Unknown"]
    );

    house.put(&a_service("web", WEB));
    assert_eq!(
        origins(&house),
        [
            "Service shop/web",
            "ServiceEntry shop/b",
            "ServiceEntry shop/a"
        ]
    );
}

#[test]
fn a_service_entry_selects_pods_and_workload_entries_of_its_namespace() {
    let spec = "hosts: [api.example], resolution: STATIC, workloadSelector: { labels: { app: web } }, \
                ports: [{ number: 443, name: named, protocol: HTTP, targetPort: 8443 }]";
    let vm = "---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: { name: vm, namespace: shop, labels: { app: web } }\n\
              spec: { address: 10.7.0.1, weight: 3 }\n";
    let named = "---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: { name: dns, namespace: shop, labels: { app: web } }\n\
                 spec: { address: vm.example }\n";
    let entry = a_service_entry("api", "2026-01-01T00:00:00Z", spec);
    let mut house = House::of(&(entry + &a_pod("web-1", "10.1.0.1", "app: web") + vm + named));

    let api = ServiceKey::new("shop", "api.example");
    assert_eq!(
        house.endpoints(&api),
        ["10.1.0.1:8080 Healthy", "10.7.0.1:8443 Unknown"]
    );
    let at = |ip: &str| {
        house
            .registry
            .directory()
            .targets
            .get(&ip.parse::<IpAddr>().unwrap())
            .cloned()
            .unwrap_or_default()
    };

    assert_eq!(
        at("10.1.0.1")
            .by_service_entry
            .iter()
            .flat_map(ListedTargets::targets)
            .map(|target| show_target(&target))
            .collect::<Vec<_>>(),
        ["api.example:443 at 8080"]
    );

    assert_eq!(at("10.7.0.1").entries.len(), 1);
    let change = house.put(&a_pod("web-1", "10.1.0.1", "app: other"));
    assert_eq!(change.endpoints, BTreeSet::from([api.clone()]));
    assert_eq!(house.endpoints(&api), ["10.7.0.1:8443 Unknown"]);
}

#[test]
fn an_edited_host_keeps_other_hosts_unchanged() {
    let spec = |hosts: &str| {
        let spec = format!(
            "hosts: [{hosts}], resolution: STATIC, endpoints: [{{ address: 10.7.0.1 }}], ports: [{{ number: 80, name: http, protocol: HTTP }}]"
        );
        a_service_entry("many", "2026-01-01T00:00:00Z", &spec)
    };

    let mut house = House::of(&spec("a.example, b.example, c.example"));
    let service = |house: &House, host: &str| {
        house
            .registry
            .directory()
            .services
            .get(&ServiceKey::new("shop", host))
            .map(|services| services[0].clone())
    };

    let endpoints = |house: &House, host: &str| {
        house
            .registry
            .directory()
            .endpoints
            .get(&ServiceKey::new("shop", host))
            .cloned()
            .unwrap()
    };

    let (a, of_a) = (
        service(&house, "a.example").unwrap(),
        endpoints(&house, "a.example"),
    );
    assert!(
        Arc::ptr_eq(&of_a, &endpoints(&house, "b.example")),
        "hosts share their endpoints"
    );

    let change = house.put(&spec("a.example, d.example, c.example"));
    let keys = |hosts: [&str; 2]| {
        hosts
            .map(|host| ServiceKey::new("shop", host))
            .into_iter()
            .collect::<BTreeSet<_>>()
    };

    assert_eq!(change.services, keys(["b.example", "d.example"]));
    assert_eq!(change.endpoints, keys(["b.example", "d.example"]));
    assert!(Arc::ptr_eq(&a, &service(&house, "a.example").unwrap()));
    assert!(Arc::ptr_eq(&of_a, &endpoints(&house, "d.example")));
    assert_eq!(service(&house, "b.example"), None);

    // A changed order alone is no change.
    assert_eq!(
        house.put(&spec("d.example, c.example, a.example")).services,
        BTreeSet::new()
    );
    assert_eq!(house.registry.directory().services.len(), 3);
}

#[test]
fn a_kubernetes_service_selects_workload_entries() {
    let vm = "---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: { name: vm, namespace: shop }\n\
              spec: { address: 10.7.0.1, labels: { app: web }, ports: { named: 7070 }, serviceAccount: vm }\n";
    let mut house = House::of(&(a_service("web", WEB) + vm));
    assert_eq!(house.endpoints(&key("web")), ["10.7.0.1:7070 Unknown"]);
    let at = house
        .registry
        .directory()
        .targets
        .get(&"10.7.0.1".parse::<IpAddr>().unwrap())
        .cloned()
        .unwrap();

    assert_eq!(
        at.entries[0]
            .targets
            .iter()
            .map(show_target)
            .collect::<Vec<_>>(),
        ["web.shop.svc.cluster.local:80 at 7070"]
    );

    house.remove(Kind::WorkloadEntry, "vm");
    assert_eq!(house.endpoints(&key("web")), Vec::<String>::new());
    assert!(house.registry.directory().targets.is_empty());
}

#[test]
fn a_workload_entry_whose_health_is_checked_counts_once_it_is_healthy() {
    let vm = |status: &str| {
        let annotations = "annotations: { proxy.istio.io/health-checks-enabled: 'true' }";
        format!(
            "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {{ name: vm, namespace: shop, {annotations} }}\n\
             spec: {{ address: 10.7.0.1, labels: {{ app: web }}, ports: {{ named: 1 }} }}\n\
             status: {{ conditions: [{{ type: Healthy, status: '{status}' }}] }}\n"
        )
    };
    let mut house = House::of(&(a_service("web", WEB) + "---\n" + &vm("False")));
    assert_eq!(house.endpoints(&key("web")), Vec::<String>::new());
    house.put(&vm("True"));
    assert_eq!(house.endpoints(&key("web")), ["10.7.0.1:1 Unknown"]);
}

#[test]
fn hosts_use_the_addresses_of_their_status() {
    let spec = "hosts: [a.example, b.example], resolution: DNS, ports: [{ number: 80, name: http, protocol: HTTP }]";
    let status = "status: { addresses: [{ host: a.example, value: 240.240.0.1 }, { host: a.example, value: '2001:2::1' }] }\n";
    let entry = a_service_entry("x", "2026-01-01T00:00:00Z", spec);
    let mut house = House::of(&(entry.clone() + status));
    let service = |house: &House, host: &str| {
        house
            .registry
            .directory()
            .services
            .get(&ServiceKey::new("shop", host))
            .unwrap()[0]
            .clone()
    };

    assert_eq!(
        service(&house, "a.example").auto_ipv4,
        "240.240.0.1".parse().ok()
    );
    assert_eq!(
        service(&house, "a.example").auto_ipv6,
        "2001:2::1".parse().ok()
    );

    assert_eq!(service(&house, "b.example").auto_ipv4, None);
    house.put(&entry);
    assert_eq!(service(&house, "a.example").auto_ipv4, None);
    let here = Settings {
        ip_autoallocate: false,
        ..Settings::default()
    };
    let house = House::with(here, &MeshNetworks::default(), &entry);
    assert!(service(&house, "b.example").auto_ipv4.is_some());
}

#[test]
fn a_socket_has_no_port_and_of_dns_round_robin_one_endpoint_per_port_counts() {
    let ports = "ports: [{ number: 80, name: http, protocol: HTTP }]";
    let socket = format!(
        "hosts: [s.example], resolution: STATIC, {ports}, endpoints: [{{ address: 'unix:///run/s' }}]"
    );
    let robin = format!(
        "hosts: [r.example], resolution: DNS_ROUND_ROBIN, {ports}, endpoints: [{{ address: a.example }}, {{ address: b.example }}]"
    );
    let plain = format!("hosts: [d.example], resolution: DNS, {ports}");

    let day = "2026-01-01T00:00:00Z";
    let house = House::of(
        &(a_service_entry("s", day, &socket)
            + &a_service_entry("r", day, &robin)
            + &a_service_entry("d", day, &plain)),
    );
    assert_eq!(
        house.endpoints(&ServiceKey::new("shop", "s.example")),
        ["/run/s:0 Unknown"]
    );

    assert_eq!(
        house.endpoints(&ServiceKey::new("shop", "r.example")),
        ["a.example:80 Unknown"]
    );
    assert_eq!(
        house.endpoints(&ServiceKey::new("shop", "d.example")),
        ["d.example:80 Unknown"]
    );
}

#[test]
fn network_gateways_come_from_mesh_networks_load_balancers_and_nodes() {
    let networks = parse_networks(
        "networks: { n1: { endpoints: [{ fromRegistry: Kubernetes }], gateways: [{ address: 198.51.100.1, port: 443 }, \
         { registryServiceName: gw.shop.svc.cluster.local, port: 443 }] } }",
    );
    let balanced = "type: LoadBalancer, clusterIP: 10.0.0.3, ports: [{ name: tls, port: 443 }] }\nstatus: { loadBalancer: { ingress: [{ ip: 203.0.113.1 }] }";
    let behind_nodes = a_service("nodes", "type: NodePort, clusterIP: 10.0.0.4, ports: [{ name: tls, port: 15443, nodePort: 30443 }]").replace(
        "namespace: shop",
        "namespace: shop, labels: { topology.istio.io/network: n2 }, annotations: { traffic.istio.io/nodeSelector: '{\"gw\":\"yes\"}' }",
    );

    let mut house = House::with(
        Settings::default(),
        &networks,
        &(a_service("gw", balanced) + &behind_nodes),
    );

    let gateways = |house: &House| -> Vec<String> {
        let gateways = house
            .registry
            .directory()
            .network_gateways
            .values()
            .flat_map(|gateways| gateways.iter());
        gateways
            .map(|gateway| format!("{} {}:{}", gateway.network, gateway.address, gateway.port))
            .collect()
    };

    assert_eq!(
        gateways(&house),
        ["n1 198.51.100.1:443", "n1 203.0.113.1:443"]
    );
    let change = house.put(
        "apiVersion: v1\nkind: Node\nmetadata: { name: n1, labels: { gw: 'yes' } }\n\
         status: { addresses: [{ type: ExternalIP, address: 192.0.2.7 }] }\n",
    );
    assert!(change.network_gateways);

    assert_eq!(
        gateways(&house),
        [
            "n1 198.51.100.1:443",
            "n1 203.0.113.1:443",
            "n2 192.0.2.7:30443"
        ]
    );
}

#[test]
fn the_system_namespace_label_sets_the_default_network() {
    let mut house = a_shop();
    let change = house.put("apiVersion: v1\nkind: Namespace\nmetadata: { name: istio-system, labels: { topology.istio.io/network: n1 } }\n");
    assert_eq!(change.endpoints, BTreeSet::from([key("web")]));
    let endpoints = house
        .registry
        .directory()
        .endpoints
        .get(&key("web"))
        .unwrap();
    assert_eq!(endpoints.endpoints[0].workload.location.network, "n1");
}

//! Tests of the metadata of endpoints, and a helper for tests of endpoints and clusters.

use std::sync::Arc;

use navarch_api::names::PortName;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::settings::Settings;
use navarch_api::text_map::TextMap;
use navarch_base::small_map::SmallMap;
use navarch_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use navarch_push::engine::ProxyId;
use navarch_push::resource::ResourceType;
use navarch_registry::model::{
    ExportTo, KubernetesAttributes, Registry, Resolution, Service, ServiceKey, ServicePort,
};
use navarch_registry::protocol::Protocol;
use prost_types::value::Kind as ValueKind;

use super::wire;
use crate::test_mesh::{TestMesh, networking};

/// The service `reviews` of namespace `shop` with an HTTP port 80.
pub(crate) fn a_service() -> Service {
    let name = NamespacedName::new("shop", "reviews");

    Service {
        key: ServiceKey::new("shop", "reviews.shop.svc.cluster.local"),
        origin: ObjectRef {
            kind: Kind::Service,
            name,
        },
        name: Arc::from("reviews"),
        registry: Registry::Kubernetes,
        created: None,
        labels: TextMap::new(),

        ports: vec![ServicePort {
            name: PortName::new("http"),
            port: 80,
            protocol: Protocol::Http,
        }],

        resolution: Resolution::ClientSideLb,
        mesh_external: false,
        races_connections: false,
        export_to: ExportTo::Unset,

        default_address: Arc::from("10.0.0.1"),
        cluster_vips: SmallMap::default(),
        auto_ipv4: None,
        auto_ipv6: None,
        selector: TextMap::new(),
        service_accounts: Vec::new(),
        aliases: Vec::new(),
        external_addresses: SmallMap::default(),
        external_ports: SmallMap::default(),
        passthrough_target_ports: SmallMap::default(),
        kubernetes: KubernetesAttributes::default(),
    }
}

/// A gateway and a workload without labels, neither of which has the label of sidecars.
const GATEWAY: &str = "{hosts: [egress.example], location: MESH_INTERNAL, resolution: STATIC, \
    ports: [{number: 443, name: tls, protocol: TLS}], endpoints: [\
    {address: 10.1.0.1, labels: {app: egress, version: v2}}, {address: 10.1.0.2}]}";

/// The names of the gateway's endpoints in the metrics of a client.
fn workloads(mesh: &mut TestMesh, client: ProxyId) -> Vec<String> {
    let names = &["outbound|443||egress.example"];
    let found = mesh.named::<ClusterLoadAssignment>(client, ResourceType::Endpoint, names);
    let groups = found.values().flat_map(|assignment| &assignment.endpoints);
    let metadata = groups
        .flat_map(|group| &group.lb_endpoints)
        .filter_map(|endpoint| endpoint.metadata.as_ref());

    metadata
        .map(|metadata| {
            let workload = &metadata.filter_metadata[wire::ISTIO].fields["workload"];
            let Some(ValueKind::StringValue(text)) = &workload.kind else {
                panic!("{workload:?}")
            };
            text.clone()
        })
        .collect()
}

#[test]
fn clients_with_metrics_from_access_logs_get_the_application_of_a_gateway() {
    let entry = networking("ServiceEntry", "shop", "egress", GATEWAY);
    let mut mesh = TestMesh::new(&entry);
    let stock = mesh.with_agent_metrics("sidecar", "shop");
    let mut found = workloads(&mut mesh, stock);
    found.sort_by_key(|workload| workload.split(';').count());
    let [unlabelled, gateway] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(unlabelled.split(';').count(), 5, "{unlabelled}");
    assert!(gateway.ends_with(";;egress;v2"), "{gateway}");

    let istio = mesh.sidecar("shop", "web");
    for workload in workloads(&mut mesh, istio) {
        assert_eq!(workload.split(';').count(), 5, "{workload}");
    }

    let settings = Settings {
        metadata_exchange: false,
        ..Settings::default()
    };
    let mut mesh = TestMesh::with_settings(&entry, settings);
    let stock = mesh.with_agent_metrics("sidecar", "shop");
    for workload in workloads(&mut mesh, stock) {
        assert_eq!(workload.split(';').count(), 5, "{workload}");
    }
}

//! Helpers for tests of endpoints and clusters.

use std::sync::Arc;

use navarch_api::names::PortName;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::small_map::SmallMap;
use navarch_api::text_map::TextMap;
use navarch_registry::model::{
    ExportTo, KubernetesAttributes, Registry, Resolution, Service, ServiceKey, ServicePort,
};
use navarch_registry::protocol::Protocol;

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

//! What the tests of endpoints and clusters build on.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::names::{Namespace, PortName};
use crate::api::object::{Kind, NamespacedName, ObjectRef};
use crate::api::text_map::TextMap;
use crate::registry::model::{ExportTo, KubernetesAttributes, Registry, Resolution, Service, ServiceKey, ServicePort};
use crate::registry::protocol::Protocol;

/// The service `reviews` of namespace `shop` with an HTTP port 80.
pub(in crate::envoy) fn a_service() -> Service {
    let name = NamespacedName { namespace: Namespace::new("shop"), name: Arc::from("reviews") };
    Service {
        key: ServiceKey::new("shop", "reviews.shop.svc.cluster.local"),
        origin: ObjectRef { kind: Kind::Service, name },
        name: Arc::from("reviews"),
        registry: Registry::Kubernetes,
        created: None,
        labels: TextMap::new(),
        ports: vec![ServicePort { name: PortName::new("http"), port: 80, protocol: Protocol::Http }],
        resolution: Resolution::ClientSideLb,
        mesh_external: false,
        races_connections: false,
        export_to: ExportTo::Unset,
        default_address: Arc::from("10.0.0.1"),
        cluster_vips: BTreeMap::new(),
        auto_ipv4: None,
        auto_ipv6: None,
        selector: TextMap::new(),
        service_accounts: Vec::new(),
        aliases: Vec::new(),
        external_addresses: BTreeMap::new(),
        external_ports: BTreeMap::new(),
        passthrough_target_ports: BTreeMap::new(),
        kubernetes: KubernetesAttributes::default(),
    }
}

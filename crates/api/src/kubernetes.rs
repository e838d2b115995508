//! Kubernetes' own kinds, reduced to the fields that a control plane reads.
//!
//! Each type is converted on decoding from its `k8s-openapi` counterpart (`TryFrom` for
//! `Object<…>`), with the defaults of an API server. The conversion drops unused fields. A
//! cluster's pods take a fraction of the size of their wire form, and an update that changes only
//! dropped fields compares equal.

mod address;
mod config_map;
mod endpoint_slice;
mod ingress;
mod metadata;
mod namespace;
mod node;
mod pod;
mod port;
mod secret;
mod service;
mod service_account;
mod service_port;
mod texts;

pub use config_map::ConfigMap;
pub(super) use endpoint_slice::SERVICE_NAME_LABEL;
pub use endpoint_slice::{AddressType, Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
pub use ingress::{
    Ingress, IngressBackend, IngressClass, IngressPath, IngressPort, IngressRule, IngressTls,
    PathType,
};
pub use namespace::Namespace;
pub use node::{Node, NodeAddress, NodeAddressType};
pub(super) use pod::DEFAULT_SERVICE_ACCOUNT;
pub use pod::{ContainerPort, Pod, PodDns, PodPhase};
pub use port::Protocol;
pub(super) use port::port_number;
pub use secret::{Secret, SecretBytes};
pub use service::{
    ClusterIps, IpFamilies, LoadBalancerIngress, LoadBalancerPort, Service, ServiceType,
    SessionAffinity, TrafficDistribution, TrafficPolicy,
};
pub use service_account::ServiceAccount;
pub use service_port::{ServicePort, TargetPort};

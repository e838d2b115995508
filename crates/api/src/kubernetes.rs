//! Kubernetes' own kinds, cut down to what a control plane reads of them.
//!
//! Objects are taken apart at the door: each type here is made from its `k8s-openapi` twin (`TryFrom` for
//! `Object<…>`), with the defaults that an API server would have written, and fields that nothing reads are
//! dropped there and then. A cluster's pods weigh a fraction of their wire form, and a rewrite that touches only
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
pub use ingress::{Ingress, IngressBackend, IngressClass, IngressPath, IngressPort, IngressRule, IngressTls, PathType};
pub use namespace::Namespace;
pub use node::{Node, NodeAddress, NodeAddressType};
pub(super) use pod::DEFAULT_SERVICE_ACCOUNT;
pub use pod::{ContainerPort, Pod, PodDns, PodPhase};
pub use port::Protocol;
pub(super) use port::port_number;
pub use secret::{Secret, SecretBytes};
pub use service::{
    ClusterIps, IpFamilies, LoadBalancerIngress, LoadBalancerPort, Service, ServiceType, SessionAffinity,
    TrafficDistribution, TrafficPolicy,
};
pub use service_account::ServiceAccount;
pub use service_port::{ServicePort, TargetPort};

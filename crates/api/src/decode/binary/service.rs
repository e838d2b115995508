//! `v1.Service`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as wire;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use prost::Message;

use super::metadata::{ObjectMeta, metadata};
use super::{listed, non_empty};
use crate::field_error::FieldError;
use crate::kubernetes;
use crate::object::Object;

/// `v1.Service`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Service {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<Spec>,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<Status>,
}

/// `v1.ServiceSpec`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Spec {
    #[prost(message, repeated, tag = "1")]
    pub(super) ports: Vec<Port>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(super) selector: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    pub(super) cluster_ip: String,
    /// `type`.
    #[prost(string, tag = "4")]
    pub(super) kind: String,
    #[prost(string, repeated, tag = "5")]
    pub(super) external_ips: Vec<String>,
    #[prost(string, tag = "7")]
    pub(super) session_affinity: String,
    #[prost(string, tag = "10")]
    pub(super) external_name: String,
    #[prost(string, tag = "11")]
    pub(super) external_traffic_policy: String,
    #[prost(bool, tag = "13")]
    pub(super) publish_not_ready_addresses: bool,
    #[prost(string, repeated, tag = "18")]
    pub(super) cluster_ips: Vec<String>,
    #[prost(string, repeated, tag = "19")]
    pub(super) ip_families: Vec<String>,
    #[prost(string, tag = "22")]
    pub(super) internal_traffic_policy: String,
    #[prost(string, tag = "23")]
    pub(super) traffic_distribution: String,
}

/// `v1.ServicePort`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Port {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) protocol: String,
    #[prost(int32, tag = "3")]
    pub(super) port: i32,
    /// `targetPort`.
    #[prost(message, optional, tag = "4")]
    pub(super) target: Option<NumberOrName>,
    #[prost(int32, tag = "5")]
    pub(super) node_port: i32,
    #[prost(string, tag = "6")]
    pub(super) app_protocol: String,
}

/// `intstr.IntOrString`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct NumberOrName {
    /// `type`: 0 for a number.
    #[prost(int64, tag = "1")]
    pub(super) kind: i64,
    /// `intVal`.
    #[prost(int32, tag = "2")]
    pub(super) number: i32,
    /// `strVal`.
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

/// `v1.ServiceStatus`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(message, optional, tag = "1")]
    pub(super) load_balancer: Option<Balancer>,
}

/// `v1.LoadBalancerStatus`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Balancer {
    #[prost(message, repeated, tag = "1")]
    pub(super) ingress: Vec<Ingress>,
}

/// `v1.LoadBalancerIngress`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Ingress {
    #[prost(string, tag = "1")]
    pub(super) ip: String,
    #[prost(string, tag = "2")]
    pub(super) hostname: String,
    #[prost(message, repeated, tag = "4")]
    pub(super) ports: Vec<PortStatus>,
}

/// `v1.PortStatus`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PortStatus {
    #[prost(int32, tag = "1")]
    pub(super) port: i32,
    #[prost(string, tag = "2")]
    pub(super) protocol: String,
    #[prost(string, tag = "3")]
    pub(super) error: String,
}

impl From<Port> for wire::ServicePort {
    fn from(port: Port) -> Self {
        let target = |target: NumberOrName| match target.kind {
            0 => IntOrString::Int(target.number),
            _ => IntOrString::String(target.name),
        };
        Self {
            name: non_empty(port.name),
            protocol: non_empty(port.protocol),
            port: port.port,
            target_port: port.target.map(target),
            node_port: Some(port.node_port).filter(|number| *number != 0),
            app_protocol: non_empty(port.app_protocol),
        }
    }
}

impl From<Spec> for wire::ServiceSpec {
    fn from(spec: Spec) -> Self {
        Self {
            ports: listed(spec.ports.into_iter().map(Into::into).collect()),
            selector: Some(spec.selector).filter(|selector| !selector.is_empty()),
            cluster_ip: non_empty(spec.cluster_ip),
            cluster_ips: listed(spec.cluster_ips),
            ip_families: listed(spec.ip_families),
            type_: non_empty(spec.kind),
            external_ips: listed(spec.external_ips),
            session_affinity: non_empty(spec.session_affinity),
            external_name: non_empty(spec.external_name),
            external_traffic_policy: non_empty(spec.external_traffic_policy),
            publish_not_ready_addresses: Some(spec.publish_not_ready_addresses),
            internal_traffic_policy: non_empty(spec.internal_traffic_policy),
            traffic_distribution: non_empty(spec.traffic_distribution),
            ..Self::default()
        }
    }
}

impl From<Ingress> for wire::LoadBalancerIngress {
    fn from(ingress: Ingress) -> Self {
        let port = |port: PortStatus| wire::PortStatus {
            port: port.port,
            protocol: port.protocol,
            error: non_empty(port.error),
        };
        Self {
            ip: non_empty(ingress.ip),
            hostname: non_empty(ingress.hostname),
            ports: listed(ingress.ports.into_iter().map(port).collect()),
            ..Self::default()
        }
    }
}

impl TryFrom<Service> for Object<kubernetes::Service> {
    type Error = FieldError;

    fn try_from(service: Service) -> Result<Self, FieldError> {
        let balancer = service
            .status
            .and_then(|status| status.load_balancer)
            .map(|balancer| wire::LoadBalancerStatus {
                ingress: listed(balancer.ingress.into_iter().map(Into::into).collect()),
            });
        wire::Service {
            metadata: metadata(service.metadata),
            spec: service.spec.map(Into::into),
            status: Some(wire::ServiceStatus {
                load_balancer: balancer,
                ..Default::default()
            }),
        }
        .try_into()
    }
}

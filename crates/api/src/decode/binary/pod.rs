//! `v1.Pod`.

use k8s_openapi::api::core::v1 as wire;
use prost::Message;

use super::metadata::{ObjectMeta, metadata};
use super::{listed, non_empty};
use crate::field_error::FieldError;
use crate::kubernetes;
use crate::object::Object;

/// `v1.Pod`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Pod {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<Spec>,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<Status>,
}

/// `v1.PodSpec`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Spec {
    #[prost(message, repeated, tag = "2")]
    pub(super) containers: Vec<Container>,
    #[prost(string, tag = "8")]
    pub(super) service_account_name: String,
    #[prost(string, tag = "9")]
    pub(super) service_account: String,
    #[prost(string, tag = "10")]
    pub(super) node_name: String,
    #[prost(bool, tag = "11")]
    pub(super) host_network: bool,
    #[prost(string, tag = "16")]
    pub(super) hostname: String,
    #[prost(string, tag = "17")]
    pub(super) subdomain: String,
    #[prost(message, repeated, tag = "20")]
    pub(super) init_containers: Vec<Container>,
}

/// `v1.Container`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Container {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "6")]
    pub(super) ports: Vec<Port>,
    #[prost(string, tag = "24")]
    pub(super) restart_policy: String,
}

/// `v1.ContainerPort`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Port {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(int32, tag = "3")]
    pub(super) container_port: i32,
    #[prost(string, tag = "4")]
    pub(super) protocol: String,
}

/// `v1.PodStatus`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(string, tag = "1")]
    pub(super) phase: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) conditions: Vec<Condition>,
    #[prost(string, tag = "6")]
    pub(super) pod_ip: String,
    #[prost(message, repeated, tag = "12")]
    pub(super) pod_ips: Vec<Address>,
}

/// `v1.PodCondition`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Condition {
    /// `type`.
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) status: String,
}

/// `v1.PodIP` and `v1.HostIP`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Address {
    #[prost(string, tag = "1")]
    pub(super) ip: String,
}

impl From<Container> for wire::Container {
    fn from(container: Container) -> Self {
        let port = |port: Port| wire::ContainerPort {
            name: non_empty(port.name),
            container_port: port.container_port,
            protocol: non_empty(port.protocol),
            ..Default::default()
        };
        Self {
            name: container.name,
            ports: listed(container.ports.into_iter().map(port).collect()),
            restart_policy: non_empty(container.restart_policy),
            ..Self::default()
        }
    }
}

impl From<Spec> for wire::PodSpec {
    fn from(spec: Spec) -> Self {
        Self {
            containers: spec.containers.into_iter().map(Into::into).collect(),
            init_containers: listed(spec.init_containers.into_iter().map(Into::into).collect()),
            host_network: spec.host_network.then_some(true),
            hostname: non_empty(spec.hostname),
            node_name: non_empty(spec.node_name),
            service_account: non_empty(spec.service_account),
            service_account_name: non_empty(spec.service_account_name),
            subdomain: non_empty(spec.subdomain),
            ..Self::default()
        }
    }
}

impl From<Status> for wire::PodStatus {
    fn from(status: Status) -> Self {
        let condition = |condition: Condition| wire::PodCondition {
            type_: condition.kind,
            status: condition.status,
            ..Default::default()
        };

        Self {
            conditions: listed(status.conditions.into_iter().map(condition).collect()),
            phase: non_empty(status.phase),
            pod_ip: non_empty(status.pod_ip),
            pod_ips: listed(
                status
                    .pod_ips
                    .into_iter()
                    .map(|address| wire::PodIP { ip: address.ip })
                    .collect(),
            ),
            ..Self::default()
        }
    }
}

impl TryFrom<Pod> for Object<kubernetes::Pod> {
    type Error = FieldError;

    fn try_from(pod: Pod) -> Result<Self, FieldError> {
        wire::Pod {
            metadata: metadata(pod.metadata),
            spec: pod.spec.map(Into::into),
            status: pod.status.map(Into::into),
        }
        .try_into()
    }
}

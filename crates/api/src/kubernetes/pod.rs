//! `v1/Pod`.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;

use super::address::parse_ips;
use super::metadata::{optional_text, text};
use super::port::{Protocol, port_number};
use crate::field_error::FieldError;
use crate::names::{PortName, ServiceAccount};
use crate::object::Object;
use navarch_base::ip_list::IpList;

/// The ServiceAccount that admission sets if a pod names none.
pub(crate) const DEFAULT_SERVICE_ACCOUNT: &str = "default";

/// The parts of spec and status that decide where a workload runs, how it is reached, and who it
/// is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// `spec.serviceAccountName`; the default is `default`.
    pub service_account: ServiceAccount,
    /// `spec.nodeName`, once the pod is scheduled.
    pub node: Option<Arc<str>>,
    /// `spec.hostNetwork`: its addresses are those of its node.
    pub host_network: bool,
    /// The pod's names in DNS, if any is set.
    pub dns: Option<Box<PodDns>>,
    /// Whether `metadata.generateName` is set: a controller made the pod from a template.
    pub name_is_generated: bool,
    /// The ports of `spec.containers`, then those of the init containers that run as sidecars, in
    /// their order.
    pub ports: Arc<[ContainerPort]>,
    /// `status.phase`.
    pub phase: PodPhase,
    /// Whether the condition `Ready` is true.
    pub ready: bool,
    /// `status.podIPs`, or `status.podIP` if only that is set. The first is the pod's main address.
    pub pod_ips: IpList,
}

/// The names of a pod in DNS. Few pods set them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDns {
    /// `spec.hostname`.
    pub hostname: Option<Arc<str>>,
    /// `spec.subdomain`.
    pub subdomain: Option<Arc<str>>,
}

/// An entry of a container's `ports`, to which a Service's `targetPort` can refer by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContainerPort {
    /// `name`, empty if unset.
    pub name: PortName,
    /// `containerPort`.
    pub port: u16,
    /// `protocol`.
    pub protocol: Protocol,
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodPhase {
    /// Accepted, but not all containers have started.
    #[default]
    Pending,
    /// Assigned to a node, with a container that runs or is about to start.
    Running,
    /// All containers succeeded and are not restarted.
    Succeeded,
    /// All containers ended, and one of them failed.
    Failed,
    /// The node does not respond.
    Unknown,
}

impl Pod {
    /// Whether the pod has ended and will not restart.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// The number of the first container port with this name and protocol.
    #[must_use]
    pub fn port_named(&self, name: &PortName, protocol: Protocol) -> Option<u16> {
        self.ports
            .iter()
            .find(|port| port.protocol == protocol && port.name == *name)
            .map(|port| port.port)
    }
}

impl PodDns {
    /// `None` if neither field is set.
    pub(crate) fn new(
        hostname: Option<Arc<str>>,
        subdomain: Option<Arc<str>>,
    ) -> Option<Box<Self>> {
        (hostname.is_some() || subdomain.is_some()).then(|| {
            Box::new(Self {
                hostname,
                subdomain,
            })
        })
    }
}

impl PodPhase {
    /// Reads `phase`.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, FieldError> {
        match text {
            None | Some("" | "Pending") => Ok(Self::Pending),
            Some("Running") => Ok(Self::Running),
            Some("Succeeded") => Ok(Self::Succeeded),
            Some("Failed") => Ok(Self::Failed),
            Some("Unknown") => Ok(Self::Unknown),
            Some(other) => {
                let reason =
                    format!("{other:?} is not one of Pending, Running, Succeeded, Failed, Unknown");
                Err(FieldError::new("status.phase", reason))
            }
        }
    }
}

/// The ports of one container; paths in errors start at it.
fn container_ports(container: wire::Container) -> Result<Vec<ContainerPort>, FieldError> {
    let port = |(index, port): (usize, wire::ContainerPort)| {
        let converted = port_number(port.container_port, "containerPort").and_then(|number| {
            let protocol = Protocol::parse(port.protocol.as_deref())?;
            Ok(ContainerPort {
                name: port.name.map(PortName::new).unwrap_or_default(),
                port: number,
                protocol,
            })
        });
        converted.map_err(|error| error.under_item("ports", index))
    };

    container
        .ports
        .into_iter()
        .flatten()
        .enumerate()
        .map(port)
        .collect()
}

/// The ports of all containers that run for the pod's lifetime.
fn pod_ports(
    containers: Vec<wire::Container>,
    init_containers: Option<Vec<wire::Container>>,
) -> Result<Vec<ContainerPort>, FieldError> {
    let mut ports = Vec::new();
    for (index, container) in containers.into_iter().enumerate() {
        ports.extend(
            container_ports(container)
                .map_err(|error| error.under_item("spec.containers", index))?,
        );
    }
    for (index, container) in init_containers.into_iter().flatten().enumerate() {
        if container.restart_policy.as_deref() == Some("Always") {
            ports.extend(
                container_ports(container)
                    .map_err(|error| error.under_item("spec.initContainers", index))?,
            );
        }
    }
    Ok(ports)
}

/// Addresses from the field with all of them, or from the older field with the first one.
fn addresses(all: Vec<String>, one: Option<String>, path: &str) -> Result<IpList, FieldError> {
    let texts = if all.is_empty() {
        one.into_iter().collect()
    } else {
        all
    };
    parse_ips(
        texts
            .iter()
            .map(String::as_str)
            .filter(|text| !text.is_empty()),
        path,
    )
}

/// The ServiceAccount from the current or the former field.
fn service_account(name: Option<String>, former: Option<String>) -> ServiceAccount {
    let named = name.into_iter().chain(former).find(|name| !name.is_empty());
    ServiceAccount::new(named.as_deref().unwrap_or(DEFAULT_SERVICE_ACCOUNT))
}

impl TryFrom<wire::Pod> for Object<Pod> {
    type Error = FieldError;

    fn try_from(object: wire::Pod) -> Result<Self, FieldError> {
        let spec = object.spec.unwrap_or_default();
        let status = object.status.unwrap_or_default();
        let is_ready = |condition: &wire::PodCondition| {
            condition.type_ == "Ready" && condition.status == "True"
        };
        let pod_ips = status
            .pod_ips
            .into_iter()
            .flatten()
            .map(|address| address.ip)
            .collect();

        let pod = Pod {
            service_account: service_account(spec.service_account_name, spec.service_account),
            node: optional_text(spec.node_name),
            host_network: spec.host_network.unwrap_or_default(),
            dns: PodDns::new(optional_text(spec.hostname), optional_text(spec.subdomain)),
            name_is_generated: !text(object.metadata.generate_name.clone()).is_empty(),
            ports: pod_ports(spec.containers, spec.init_containers)?.into(),
            phase: PodPhase::parse(status.phase.as_deref())?,
            ready: status.conditions.iter().flatten().any(is_ready),
            pod_ips: addresses(pod_ips, status.pod_ip, "status.podIPs")?,
        };

        Ok(Self {
            meta: object.metadata.try_into()?,
            spec: pod,
        })
    }
}

#[cfg(test)]
mod tests;

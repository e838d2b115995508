//! The settings of policies for backends, and the objects that these policies target.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::MARK;
use navarch_api::istio::{ClientTlsSettings, RetryBudget, ServiceEntry};
use navarch_api::kubernetes::Service;
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;

/// An object that policies for backends target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PolicyTargetObject {
    Service(NamespacedName),
    ServiceEntry(NamespacedName),
    Backend(NamespacedName),
}

/// The settings of policies for one host of a target.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BackendPolicy {
    /// Kind and name of the policy.
    pub(super) source: (&'static str, NamespacedName),
    /// Its creation time: the oldest takes precedence.
    pub(super) created: Option<Timestamp>,
    pub(super) target: PolicyTargetObject,
    pub(super) host: String,
    pub(super) port: PolicyPort,
    pub(super) tls: Option<ClientTlsSettings>,
    /// The retry budget; an inner `None` sets no budget, but default load balancing.
    pub(super) traffic: Option<Option<RetryBudget>>,
}

/// The ports that a policy applies to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PolicyPort {
    All,
    /// The port of this name.
    Named(String),
    Number(u32),
}

/// The ports of a target, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PortsOfTarget(pub(super) PolicyTargetObject);

impl Query for PortsOfTarget {
    type Value = Option<BTreeMap<String, u32>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        match &self.0 {
            PolicyTargetObject::Service(name) => {
                let ports = &view.object::<Service>(name)?.spec.ports;
                Some(
                    ports
                        .iter()
                        .rev()
                        .map(|port| (port.name.to_string(), u32::from(port.port)))
                        .collect(),
                )
            }
            PolicyTargetObject::ServiceEntry(name) => {
                let ports = &view.object::<ServiceEntry>(name)?.spec.ports;
                Some(
                    ports
                        .iter()
                        .rev()
                        .map(|port| (port.name.clone(), port.number))
                        .collect(),
                )
            }
            PolicyTargetObject::Backend(_) => None,
        }
    }
}

impl PolicyTargetObject {
    pub(super) fn name(&self) -> &NamespacedName {
        match self {
            Self::Service(name) | Self::ServiceEntry(name) | Self::Backend(name) => name,
        }
    }

    /// The name of the DestinationRule of a host.
    pub(super) fn rule_name(&self, host: &str) -> NamespacedName {
        let name = self.name();
        let own = match self {
            Self::Service(_) => format!("{}~{MARK}", name.name),
            Self::ServiceEntry(_) | Self::Backend(_) => {
                format!("{}~{}~{MARK}", name.name, host.replace('.', "-"))
            }
        };
        NamespacedName::of(name.namespace.clone(), own.into())
    }
}

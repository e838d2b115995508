//! The locks of the leader election.

use super::candidate::{Candidate, Scope};
use super::lock_object::LockKind;

/// A lock, by what its holder does. The names are istiod's (`pilot/pkg/leaderelection`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lock {
    /// Maintains the ConfigMaps with the mesh's roots.
    Namespaces,
    /// Maintains the ClusterTrustBundle with the mesh's roots.
    TrustBundle,
    /// Allocates addresses of ServiceEntries.
    IpAllocation,
    /// Writes conditions of Istio's objects.
    Status,
    /// Writes validation messages.
    Analysis,
    /// Writes the status of Ingresses.
    Ingress,
    /// Removes taints of nodes.
    NodeUntaint,
    /// Creates ServiceExports.
    ServiceExport,
    /// Writes the status of the Gateway API's objects, one holder per revision.
    GatewayStatus,
    /// Deploys gateways, one holder per revision.
    GatewayDeployment,
}

impl Lock {
    /// The control planes among which there is one holder.
    #[must_use]
    pub fn scope(self) -> Scope {
        match self {
            Self::GatewayStatus | Self::GatewayDeployment => Scope::Revision,
            Self::Namespaces
            | Self::TrustBundle
            | Self::IpAllocation
            | Self::Status
            | Self::Analysis
            | Self::Ingress
            | Self::NodeUntaint
            | Self::ServiceExport => Scope::Mesh,
        }
    }

    /// The kind of the lock object. It is istiod's, so that an istiod and a Navarch contend for the
    /// same lock.
    pub(super) fn kind(self) -> LockKind {
        match self {
            Self::Namespaces
            | Self::TrustBundle
            | Self::IpAllocation
            | Self::Analysis
            | Self::Ingress
            | Self::NodeUntaint
            | Self::ServiceExport => LockKind::ConfigMap,
            Self::Status | Self::GatewayStatus | Self::GatewayDeployment => LockKind::Lease,
        }
    }

    /// The name of the object for `candidate`.
    #[must_use]
    pub fn name(self, candidate: &Candidate) -> String {
        let name = match self {
            // One lock for both, because a control plane publishes its roots in only one of the two
            // objects.
            Self::Namespaces | Self::TrustBundle => "istio-namespace-controller-election",
            Self::IpAllocation => "istio-ip-autoallocate",
            Self::Status => "istio-status-leader",
            Self::Analysis => "istio-analyze-leader",
            Self::Ingress => "istio-leader",
            Self::NodeUntaint => "istio-node-untaint",
            Self::ServiceExport => "istio-serviceexport-controller-election",
            Self::GatewayStatus => "istio-gateway-status-leader",
            Self::GatewayDeployment => "istio-gateway-deployment",
        };
        match self.scope() {
            Scope::Mesh => name.to_owned(),
            Scope::Revision => format!("{name}-{}", candidate.revision),
        }
    }
}

//! How sidecars reach services that request that sidecars use their waypoints
//! (`navarch.io/sidecar-use-waypoint`).

use std::sync::Arc;

use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

use super::{Binding, binding, leads_to_waypoints};
use crate::services;
use crate::waypoint::AttachmentError;

/// How a sidecar that may use waypoints reaches a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SidecarPath {
    /// At its own endpoints.
    Direct,
    /// Through its waypoints.
    Waypoint(Arc<Binding>),
    /// Not at all: the service must be reached through a waypoint, which cannot be used.
    Closed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PathOf(ServiceKey);

/// How sidecars that may use waypoints reach a service. A waypoint that does not exist, has no
/// address, or does not admit the service closes the path. One that is not for services
/// (`istio.io/waypoint-for`) does not concern them, as in ztunnel.
#[must_use]
pub fn path_of_sidecars(view: &View<'_>, service: &ServiceKey) -> SidecarPath {
    if !view.mesh().settings.ambient {
        return SidecarPath::Direct;
    }
    (*view.get(&PathOf(service.clone()))).clone()
}

impl Query for PathOf {
    type Value = SidecarPath;

    fn compute(&self, view: &View<'_>) -> SidecarPath {
        if leads_to_waypoints(view, &self.0) {
            return SidecarPath::Direct;
        }

        match services::waypoint_for_sidecars(&self.0, view) {
            None | Some(Ok(None) | Err(AttachmentError::Traffic(..))) => SidecarPath::Direct,
            Some(Ok(Some(_))) => {
                binding(view, &self.0).map_or(SidecarPath::Closed, SidecarPath::Waypoint)
            }
            Some(Err(
                AttachmentError::NotReady(_)
                | AttachmentError::NotAdmitted(_)
                | AttachmentError::OtherNamespace(_)
                | AttachmentError::CanaryWeight(_)
                | AttachmentError::CanaryIsPrimary(_),
            )) => SidecarPath::Closed,
        }
    }
}

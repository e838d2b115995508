//! Why a referenced waypoint is not used.

use std::fmt;

use navarch_api::object::NamespacedName;

/// Why a referenced waypoint is not used. The text is part of the referring object's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttachmentError {
    /// The Gateway does not exist, or has no address yet.
    NotReady(NamespacedName),
    /// Its listener does not admit objects of the namespace.
    NotAdmitted(NamespacedName),
    /// It does not have the required traffic type: `service` or `workload`.
    Traffic(NamespacedName, &'static str),
    /// An object that is visible only in its own namespace references a waypoint of another.
    OtherNamespace(NamespacedName),
    /// The canary's weight is not a percentage.
    CanaryWeight(NamespacedName),
    /// The canary is the waypoint itself.
    CanaryIsPrimary(NamespacedName),
}

impl AttachmentError {
    /// The reason in conditions, the same as in Istio.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NotReady(_) => "WaypointIsNotReady",
            Self::NotAdmitted(_) => "AttachmentDenied",
            Self::Traffic(..) => "UnsupportedTrafficType",
            Self::OtherNamespace(_) => "CrossNamespaceWaypointForbidden",
            Self::CanaryWeight(_) => "CanaryInvalidWeight",
            Self::CanaryIsPrimary(_) => "CanarySameAsPrimary",
        }
    }
}

impl fmt::Display for AttachmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady(name) => {
                write!(
                    f,
                    "waypoint \"{name}\" is not ready: the Gateway does not exist, or it has no address yet"
                )
            }
            Self::NotAdmitted(name) => write!(
                f,
                "waypoint \"{name}\" does not allow objects of this namespace; see allowedRoutes of its listener"
            ),

            Self::Traffic(name, traffic) => write!(
                f,
                "waypoint \"{name}\" does not handle traffic of type \"{traffic}\"; see its label istio.io/waypoint-for"
            ),

            Self::OtherNamespace(name) => write!(
                f,
                "waypoint \"{name}\" is in another namespace, but serviceEntryVisibility hides this ServiceEntry from others"
            ),

            Self::CanaryWeight(name) => write!(
                f,
                "canary waypoint \"{name}\" has no valid weight; istio.io/use-waypoint-canary-weight must be 0 to 100"
            ),
            Self::CanaryIsPrimary(name) => {
                write!(f, "canary waypoint \"{name}\" is the waypoint itself")
            }
        }
    }
}

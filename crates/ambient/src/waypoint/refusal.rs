//! Why a waypoint that is named is not used.

use std::fmt;

use navarch_api::object::NamespacedName;

/// Why a waypoint that is named is not used. Its text is what the object that names it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such Gateway, or it has no address yet.
    NotReady(NamespacedName),
    /// Its listener does not let objects of the namespace name it.
    NotAdmitted(NamespacedName),
    /// It is not for what would be sent to it: a `service` or a `workload`.
    Traffic(NamespacedName, &'static str),
    /// What is seen in its own namespace alone names one of another.
    OtherNamespace(NamespacedName),
    /// A second one whose share is no percentage.
    CanaryWeight(NamespacedName),
    /// A second one that is the first.
    CanaryIsPrimary(NamespacedName),
}

impl Refusal {
    /// The reason in conditions, as Istio has it.
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady(name) => {
                write!(f, "waypoint \"{name}\" is not ready: there is no such Gateway, or it has no address yet")
            }
            Self::NotAdmitted(name) => write!(
                f,
                "waypoint \"{name}\" does not admit objects of this namespace; its listener's allowedRoutes say which"
            ),
            Self::Traffic(name, traffic) => write!(
                f,
                "waypoint \"{name}\" is not for traffic of type \"{traffic}\"; its label istio.io/waypoint-for says for which"
            ),
            Self::OtherNamespace(name) => write!(
                f,
                "waypoint \"{name}\" is in another namespace, but serviceEntryVisibility hides this ServiceEntry from others"
            ),
            Self::CanaryWeight(name) => write!(
                f,
                "canary waypoint \"{name}\" has no valid weight; istio.io/use-waypoint-canary-weight must be 0 to 100"
            ),
            Self::CanaryIsPrimary(name) => write!(f, "canary waypoint \"{name}\" is the waypoint itself"),
        }
    }
}

//! The commands of operators.

use tokio::sync::{mpsc, oneshot};

use navarch_api::object::ObjectRef;

/// A command to end a quarantine, and the channel for its result.
#[derive(Debug)]
pub struct QuarantineRelease {
    /// The quarantined object.
    pub object: ObjectRef,
    /// Where the result is sent.
    pub answer: oneshot::Sender<Result<(), ReleaseError>>,
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// The object is not quarantined.
    #[error("{0} is not quarantined; navarch quarantine list shows the objects that are")]
    Unknown(ObjectRef),
    /// The command could not be stored for other replicas.
    #[error("failed to store the command for other replicas: {0}")]
    NotKept(String),
}

/// The part of the control plane that quarantines objects.
#[derive(Clone, Debug)]
pub struct QuarantineControl {
    /// The channel for commands; closed if nothing is quarantined (`NAVARCH_QUARANTINE=false`).
    pub releases: mpsc::Sender<QuarantineRelease>,
}

//! Another version of Envoy, while the pod runs: which one an annotation asks for, whether it may be
//! run, and whether it stays.
//!
//! ```text
//! annotation ─▶ wanted ─┬▶ path: in a folder of the image ─────────────────────────┐
//!                       └▶ oci: manifest ─▶ signature ─▶ layer ─▶ file in the store ┴▶ program ─▶ attempt ─▶ status
//! ```
//!
//! Anyone who may patch the pod can set the annotation. This chooses among the programs that the
//! operator admits: those of the image, and artefacts that the operator's key has signed. The
//! registry is not trusted.

pub mod artefact;
pub mod attempt;
pub mod program;
pub mod signature;
pub mod status;
pub mod wanted;

use std::path::PathBuf;
use std::time::Duration;

use crate::oci::pull_secret::PullSecretFile;
use attempt::AttemptLimits;
use signature::{KeyError, Keys};

/// The pod annotation that names the program.
pub const ANNOTATION: &str = "navarch.io/proxy-binary";
/// The variable that enables replacing Envoy in place.
pub const ENABLED_VARIABLE: &str = "NAVARCH_PROXY_UPGRADE";

/// What the operator admits, and how a new program is judged.
#[derive(Debug)]
pub struct UpgradeConfig {
    /// The program of the image (`binaryPath`), which runs without the annotation.
    pub original: PathBuf,
    /// `NAVARCH_PROXY_UPGRADE_PATHS`: the folders whose programs may be named by path. Default: that
    /// of `original`.
    pub folders: Vec<PathBuf>,
    /// `NAVARCH_PROXY_UPGRADE_KEY`: the public keys that verify artefacts; `None` if none is
    /// configured.
    pub keys: Option<Result<Keys, KeyError>>,
    /// `NAVARCH_PROXY_UPGRADE_PULL_SECRET`: the credentials of registries; `None` if none are
    /// configured.
    pub pull_secret: Option<PullSecretFile>,
    /// `NAVARCH_PROXY_UPGRADE_STORE`: where artefacts are unpacked.
    pub store: PathBuf,
    /// How long a download may take, and how a new program is judged.
    pub limits: AttemptLimits,
    /// The user that programs are run as, if different from the agent's.
    pub user: Option<u32>,
    /// How long an Envoy may drain.
    pub drain: Duration,
}

//! Sources of configuration: each turns what it watches into the same events.
//!
//! ```text
//! directory of YAML     ─┐
//! mesh config files     ─┤
//! Kubernetes API        ─┼─▶ batches of SourceEvent, over one bounded channel ─▶ store of objects
//! other control planes  ─┘
//! ```
//!
//! A source keeps the state that it has sent: it sends an object when it is new or has changed, and
//! the reference of a deleted one. Unreadable input is sent as a problem of its place, and the last
//! valid version stays in force. Sources do not interpret the objects.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "builders of test values read better if they take values"
    )
)]

mod aggregate;
#[cfg(test)]
mod conformance;
mod event_log;
mod files;
mod host_names;
mod keys;
mod kind_objects;
mod kubernetes;
mod mesh_files;
mod mesh_layers;
mod mesh_text;
mod mock;
mod problem;
mod problems;
mod rejected_configs;
mod source_address;
mod xds;

use std::sync::Arc;
use std::time::Duration;

use navarch_api::any_object::AnyObject;
use navarch_api::key_source::KeySource;
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::object::ObjectRef;
use navarch_net::backoff::Backoff;

pub use aggregate::Aggregate;
pub use files::{FileSource, FileSourceConfig};
pub use host_names::{HostAddresses, HostNames};
pub use keys::{
    DEFAULT_TIMEOUT as DEFAULT_KEY_TIMEOUT, Demand, FetchError, Fetcher, KeyConfig, KeyFetching,
    KeyMetrics,
};
pub use kubernetes::{
    IDLE_TIMEOUT, KubernetesScope, KubernetesSource, KubernetesSourceConfig, MeshMapSource,
    MeshMapSourceConfig, ReadKind, ReadKinds, RemoteKinds,
};
pub use mesh_files::{MeshFileSource, MeshFileSourceConfig};
pub use mesh_layers::MeshLayers;
pub use mock::MockSource;
pub use problem::{FilePosition, Problem, ProblemKind};
pub use problems::Problems;
pub use rejected_configs::{ProblemSource, RejectedConfigs};
pub use source_address::{SourceAddress, SourceAddressError, XdsServer};
pub use xds::{XdsMetrics, XdsSource, XdsSourceConfig};

/// Delays between attempts to reach a server: short enough to notice a recovery soon, long enough
/// not to overload one that is down.
const RETRY: Backoff = Backoff::jittered(Duration::from_millis(50), Duration::from_secs(5));

/// Changes that happened together, in order. A batch is to be applied as a whole: a file that moves
/// objects around, or a mount that swaps all of its files, is one.
pub type Batch = Vec<SourceEvent>;

/// One change of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceEvent {
    /// A new object.
    Added(AnyObject),
    /// An object whose content differs from before.
    Updated(AnyObject),
    /// An object that the source no longer has: kind, namespace and name.
    Deleted(ObjectRef),
    /// The settings of the mesh, at start and whenever they change.
    MeshConfig(Arc<MeshConfig>),
    /// The networks of the mesh, at start and whenever they change.
    MeshNetworks(Arc<MeshNetworks>),
    /// The keys of a token issuer, at first and whenever they change; `None` if they are no longer
    /// trusted.
    Keys(KeySource, Option<Arc<str>>),
    /// All problems of one place; they replace the earlier ones. Empty when the place is valid
    /// again.
    Problems {
        /// The file, or another place that the source reads.
        place: Arc<str>,
        /// Its problems, in the order of the text.
        problems: Vec<Problem>,
    },
    /// All initial objects were sent. Sent once.
    FullSync,
}

/// Why a source ended. No source ends by itself while its receiver is open.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The thread that reads failed.
    #[error("the reader of {place} failed")]
    Reader {
        /// The place that was read.
        place: String,
        /// The join error of the thread.
        #[source]
        source: tokio::task::JoinError,
    },
    /// The thread that reads files could not be started.
    #[error("failed to start the thread that reads {place}")]
    Thread {
        /// The place that was to be read.
        place: String,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The thread that reads files panicked.
    #[error("the thread that reads {0} panicked")]
    Panicked(String),
}

//! Proxies of workloads that are not pods: a listener is notified when they connect, report health, and disconnect.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use jiff::Timestamp;
use tonic::Status;

use navarch_push::proxy::Proxy;

/// Whether a proxy is admitted, as soon as that is known.
pub type Admittance = Pin<Box<dyn Future<Output = Result<Option<Box<dyn Presence>>, Status>> + Send>>;

/// A listener for proxies of workloads.
pub trait Workloads: Debug + Send + Sync {
    /// Admits a proxy whose stream began at `at`; `None` where its health and its end need no report.
    fn connect(&self, proxy: &Arc<Proxy>, at: Timestamp) -> Admittance;
}

/// A proxy that was admitted. Dropped when its stream ends.
pub trait Presence: Debug + Send + Sync {
    /// Takes in how the workload is; `reason` says what is wrong, if anything is.
    fn report(&self, reason: Option<&str>);
}

//! Proxies of workloads that are not pods: a listener is notified when they connect, report health,
//! and disconnect.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use jiff::Timestamp;
use tonic::Status;

use navarch_push::proxy::Proxy;

/// The result of the check whether a proxy is admitted.
pub type AdmissionFuture =
    Pin<Box<dyn Future<Output = Result<Option<Box<dyn Presence>>, Status>> + Send>>;

/// A listener for proxies of workloads.
pub trait Workloads: Debug + Send + Sync {
    /// Admits a proxy whose stream began at `at`. Returns `None` if its health and its end need no
    /// report.
    fn connect(&self, proxy: &Arc<Proxy>, at: Timestamp) -> AdmissionFuture;
}

/// A proxy that was admitted. Dropped when its stream ends.
pub trait Presence: Debug + Send + Sync {
    /// Reports the health of the workload; `reason` is the error if it is unhealthy.
    fn report(&self, reason: Option<&str>);
}

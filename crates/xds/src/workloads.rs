//! Proxies of workloads that are not pods: a listener is notified when they connect, report health, and disconnect.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use jiff::Timestamp;
use tonic::Status;

use navarch_push::proxy::Proxy;

/// Whether a proxy is let in, as soon as it is known.
pub type Admittance = Pin<Box<dyn Future<Output = Result<Option<Box<dyn Presence>>, Status>> + Send>>;

/// A listener for proxies of workloads.
pub trait Workloads: Debug + Send + Sync {
    /// Lets a proxy in whose stream began at `at`; gives nothing where nobody cares how it is and when it goes.
    fn connect(&self, proxy: &Arc<Proxy>, at: Timestamp) -> Admittance;
}

/// A proxy that was let in. Dropped when its stream ends.
pub trait Presence: Debug + Send + Sync {
    /// Takes in how the workload is; `reason` says what is wrong, if anything is.
    fn report(&self, reason: Option<&str>);
}

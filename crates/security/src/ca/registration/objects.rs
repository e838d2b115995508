//! Objects that exist while a request is signed: names, bounds and deletion.
//!
//! A caller may give up at any time, also while an object is being created. So a task of its own
//! creates the object and deletes it, and holds a permit until then: the permits bound the objects,
//! not the callers that wait. There are more of them than requests at once
//! (`ExternalLimits::objects`), so that signing does not wait for deletions.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::DeleteParams;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use navarch_api::names::Namespace;
use navarch_kubernetes::InWords;
use navarch_net::backoff::Backoff;
use navarch_net::budget::Full;
use navarch_net::cryptography;
use navarch_net::fair_semaphore::{FairPermit, FairSemaphore};

/// Requests that wait for a permit, half of them at most for one namespace.
const MAX_WAITING: usize = 4096;
/// Deletions at once.
pub(in super::super) const MAX_DELETIONS: usize = 16;
/// Timeout of creating an object. The client's own is minutes; admission webhooks have 30 seconds.
pub(in super::super) const CREATE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of deleting an object.
pub(in super::super) const DELETE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often an object is deleted that no one else would find.
const DELETE_ATTEMPTS: u32 = 6;
/// Intervals between these attempts.
const DELETE_INTERVALS: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));
/// Random bytes of a name: no one can prepare an object under it.
const NAME_BYTES: usize = 16;
/// The API server's code for an object that does not exist.
const NOT_FOUND: u16 = 404;

/// Held while an object may exist. The key is the namespace of the certificate; `None` for
/// Navarch's own.
pub(in super::super) type Permit = FairPermit<Option<Namespace>>;

/// The objects of one kind that this replica has created. Clones share them.
#[derive(Clone)]
pub(in super::super) struct Objects<K> {
    api: Api<K>,
    under_way: Arc<FairSemaphore<Option<Namespace>>>,
    deletions: Arc<Semaphore>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

/// What a deletion found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Deletion {
    /// The object, which is deleted, or will be.
    Deleted,
    /// No object.
    Missing,
}

/// Why an object is not deleted.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum DeleteError {
    /// The API server has answered with an error, or is unreachable.
    #[error("{}", InWords(.0))]
    Kubernetes(kube::Error),
    /// There was no answer.
    #[error("the API server did not respond within {DELETE_TIMEOUT:?}")]
    Silent,
}

impl<K: Clone + DeserializeOwned + Debug> Objects<K> {
    /// At most `limit` objects at once, half of them at most for one namespace.
    pub(in super::super) fn new(api: Api<K>, limit: usize) -> Self {
        Self {
            api,
            under_way: FairSemaphore::new(limit, MAX_WAITING),
            deletions: Arc::new(Semaphore::new(MAX_DELETIONS)),
            tasks: Arc::default(),
        }
    }

    /// Waits until one more object may be created for a namespace.
    ///
    /// # Errors
    /// If too many requests wait.
    pub(in super::super) async fn permit(&self, of: Option<Namespace>) -> Result<Permit, Full> {
        self.under_way.take(of).await
    }

    /// Runs work to its end, whatever becomes of the caller, and then releases its permit.
    pub(in super::super) fn complete(
        &self,
        permit: Permit,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            work.await;
            drop(permit);
        });
    }

    /// Deletes an object, with a bound of deletions at once.
    ///
    /// # Errors
    /// If it may still exist.
    pub(in super::super) async fn delete(&self, name: &str) -> Result<Deletion, DeleteError> {
        let _turn = self.deletions.acquire().await;
        let params = DeleteParams::default();
        match timeout(DELETE_TIMEOUT, self.api.delete(name, &params)).await {
            Ok(Ok(_)) => Ok(Deletion::Deleted),
            Ok(Err(kube::Error::Api(status))) if status.code == NOT_FOUND => Ok(Deletion::Missing),
            Ok(Err(error)) => Err(DeleteError::Kubernetes(error)),
            Err(_) => Err(DeleteError::Silent),
        }
    }

    /// Deletes an object that no one would find later, with several attempts. Unless it `is_made`
    /// for certain, it may appear after an attempt that did not find it.
    pub(super) async fn delete_again(&self, name: &str, is_made: bool) {
        let mut intervals = DELETE_INTERVALS;

        for attempt in 1..=DELETE_ATTEMPTS {
            tokio::time::sleep(intervals.next_delay()).await;
            match self.delete(name).await {
                Ok(Deletion::Deleted) => return,
                Ok(Deletion::Missing) if is_made => return,
                Ok(Deletion::Missing) => {}
                Err(error) if attempt == DELETE_ATTEMPTS => {
                    tracing::warn!(name, %error, "failed to delete a certificate request");
                }
                Err(_) => {}
            }
        }
    }
}

/// A name that cannot be guessed; `None` without randomness.
pub(in super::super) fn random_name(prefix: &str) -> Option<String> {
    let mut bytes = [0_u8; NAME_BYTES];
    let random = cryptography::provider().secure_random;
    random.fill(&mut bytes).ok()?;
    let mut name = prefix.to_owned();
    for byte in bytes {
        write!(name, "{byte:02x}").ok()?;
    }
    Some(name)
}

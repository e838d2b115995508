//! Checks whether a service account may read secrets, before its proxy gets a response.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use navarch_api::identity::Identity;
use navarch_api::object::NamespacedName;

/// How long a stream waits for the result of the check. If it comes later, the secrets are sent
/// then.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(6);

/// A request to check whether a service account may read the secrets of its namespace. The push
/// thread gets the result.
#[derive(Debug)]
pub struct AccessRequest {
    /// The cluster from the proxy's metadata; empty if not set.
    pub cluster: Arc<str>,
    /// The service account.
    pub account: NamespacedName,
    /// Dropped with the stream, after which the result need not be kept up to date.
    pub interest: Weak<()>,
    /// Completes when the push thread has the result.
    pub answered: oneshot::Sender<()>,
}

/// Requests the check and waits for its result. The caller must hold the returned value while it
/// needs access.
pub(super) async fn request(
    questions: &mpsc::Sender<AccessRequest>,
    cluster: Arc<str>,
    identity: &Identity,
) -> Arc<()> {
    let interest = Arc::new(());
    let (answered, answer) = oneshot::channel();
    let question = AccessRequest {
        cluster,
        account: identity.account(),
        interest: Arc::downgrade(&interest),
        answered,
    };
    if questions.send(question).await.is_ok() {
        // Without a result, access is denied.
        let _ = tokio::time::timeout(REVIEW_TIMEOUT, answer).await;
    }
    interest
}

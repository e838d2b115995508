//! Checks whether a service account may read secrets, before its proxy gets a response.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use navarch_api::identity::Identity;
use navarch_security::secret_access::AccessRequest;

/// How long a stream waits for the result of the check. If it comes later, the secrets are sent
/// then.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(6);

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

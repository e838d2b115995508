//! The question whether a service account may read secrets, asked before its proxy is answered.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use navarch_api::identity::Identity;
use navarch_api::object::NamespacedName;

/// How long a stream waits for the answer. Without one the secrets come when it does.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(6);

/// Whether this service account may read the secrets of its namespace. The answer goes to the push thread.
#[derive(Debug)]
pub struct AccessQuestion {
    /// The cluster that its proxy says to be of; empty if it does not say.
    pub cluster: Arc<str>,
    /// The service account.
    pub account: NamespacedName,
    /// Gone when the stream that asks is, so that the answer need not be kept up to date any longer.
    pub interest: Weak<()>,
    /// SentResponse when the push thread has been.
    pub answered: oneshot::Sender<()>,
}

/// Asks, and waits for the answer. What is given must be held as long as the answer matters.
pub(super) async fn ask(questions: &mpsc::Sender<AccessQuestion>, cluster: Arc<str>, identity: &Identity) -> Arc<()> {
    let interest = Arc::new(());
    let (answered, answer) = oneshot::channel();
    let question =
        AccessQuestion { cluster, account: identity.account(), interest: Arc::downgrade(&interest), answered };
    if questions.send(question).await.is_ok() {
        // Nobody answering is a no.
        let _ = tokio::time::timeout(REVIEW_TIMEOUT, answer).await;
    }
    interest
}

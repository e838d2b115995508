//! Waiting for what comes about by itself.

use std::time::Duration;

/// Waits until something is so.
///
/// # Panics
/// When it is not so after a minute: what it was is said.
pub async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), wait).await.is_ok(), "not so after 60 s: {what}");
}

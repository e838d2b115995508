//! The webhooks on a real API server: the configurations of deploy/, the rights of deploy/, and what people see.
//!
//! Needs the programs of `make tools`.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail loudly and spawn"
)]

#[path = "webhooks/authority.rs"]
mod authority;
#[path = "webhooks/configuration.rs"]
mod configuration;
#[path = "webhooks/installed.rs"]
mod installed;
#[path = "webhooks/life.rs"]
mod life;
#[path = "webhooks/limits.rs"]
mod limits;
#[path = "webhooks/pods.rs"]
mod pods;

use std::time::Duration;

/// Waits until something is so.
async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), wait).await.is_ok(), "not so after 60 s: {what}");
}

//! A certificate under a new root is shown only when the API server has been told the root.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use navarch_security::serving::{ServingTls, WebTls};

/// How long the API server may take to notice what its webhook configurations say.
const NOTICE: Duration = Duration::from_secs(2);
/// How long is waited for the roots to be told; then the certificate is shown all the same: the old one may be void.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(30);

/// The TLS that the webhooks show, to be asked at every connection. Clones are one.
#[derive(Clone)]
pub struct Rollover(watch::Receiver<WebTls>);

impl std::fmt::Debug for Rollover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rollover")
    }
}

impl Rollover {
    /// The TLS of this moment.
    #[must_use]
    pub fn get(&self) -> Arc<rustls::ServerConfig> {
        self.0.borrow().config.clone()
    }
}

/// Follows the TLS of the server, and lags behind it where its root is not among those that were told. `registered` is
/// what stands in the webhook configurations of each kind.
pub fn rollover(
    mut tls: ServingTls,
    mut registered: Vec<watch::Receiver<Arc<str>>>,
) -> (Rollover, impl Future<Output = ()> + Send + 'static) {
    let (sender, receiver) = watch::channel(tls.web());
    let follow = async move {
        while tls.changed().await {
            let next = tls.web();
            let roots = next.roots.clone();
            if *sender.borrow().roots != *roots {
                let told = async {
                    for told in &mut registered {
                        // Who registers nothing any more is not waited for.
                        drop(told.wait_for(|told| **told == *roots).await);
                    }
                    if !registered.is_empty() {
                        sleep(NOTICE).await;
                    }
                };
                if timeout(ANNOUNCE_TIMEOUT, told).await.is_err() {
                    tracing::warn!("the webhook certificate changes before its root is registered");
                }
            }
            sender.send_replace(next);
        }
        // Nothing changes any more, and the task is not to end before the process does.
        std::future::pending::<()>().await;
    };
    (Rollover(receiver), follow)
}

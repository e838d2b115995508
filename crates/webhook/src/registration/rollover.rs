//! A certificate under a new root is served only after the root is in all webhook configurations.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use navarch_security::serving::{ServingTls, WebTls};

/// How long API servers may take to apply a changed webhook configuration.
const PROPAGATION_DELAY: Duration = Duration::from_secs(2);
/// Timeout for the announcement of roots in all clusters; then the certificate is served anyway:
/// the old one may have expired, and an unreachable cluster must not block the others.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(30);

/// The TLS configuration of the webhooks, to be read at every connection. Clones share their state.
#[derive(Clone)]
pub struct Rollover(watch::Receiver<WebTls>);

impl std::fmt::Debug for Rollover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rollover")
    }
}

impl Rollover {
    /// The current TLS configuration.
    #[must_use]
    pub fn get(&self) -> Arc<rustls::ServerConfig> {
        self.0.borrow().config.clone()
    }
}

/// The webhook configurations that must contain a root before a certificate under it is served: one
/// of each kind and cluster. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Announcements(Arc<Mutex<Vec<Announcement>>>);

/// The roots in the webhook configurations of a kind in a cluster.
#[derive(Clone, Debug)]
struct Announcement {
    /// The name of the cluster.
    place: Arc<str>,
    /// The roots in the configuration; closed once no task maintains it.
    roots: watch::Receiver<Arc<str>>,
}

impl Announcement {
    /// Whether a task maintains the configuration.
    fn is_kept(&self) -> bool {
        let mut receiver = self.roots.clone();
        // An unread last value does not mean that the sender still exists.
        receiver.mark_unchanged();
        receiver.has_changed().is_ok()
    }
}

impl Announcements {
    /// Adds a cluster in which these roots are published. The owner updates the sender; dropping it
    /// ends the wait for it.
    #[must_use]
    pub fn add(&self, place: &str, roots: Arc<str>) -> watch::Sender<Arc<str>> {
        let (sender, receiver) = watch::channel(roots);
        let mut open = self.0.lock();
        // Removes announcements whose sender was dropped.
        open.retain(Announcement::is_kept);
        open.push(Announcement {
            place: Arc::from(place),
            roots: receiver,
        });
        sender
    }

    /// Waits until these roots are announced in all clusters and applied, up to a limit. Returns
    /// the clusters that lack them.
    async fn wait_announced(
        &self,
        roots: &str,
        notice: Duration,
        limit: Duration,
    ) -> Vec<Arc<str>> {
        let mut open = self.0.lock().clone();
        let is_watched = !open.is_empty();
        let announced = async {
            for announcement in &mut open {
                // A dropped sender is not waited for.
                drop(
                    announcement
                        .roots
                        .wait_for(|announced| **announced == *roots)
                        .await,
                );
            }
            if is_watched {
                sleep(notice).await;
            }
        };

        if timeout(limit, announced).await.is_ok() {
            return Vec::new();
        }

        let lacks = |announcement: &&Announcement| {
            announcement.is_kept() && **announcement.roots.borrow() != *roots
        };
        open.iter()
            .filter(lacks)
            .map(|announcement| announcement.place.clone())
            .collect()
    }
}

/// Follows the TLS of the server. A certificate under a new root is delayed until the root is
/// announced in all clusters.
pub fn rollover(
    mut tls: ServingTls,
    announcements: Announcements,
) -> (Rollover, impl Future<Output = ()> + Send + 'static) {
    let (sender, receiver) = watch::channel(tls.web());
    let follow = async move {
        while tls.changed().await {
            let next = tls.web();
            if *sender.borrow().roots != *next.roots {
                let missing = announcements
                    .wait_announced(&next.roots, PROPAGATION_DELAY, ANNOUNCE_TIMEOUT)
                    .await;
                if !missing.is_empty() {
                    let clusters = missing.join(", ");
                    tracing::warn!(
                        clusters,
                        after = ?ANNOUNCE_TIMEOUT,
                        "the webhook certificate changes before its root is in the webhook configurations of these clusters; \
                         their API servers cannot call the webhooks until it is"
                    );
                }
            }

            sender.send_replace(next);
        }

        // There are no more changes, but the task must not end before the process.
        std::future::pending::<()>().await;
    };

    (Rollover(receiver), follow)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// Time for what comes at once, and what will not come.
    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn waiting_for_an_unreachable_cluster_is_bounded() {
        let announcements = Announcements::default();
        let none = Vec::<Arc<str>>::new();
        assert_eq!(
            announcements.wait_announced("new", LONG, LONG).await,
            none,
            "there is no webhook"
        );

        let [own, east, gone] =
            ["own", "east", "gone"].map(|place| announcements.add(place, Arc::from("old")));
        drop(gone);
        own.send_replace(Arc::from("new"));
        assert_eq!(
            announcements
                .wait_announced("new", Duration::ZERO, SHORT)
                .await,
            [Arc::from("east")]
        );

        let begun = Instant::now();
        let rotation = async {
            sleep(SHORT).await;
            east.send_replace(Arc::from("new"));
        };
        let (missing, ()) =
            tokio::join!(announcements.wait_announced("new", SHORT, LONG), rotation);
        assert_eq!(missing, none);

        assert!(
            begun.elapsed() >= SHORT * 2,
            "API servers have time to notice"
        );
        drop(east);
        let _west = announcements.add("west", Arc::from("new"));
        assert_eq!(
            announcements.0.lock().len(),
            2,
            "places that nobody keeps are forgotten"
        );
    }
}

//! A certificate under a new root is shown only when the API server has been told the root.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use navarch_security::serving::{ServingTls, WebTls};

/// How long the API server may take to notice what its webhook configurations say.
const NOTICE: Duration = Duration::from_secs(2);
/// How long is waited for the roots to be told in all clusters; then the certificate is shown all the same: the old one may be
/// void, and a cluster that is cut off must not keep the others waiting.
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

/// The configurations of webhooks that must know a root before it vouches for the server: one of each kind and cluster. Clones are
/// one.
#[derive(Clone, Debug, Default)]
pub struct Announcements(Arc<Mutex<Vec<Announcement>>>);

/// What stands in the configurations of a kind in a cluster.
#[derive(Clone, Debug)]
struct Announcement {
    /// The cluster, for people.
    place: Arc<str>,
    /// The roots that stand there; closed once nobody keeps them.
    told: watch::Receiver<Arc<str>>,
}

impl Announcements {
    /// Adds a place where these roots stand. Who is told of others keeps it up to date, and drops it to be waited for no more.
    #[must_use]
    pub fn add(&self, place: &str, roots: Arc<str>) -> watch::Sender<Arc<str>> {
        let (sender, told) = watch::channel(roots);
        let mut open = self.0.lock();
        // Those that nobody keeps any more.
        open.retain(|announcement| announcement.told.has_changed().is_ok());
        open.push(Announcement { place: Arc::from(place), told });
        sender
    }

    /// Waits until these roots stand everywhere, for a time at the most. Gives the places where they do not.
    async fn reach(&self, roots: &str) -> Vec<Arc<str>> {
        let mut open = self.0.lock().clone();
        let is_watched = !open.is_empty();
        let told = async {
            for announcement in &mut open {
                // Who registers nothing any more is not waited for.
                drop(announcement.told.wait_for(|told| **told == *roots).await);
            }
            if is_watched {
                sleep(NOTICE).await;
            }
        };
        if timeout(ANNOUNCE_TIMEOUT, told).await.is_ok() {
            return Vec::new();
        }
        let lacks = |announcement: &&Announcement| {
            announcement.told.has_changed().is_ok() && **announcement.told.borrow() != *roots
        };
        open.iter().filter(lacks).map(|announcement| announcement.place.clone()).collect()
    }
}

/// Follows the TLS of the server, and lags behind it where its root is not among those that were told everywhere.
pub fn rollover(
    mut tls: ServingTls,
    announcements: Announcements,
) -> (Rollover, impl Future<Output = ()> + Send + 'static) {
    let (sender, receiver) = watch::channel(tls.web());
    let follow = async move {
        while tls.changed().await {
            let next = tls.web();
            if *sender.borrow().roots != *next.roots {
                let missing = announcements.reach(&next.roots).await;
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
        // Nothing changes any more, and the task is not to end before the process does.
        std::future::pending::<()>().await;
    };
    (Rollover(receiver), follow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_is_cut_off_is_waited_for_no_longer_than_it_is_said() {
        let begun = tokio::time::Instant::now();
        let announcements = Announcements::default();
        assert_eq!(announcements.reach("new").await, Vec::<Arc<str>>::new());
        assert_eq!(begun.elapsed(), Duration::ZERO, "there is no webhook");

        let [own, east, gone] = ["own", "east", "gone"].map(|place| announcements.add(place, Arc::from("old")));
        drop(gone);
        own.send_replace(Arc::from("new"));
        assert_eq!(announcements.reach("new").await, [Arc::from("east")]);
        assert_eq!(begun.elapsed(), ANNOUNCE_TIMEOUT);

        let begun = tokio::time::Instant::now();
        let told = async {
            sleep(Duration::from_secs(5)).await;
            east.send_replace(Arc::from("new"));
        };
        let (missing, ()) = tokio::join!(announcements.reach("new"), told);
        assert_eq!(missing, Vec::<Arc<str>>::new());
        assert_eq!(begun.elapsed(), Duration::from_secs(5) + NOTICE, "API servers have time to notice");
    }
}

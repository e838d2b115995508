//! Leader election: acquires a lock, works while it is held, and releases it.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::candidate::{self, Candidate, LockAction};
use super::cluster::Cluster;
use super::lock::Lock;
use super::lock_object::{LockObject, LockObjects, Record};
use navarch_kubernetes::{InWords, is_conflict};

/// The timing of a lock.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A lock that was not renewed for this long is free.
    pub ttl: Duration,
}

impl Default for Timing {
    /// istiod's timing: 30 seconds.
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
        }
    }
}

impl Timing {
    /// A holder that could not renew for this long gives up, well before another may take over.
    fn deadline(self) -> Duration {
        self.ttl / 2
    }

    /// Interval of acquiring and renewing.
    fn retry(self) -> Duration {
        self.ttl / 4
    }
}

/// A lock that this control plane contends for.
#[derive(Clone, Debug)]
pub struct Election {
    /// The API of the lock objects.
    objects: LockObjects,
    /// The name of istiod's lock object, such as `istio-status-leader`: both contend for the same
    /// lock.
    pub name: String,
    /// What the holder does, which decides the name and the kind of the lock object.
    pub lock: Lock,
    /// This control plane.
    pub candidate: Candidate,
    /// The timing of the lock.
    pub timing: Timing,
    /// The default revision, which has priority.
    pub default_revision: watch::Receiver<String>,
}

/// The last observed state of the lock.
struct ObservedLock {
    object: LockObject,
    /// The time since which it is unchanged.
    since: Instant,
}

/// Why leading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TermEnd {
    /// Another control plane took over, or the lock could not be renewed in time.
    Lost,
    /// This control plane shuts down.
    Stopped,
    /// The work has completed.
    Done,
}

impl Election {
    /// A candidate for `lock` in `namespace`.
    #[must_use]
    pub fn new(
        cluster: &Cluster,
        namespace: &str,
        lock: Lock,
        candidate: Candidate,
        default_revision: watch::Receiver<String>,
    ) -> Self {
        Self {
            objects: LockObjects::new(cluster, namespace, lock.kind()),
            name: lock.name(&candidate),
            lock,
            candidate,
            timing: Timing::default(),
            default_revision,
        }
    }

    /// Runs `work` while this control plane is the leader, until `stop` is cancelled. The token of
    /// `work` is cancelled when the lock is lost; the lock is released only after `work` has ended.
    pub async fn run<W, F>(mut self, stop: CancellationToken, work: W)
    where
        W: Fn(CancellationToken) -> F,
        F: Future<Output = ()>,
    {
        let mut seen = None;

        while !stop.is_cancelled() {
            if !self.acquire(&mut seen, &stop).await {
                return;
            }

            tracing::info!(lock = %self.name, identity = %self.candidate.identity, "acquired leader lock");
            let led = stop.child_token();
            let ended = {
                let mut job = std::pin::pin!(work(led.clone()));
                let ended = tokio::select! {
                    () = &mut job => TermEnd::Done,
                    () = self.keep(&mut seen) => TermEnd::Lost,
                    () = stop.cancelled() => TermEnd::Stopped,
                };
                led.cancel();
                if ended != TermEnd::Done {
                    job.await;
                }
                ended
            };

            tracing::info!(lock = %self.name, identity = %self.candidate.identity, "lost leader lock");
            self.release(&mut seen).await;
            if ended == TermEnd::Done {
                return;
            }
        }
    }

    /// Tries until the lock is held; `false` if `stop` is cancelled first.
    async fn acquire(&mut self, seen: &mut Option<ObservedLock>, stop: &CancellationToken) -> bool {
        loop {
            let attempt = async {
                if self.attempt(seen).await {
                    return true;
                }
                tokio::select! {
                    () = sleep(self.timing.retry()) => {}
                    // The new default revision need not wait for the interval.
                    Ok(()) = self.default_revision.changed() => {}
                }
                false
            };

            tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                held = attempt => if held { return true },
            }
        }
    }

    /// Renews the lock until it is lost.
    async fn keep(&self, seen: &mut Option<ObservedLock>) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < self.timing.deadline() {
            sleep(self.timing.retry()).await;
            if self.attempt(seen).await {
                renewed = Instant::now();
            } else if seen.as_ref().is_some_and(|seen| !self.holds(seen)) {
                return;
            }
        }
    }

    /// Reads the lock once, and acquires or renews it if allowed. Returns whether it is held.
    async fn attempt(&self, seen: &mut Option<ObservedLock>) -> bool {
        match timeout(self.timing.deadline() / 2, self.try_lock(seen)).await {
            Ok(Ok(held)) => held,
            Ok(Err(error)) if is_conflict(&error) => {
                tracing::debug!(lock = %self.name, "lost the race for the leader lock");
                false
            }
            Ok(Err(error)) => {
                tracing::warn!(lock = %self.name, error = %InWords(&error), "failed to update the leader lock");
                false
            }
            Err(_) => {
                tracing::warn!(lock = %self.name, "timed out updating the leader lock");
                false
            }
        }
    }

    /// Whether this control plane holds the lock, as it was last seen.
    fn holds(&self, seen: &ObservedLock) -> bool {
        seen.object.record.holder_identity == self.candidate.identity
    }

    /// As [`attempt`](Self::attempt), with the error.
    async fn try_lock(&self, seen: &mut Option<ObservedLock>) -> Result<bool, kube::Error> {
        let scope = self.lock.scope();
        let ttl = self.timing.ttl;
        let hold = |before: Option<&Record>| {
            self.candidate
                .hold(scope, before, ttl, jiff::Timestamp::now())
        };
        let Some(object) = self.objects.get(&self.name).await? else {
            let object = self.objects.create(&self.name, hold(None)).await?;
            *seen = Some(ObservedLock {
                object,
                since: Instant::now(),
            });
            return Ok(true);
        };

        let since = match seen {
            Some(seen) if seen.object.version() == object.version() => seen.since,
            _ => Instant::now(),
        };
        let default_revision = self.default_revision.borrow().clone();
        let step = self.candidate.step(
            scope,
            &object.record,
            since.elapsed(),
            ttl,
            &default_revision,
        );

        *seen = Some(ObservedLock {
            object: object.clone(),
            since,
        });
        if step == LockAction::Wait {
            return Ok(false);
        }

        let object = self
            .objects
            .replace(&self.name, &object, hold(Some(&object.record)))
            .await?;
        *seen = Some(ObservedLock {
            object,
            since: Instant::now(),
        });

        Ok(true)
    }

    /// Releases the lock if it is held, so that others need not wait for its expiry.
    async fn release(&self, seen: &mut Option<ObservedLock>) {
        let Some(seen) = seen.as_mut().filter(|seen| self.holds(seen)) else {
            return;
        };
        let record = candidate::released(&seen.object.record, jiff::Timestamp::now());
        let replaced = self.objects.replace(&self.name, &seen.object, record);
        match timeout(self.timing.deadline() / 2, replaced).await {
            Ok(Ok(object)) => seen.object = object,
            Ok(Err(error)) => {
                tracing::warn!(lock = %self.name, error = %InWords(&error), "failed to release the leader lock")
            }
            Err(_) => tracing::warn!(lock = %self.name, "timed out releasing the leader lock"),
        }
    }
}

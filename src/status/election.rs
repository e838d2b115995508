//! Standing for election, working while elected, handing over.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::lease::{self, Candidate, Step};
use super::lock::Lock;

/// How long a Lease holds, and how often it is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A Lease that nobody renewed for so long is free.
    pub ttl: Duration,
}

impl Default for Timing {
    /// istiod's: 30 seconds.
    fn default() -> Self {
        Self { ttl: Duration::from_secs(30) }
    }
}

impl Timing {
    /// A holder that could not renew for so long gives up, well before another may take over.
    fn deadline(self) -> Duration {
        self.ttl / 2
    }

    /// How often the Lease is tried and renewed.
    fn retry(self) -> Duration {
        self.ttl / 4
    }
}

/// A lock that this control plane contends for.
#[derive(Clone, Debug)]
pub struct Election {
    /// Where the Lease is.
    pub leases: Api<Lease>,
    /// Its name.
    pub name: String,
    /// The lock.
    pub lock: Lock,
    /// This control plane.
    pub candidate: Candidate,
    /// How long a Lease holds.
    pub timing: Timing,
    /// The default revision, which goes first.
    pub default_revision: watch::Receiver<String>,
}

/// A Lease as it was last seen.
struct Seen {
    /// The Lease.
    lease: Lease,
    /// Since when it has been so.
    since: Instant,
}

/// Why leading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Another took over, or the Lease could not be renewed in time.
    Lost,
    /// This control plane ends.
    Stopped,
    /// There is nothing left to do.
    Done,
}

impl Election {
    /// Stands for `lock` in `namespace`.
    #[must_use]
    pub fn new(
        cluster: &Cluster,
        namespace: &str,
        lock: Lock,
        candidate: Candidate,
        default_revision: watch::Receiver<String>,
    ) -> Self {
        Self {
            leases: Api::namespaced(cluster.0.clone(), namespace),
            name: lock.name(&candidate),
            lock,
            candidate,
            timing: Timing::default(),
            default_revision,
        }
    }

    /// Runs `work` whenever this control plane leads, until told to stop. Its token is cancelled when another leads; the
    /// Lease is given back only after it has ended.
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
            tracing::info!(lock = %self.name, identity = %self.candidate.identity, "leads");
            let led = stop.child_token();
            let ended = {
                let mut job = std::pin::pin!(work(led.clone()));
                let ended = tokio::select! {
                    () = &mut job => Ended::Done,
                    () = self.keep(&mut seen) => Ended::Lost,
                    () = stop.cancelled() => Ended::Stopped,
                };
                led.cancel();
                if ended != Ended::Done {
                    job.await;
                }
                ended
            };
            tracing::info!(lock = %self.name, identity = %self.candidate.identity, ?ended, "leads no more");
            self.release(&mut seen).await;
            if ended == Ended::Done {
                return;
            }
        }
    }

    /// Tries until the Lease is held; `false` when told to stop.
    async fn acquire(&mut self, seen: &mut Option<Seen>, stop: &CancellationToken) -> bool {
        loop {
            let attempt = async {
                if self.attempt(seen).await {
                    return true;
                }
                tokio::select! {
                    () = sleep(self.timing.retry()) => {}
                    // The new default need not wait for its turn.
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

    /// Renews the Lease until it is lost.
    async fn keep(&self, seen: &mut Option<Seen>) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < self.timing.deadline() {
            sleep(self.timing.retry()).await;
            if self.attempt(seen).await {
                renewed = Instant::now();
            } else if seen.as_ref().is_some_and(|seen| lease::holder(&seen.lease) != self.candidate.identity) {
                return;
            }
        }
    }

    /// Looks at the Lease once, and takes or renews it if that may be. Whether it is held then.
    async fn attempt(&self, seen: &mut Option<Seen>) -> bool {
        match timeout(self.timing.deadline() / 2, self.try_hold(seen)).await {
            Ok(Ok(held)) => held,
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                tracing::debug!(lock = %self.name, "another was faster");
                false
            }
            Ok(Err(error)) => {
                tracing::warn!(lock = %self.name, %error, "cannot reach the lease");
                false
            }
            Err(_) => {
                tracing::warn!(lock = %self.name, "the API server does not answer about the lease");
                false
            }
        }
    }

    /// As [`attempt`](Self::attempt), with what went wrong.
    async fn try_hold(&self, seen: &mut Option<Seen>) -> Result<bool, kube::Error> {
        let scope = self.lock.scope();
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
            let mut lease = Lease::default();
            lease.metadata.name = Some(self.name.clone());
            self.candidate.hold(scope, &mut lease, self.timing.ttl, jiff::Timestamp::now());
            let lease = self.leases.create(&PostParams::default(), &lease).await?;
            *seen = Some(Seen { lease, since: Instant::now() });
            return Ok(true);
        };
        let since = match seen {
            Some(seen) if seen.lease.metadata.resource_version == lease.metadata.resource_version => seen.since,
            _ => Instant::now(),
        };
        let default_revision = self.default_revision.borrow().clone();
        let step = self.candidate.step(scope, &lease, since.elapsed(), self.timing.ttl, &default_revision);
        *seen = Some(Seen { lease: lease.clone(), since });
        if step == Step::Wait {
            return Ok(false);
        }
        self.candidate.hold(scope, &mut lease, self.timing.ttl, jiff::Timestamp::now());
        // The version that was read goes along: of two who write, one fails.
        let lease = self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
        *seen = Some(Seen { lease, since: Instant::now() });
        Ok(true)
    }

    /// Gives the Lease back if it is held, so that nobody has to wait for it to run out.
    async fn release(&self, seen: &mut Option<Seen>) {
        let Some(seen) = seen.as_mut().filter(|seen| lease::holder(&seen.lease) == self.candidate.identity) else {
            return;
        };
        lease::release(&mut seen.lease, jiff::Timestamp::now());
        let parameters = PostParams::default();
        let replaced = self.leases.replace(&self.name, &parameters, &seen.lease);
        match timeout(self.timing.deadline() / 2, replaced).await {
            Ok(Ok(lease)) => seen.lease = lease,
            Ok(Err(error)) => tracing::warn!(lock = %self.name, %error, "cannot give the lease back"),
            Err(_) => tracing::warn!(lock = %self.name, "cannot give the lease back: the API server does not answer"),
        }
    }
}

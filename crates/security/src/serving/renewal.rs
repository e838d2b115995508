//! The task that renews the server certificate.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::files::{Files, files_change};
use super::{LIFETIME, Served, ServerCertificate, ServingConfig, configure, request};
use crate::Clock;
use crate::ca::{Authority, CurrentAuthority, ServerChain};
use navarch_base::file_events::FileEvents;
use navarch_net::deadline::Deadline;

/// Delay after a failed renewal.
const RETRY: Duration = Duration::from_secs(30);
/// Poll interval of the roots that mesh config has for a signer.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Renews the server certificate.
pub(super) struct Renewal {
    pub(super) authority: CurrentAuthority,
    pub(super) config: ServingConfig,
    /// The last content of the files.
    pub(super) files: Files,
    /// The last certificate that Kubernetes signed.
    pub(super) requested: Option<ServerChain>,
    /// The sender to the ports.
    pub(super) sender: watch::Sender<Served>,
    /// The sender of the roots, for publication.
    pub(super) roots: watch::Sender<Arc<str>>,
    /// The wall clock.
    pub(super) clock: Clock,
}

impl Renewal {
    /// Renews until the process ends.
    pub(super) async fn run(self) {
        let Self {
            mut authority,
            config,
            mut files,
            mut requested,
            sender,
            roots,
            clock,
        } = self;

        let wait = half_life(&authority.get(), requested.as_ref(), clock());
        let mut due = Deadline::after(wait, clock());
        let mut ends = false;
        let mut events = FileEvents::of_files(files.paths());
        let mut signer_roots = config.signer_roots.clone();

        loop {
            tokio::select! {
                // The last authority stays in use when there will be no other; its certificates
                // must still be renewed.
                changed = authority.changed(), if !ends => {
                    ends = !changed;
                    if ends {
                        continue;
                    }
                }
                () = due.passed(clock) => {}
                () = files_change(&config, &mut files, &mut events) => {}
                () = roots_change(&config, requested.as_ref()) => {}
                () = next(&mut signer_roots) => {}
            }

            let renewed = match request(&config).await {
                Ok(chain) => {
                    requested = chain.or(requested);
                    configure(
                        &authority.get(),
                        &config,
                        &files,
                        requested.as_ref(),
                        clock(),
                    )
                }
                Err(error) => Err(error),
            };

            let wait = match renewed {
                Ok(served) => {
                    roots.send_if_modified(|current| {
                        let differs = *current != served.web.roots;
                        current.clone_from(&served.web.roots);
                        differs
                    });
                    sender.send_replace(served);
                    tracing::info!("renewed the server certificate");
                    half_life(&authority.get(), requested.as_ref(), clock())
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(
                        error,
                        "failed to renew the server certificate; keeping the current one"
                    );
                    RETRY
                }
            };

            due = Deadline::after(wait, clock());
        }
    }
}

/// Waits until the roots of signers have changed.
async fn next(roots: &mut watch::Receiver<Arc<str>>) {
    if roots.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until mesh config has other roots of the signer than those of its last certificate.
async fn roots_change(config: &ServingConfig, held: Option<&ServerChain>) {
    let (ServerCertificate::Requested(request), Some(held)) = (&config.certificate, held) else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        if request
            .registration
            .server_roots(&request.signer)
            .is_ok_and(|roots| roots != held.roots)
        {
            return;
        }
    }
}

/// When a certificate issued now is to be renewed: at half of its lifetime. A certificate of the CA
/// expires with the CA's own at the latest; a signer of Kubernetes may grant less than requested.
fn half_life(authority: &Authority, requested: Option<&ServerChain>, now: SystemTime) -> Duration {
    let end = match requested {
        None => authority.not_after(),
        Some(held) => held.not_after().unwrap_or(now),
    };
    let left = end.duration_since(now).unwrap_or_default();
    (left.min(LIFETIME) / 2).max(RETRY)
}

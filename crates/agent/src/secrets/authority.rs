//! Certificates from the CA: requested, renewed in time, with their roots.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::time::Instant;

use super::ca_client::{CaClient, CaError};
use super::files::{self, FileResource};
use super::pem::{self, PairError};
use super::request::Request;
use super::{Secret, Secrets, replace};
use crate::metrics::AgentMetrics;
use crate::{Clock, random};
use navarch_base::blocking;
use navarch_net::backoff::Backoff;
use navarch_net::deadline::Deadline;

/// Minimum interval of successful renewals, so that a CA with certificates of a few seconds is not
/// overloaded.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum number of retries of a failed renewal before the current certificate expires.
const MIN_RETRIES: u32 = 4;

/// Delays after failures, at most as Istio's.
const RETRY: Backoff = Backoff::jittered(Duration::from_millis(500), Duration::from_secs(60));

/// The CA's response.
struct Issued {
    /// The chain, roots included as the CA sent them.
    chain: Bytes,
    key: navarch_api::kubernetes::SecretBytes,
    /// The roots: the last element.
    roots: Bytes,
    ends: SystemTime,
}

/// Errors of obtaining a certificate.
#[derive(Debug, thiserror::Error)]
enum IssueError {
    /// Generating the key or the CSR failed.
    #[error("failed to generate a private key")]
    Key(#[from] rcgen::Error),
    /// The task that generates keys panicked.
    #[error("failed to generate a private key")]
    Task(#[from] tokio::task::JoinError),
    /// The CA returned no certificate.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The CA's response is invalid.
    #[error("the CA returned an unusable certificate")]
    Pem(#[from] PairError),
}

/// Requests the workload's certificate and renews it in time; does not return. The current one is
/// served until the next one is issued.
pub(super) async fn renew_certificate(
    secrets: &Secrets,
    ca: &CaClient,
    clock: Clock,
    roots_too: bool,
) {
    let mut bundle = secrets.0.bundle.subscribe();
    let metrics = &secrets.0.metrics;
    let mut is_retry = false;
    let mut backoff = RETRY;
    let mut known_roots: Option<Bytes> = None;
    let mut ends: Option<SystemTime> = None;
    let mut due = Deadline::after(Duration::ZERO, clock());

    loop {
        tokio::select! {
            () = due.passed(clock) => {}
            () = secrets.0.renew.notified() => {}
            Ok(()) = bundle.changed() => {
                if roots_too && let Some(roots) = &known_roots {
                    publish_roots(secrets, roots);
                }
                continue;
            }
        }

        if is_retry {
            metrics.count_ca_retry();
        }

        let issued = issue(secrets, ca, metrics).await;
        is_retry = issued.is_err();

        match issued {
            Ok(issued) => {
                metrics.certificate_ends(issued.ends, clock);
                backoff.reset();
                let now = clock();
                let wait = secrets
                    .0
                    .config
                    .grace
                    .wait(now, issued.ends, now, random::unit())
                    .max(MIN_RENEWAL_INTERVAL);

                due = Deadline::after(wait, clock());
                ends = Some(issued.ends);
                let renewed_in = Duration::from_secs(wait.as_secs());
                tracing::info!(?renewed_in, "generated a new workload certificate");

                if roots_too {
                    // Roots before the certificate: a reader that takes both in order then trusts
                    // the new signer.
                    publish_roots(secrets, &issued.roots);
                    known_roots = Some(issued.roots);
                }

                replace(
                    &secrets.0.certificate,
                    Secret::Certificate {
                        chain: issued.chain,
                        key: issued.key,
                    },
                );
            }
            Err(error) => {
                // Retries get more frequent towards expiry.
                let left =
                    ends.map(|ends| ends.duration_since(clock()).unwrap_or_default() / MIN_RETRIES);
                let wait = backoff.next_delay();
                let wait = left
                    .filter(|left| !left.is_zero())
                    .map_or(wait, |left| wait.min(left.max(MIN_RENEWAL_INTERVAL)));
                due = Deadline::after(wait, clock());
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, again_in = ?wait, "failed to renew the workload certificate");
            }
        }
    }
}

/// Requests a new certificate.
async fn issue(
    secrets: &Secrets,
    ca: &CaClient,
    metrics: &AgentMetrics,
) -> Result<Issued, IssueError> {
    let config = &secrets.0.config;
    let kind = config.key;
    let format = config.key_format;
    let identity = config.identity.clone();

    // Generating an RSA key would block other tasks.
    let generated = blocking::run(move || Request::new(kind, format, &identity));
    let request = generated.await??;
    let begun = Instant::now();
    let signed = ca.sign(request.csr, config.lifetime).await;
    metrics.observe_ca_request(begun.elapsed(), signed.is_ok());
    let chain = signed?;
    let roots = Bytes::from(
        chain
            .last()
            .expect("the CA client returns two certificates or more")
            .clone(),
    );

    let chain = pem::join(&chain);
    let ends = pem::not_after(&chain)?;
    pem::check_pair(&chain, request.key.expose())?;
    pem::merge([&roots[..]])?;

    Ok(Issued {
        chain,
        key: request.key,
        roots,
        ends,
    })
}

/// Publishes roots, merged with those of the proxy config.
fn publish_roots(secrets: &Secrets, roots: &[u8]) {
    let bundle = secrets.0.bundle.borrow().clone();
    match pem::merge(std::iter::once(roots).chain(bundle.iter().map(String::as_bytes))) {
        Ok(merged) => replace(&secrets.0.roots, Secret::Roots(merged)),
        Err(error) => tracing::error!(%error, "failed to load the root certificates"),
    }
}

/// Keeps `ROOTCA` in sync with a file and the proxy config.
pub(super) async fn follow_roots(secrets: &Secrets, wanted: FileResource) {
    let in_file = tokio::sync::watch::Sender::new(None::<Arc<Secret>>);
    let mut changed = in_file.subscribe();
    let mut bundle = secrets.0.bundle.subscribe();
    let follow = files::follow(
        wanted,
        secrets.0.config.debounce,
        &secrets.0.metrics,
        |secret| replace(&in_file, secret),
    );

    let merge = async {
        loop {
            tokio::select! {
                Ok(()) = changed.changed() => {}
                Ok(()) = bundle.changed() => {}
                else => return,
            }
            let roots = changed.borrow_and_update().clone();
            if let Some(Secret::Roots(roots)) = roots.as_deref() {
                publish_roots(secrets, roots);
            }
        }
    };

    tokio::select! {
        () = follow => {}
        () = merge => {}
    }
}

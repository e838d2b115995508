//! Which roots of a signer proxies trust: a certificate that ends in another one is not handed out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::bundle::certificates;
use super::super::rotation::Missing;
use super::super::signer::SignerError;
use crate::certificate_life::CertificateLife;
use crate::trust_bundle;
use navarch_base::digest::sha256_hex;
use navarch_net::watched::send_if_changed;
use navarch_pki::pem;

/// Maximum number of a signer's roots: each is sent to every proxy.
const MAX_ROOTS: usize = 64;

/// When a new root may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistributionRules {
    /// How long it is distributed at least: `NAVARCH_ROOT_OVERLAP`.
    pub overlap: Duration,
    /// How long connected proxies that lack it delay its use at most:
    /// `NAVARCH_SIGNER_ROOT_WAIT`. A proxy without PCDS gets roots only with its next certificate,
    /// and would delay it forever.
    pub wait: Duration,
}

/// The roots of a signer, and whether they are distributed.
#[derive(Debug)]
pub(super) struct Distribution {
    rules: DistributionRules,
    known: Mutex<Known>,
    /// Those that are distributed, in PEM.
    distributed: watch::Sender<Arc<str>>,
}

#[derive(Debug, Default)]
struct Known {
    /// The roots in PEM, of the last bundle.
    pem: Arc<str>,
    roots: Vec<Root>,
    /// Whether there were roots before: proxies have them, and must get others before their use.
    has_begun: bool,
    /// Proxies that lack a new root, at the last check.
    missing: Vec<Missing>,
}

#[derive(Clone, Debug)]
struct Root {
    certificate: CertificateDer<'static>,
    since: Instant,
    is_distributed: bool,
}

/// A root of a signer, for operators.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerRoot {
    /// The X.509 subject.
    pub subject: String,
    /// The SHA-256 of the certificate.
    pub fingerprint: String,
    /// The start of its validity.
    pub not_before: Timestamp,
    /// The end of its validity.
    pub not_after: Timestamp,
    /// Whether proxies trust it; until then no certificate that ends in it is handed out.
    pub is_distributed: bool,
}

impl Distribution {
    /// `last` are the roots that proxies trusted at the last stop, in PEM; empty if there are none.
    pub(super) fn new(rules: DistributionRules, last: &Arc<str>) -> Self {
        let distribution = Self {
            rules,
            known: Mutex::default(),
            distributed: watch::channel(Arc::default()).0,
        };
        if !last.is_empty() && !distribution.take(last, Instant::now()) {
            tracing::error!(
                "the stored roots of the signer are unreadable; its current ones are distributed before they are used"
            );
            // Proxies have other roots than those that the signer names first.
            distribution.known.lock().has_begun = true;
        }
        distribution
    }

    /// Takes the signer's current roots (PEM); returns false if one of them is unreadable, or there
    /// are none or too many, which changes nothing. The first ones ever count as distributed:
    /// proxies that connect get them before any certificate of this process.
    pub(super) fn take(&self, pem: &Arc<str>, now: Instant) -> bool {
        let place = "the signer's roots";
        let Ok(roots) = certificates(pem, place) else {
            return false;
        };
        // What is published must be of CAs: one other would have all of them rejected.
        let is_usable = trust_bundle::split(pem, place).is_ok();
        if roots.is_empty() || roots.len() > MAX_ROOTS || !is_usable {
            return false;
        }

        let mut known = self.known.lock();
        let are_first = !std::mem::replace(&mut known.has_begun, true);
        let before = std::mem::take(&mut known.roots);
        let state = |certificate: CertificateDer<'static>| {
            let same = before.iter().find(|root| root.certificate == certificate);
            same.cloned().unwrap_or(Root {
                certificate,
                since: now,
                is_distributed: are_first,
            })
        };

        known.roots = roots.into_iter().map(state).collect();
        known.pem = pem.clone();
        self.publish(&known);
        true
    }

    /// A watch of the roots that proxies trust, in PEM.
    pub(super) fn distributed(&self) -> watch::Receiver<Arc<str>> {
        self.distributed.subscribe()
    }

    /// Sends the distributed roots, if they have changed.
    fn publish(&self, known: &Known) {
        let distributed = known.roots.iter().filter(|root| root.is_distributed);
        let text: String = distributed
            .map(|root| pem::encode(&root.certificate))
            .collect();
        send_if_changed(&self.distributed, text.into());
    }

    /// The roots in PEM; empty until they are known.
    pub(super) fn pem(&self) -> Arc<str> {
        self.known.lock().pem.clone()
    }

    /// Since when the newest root is being distributed; `None` if none is.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        let known = self.known.lock();
        let waiting = known.roots.iter().filter(|root| !root.is_distributed);
        waiting.map(|root| root.since).max()
    }

    /// The roots in PEM, in an order that does not depend on the signer's text.
    pub(super) fn sorted_pem(&self) -> String {
        let known = self.known.lock();
        let roots: BTreeSet<&[u8]> = known.roots.iter().map(|root| &*root.certificate).collect();
        roots.into_iter().map(pem::encode).collect()
    }

    /// Marks roots that are due as distributed. `missing` are the proxies that lack one of `pem`, of
    /// all replicas.
    pub(super) fn mark_distributed(&self, pem: &Arc<str>, missing: Vec<Missing>, now: Instant) {
        let mut known = self.known.lock();
        let is_waiting = known.roots.iter().any(|root| !root.is_distributed);
        if known.pem != *pem || !is_waiting {
            return;
        }
        let is_trusted = missing.is_empty();
        for root in &mut known.roots {
            let age = now.saturating_duration_since(root.since);
            let is_due = age >= self.rules.overlap && (is_trusted || age >= self.rules.wait);
            if root.is_distributed || !is_due {
                continue;
            }

            root.is_distributed = true;
            let root = subject(&root.certificate);
            if is_trusted {
                tracing::info!(root, "all connected proxies trust the signer's new root");
            } else {
                tracing::warn!(
                    root,
                    proxies = missing.len(),
                    "the signer's new root is used although connected proxies do not trust it yet"
                );
            }
        }
        known.missing = missing;
        self.publish(&known);
    }

    /// Checks that proxies trust a root.
    ///
    /// # Errors
    /// If it is new.
    pub(super) fn check(&self, root: &CertificateDer<'_>) -> Result<(), SignerError> {
        let known = self.known.lock();
        let mut distributed = known.roots.iter().filter(|root| root.is_distributed);
        if distributed.any(|known| known.certificate == *root) {
            Ok(())
        } else {
            Err(SignerError::Undistributed(subject(root)))
        }
    }

    /// The roots, and the proxies that lack one.
    pub(super) fn report(&self) -> (Vec<SignerRoot>, Vec<Missing>) {
        let known = self.known.lock();
        let roots = known.roots.iter().filter_map(|root| {
            let life = CertificateLife::of(&root.certificate)?;
            Some(SignerRoot {
                subject: life.subject,
                fingerprint: sha256_hex(&root.certificate),
                not_before: life.not_before,
                not_after: life.not_after,
                is_distributed: root.is_distributed,
            })
        });
        let missing = match known.roots.iter().all(|root| root.is_distributed) {
            true => Vec::new(),
            false => known.missing.clone(),
        };
        (roots.collect(), missing)
    }
}

/// The subject of a certificate, for logs.
fn subject(certificate: &CertificateDer<'_>) -> String {
    CertificateLife::of(certificate).map_or_else(String::new, |life| life.subject)
}

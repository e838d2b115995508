//! Follows the bundles of a SPIRE server: the mesh's own one, and those of its partners.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use navarch_proto::spire::api::server::bundle::v1::bundle_client::BundleClient;
use navarch_proto::spire::api::server::bundle::v1::{
    GetBundleRequest, ListFederatedBundlesRequest,
};
use navarch_proto::spire::api::types::{Bundle as SpireBundle, BundleMask};
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tonic::Status;
use tonic::transport::Channel;

use super::MAX_RESPONSE;
use crate::trust_bundle::{self, Fetched};
use navarch_base::error_chain::chain;
use navarch_net::backoff::Backoff;
use navarch_net::watched::send_if_changed;
use navarch_pki::pem;

/// Interval of asking for bundles, unless the server hints at a shorter one.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The shortest interval of asking for bundles.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Delays between attempts to ask for bundles.
const RETRY_DELAYS: Backoff =
    Backoff::jittered(Duration::from_millis(500), Duration::from_secs(30));
/// Timeout of asking for bundles.
const BUNDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Federated bundles of a page.
const PAGE_SIZE: i32 = 100;
/// The number of pages that are read.
const MAX_PAGES: usize = 20;
/// The beginning of the names of federated bundles among fetched ones.
const FEDERATED: &str = "spire:";

/// The bundles of a SPIRE server, which it follows.
pub(super) struct Bundles {
    pub(super) channel: watch::Receiver<Option<Channel>>,
    pub(super) trust_domain: String,
    pub(super) federates_with: BTreeSet<String>,
    /// The roots in PEM, tainted ones as well; `None` if they are pinned.
    pub(super) roots: Option<watch::Sender<Arc<str>>>,
    /// The roots in which no new certificate may end.
    pub(super) tainted: watch::Sender<Arc<[CertificateDer<'static>]>>,
    pub(super) federated: watch::Sender<Fetched>,
    /// What was wrong with the federated bundles at the last answer.
    pub(super) problems: FederationProblems,
}

/// What is wrong with the federated bundles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FederationProblems {
    /// Trust domains of unusable bundles, and the reason.
    pub(super) unusable: BTreeMap<String, String>,
    /// Trust domains that the server has no bundle of.
    pub(super) missing: BTreeSet<String>,
    /// Whether the server has more pages than are read.
    pub(super) is_cut: bool,
}

/// Why a bundle is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpireBundleError {
    /// The server did not answer.
    #[error("failed to ask for bundles")]
    Call(#[source] Box<Status>),
    /// The server did not answer in time.
    #[error("the server did not return its bundles within {BUNDLE_TIMEOUT:?}")]
    TimedOut,
    /// The server is another mesh's.
    #[error("the server's trust domain is {0}, not that of the mesh")]
    TrustDomain(String),
    /// The bundle is empty.
    #[error("the bundle of {0} has no root")]
    NoRoot(String),
    /// A root is invalid.
    #[error(transparent)]
    Invalid(#[from] trust_bundle::TrustError),
}

impl Bundles {
    /// Asks for the bundles regularly; does not return.
    pub(super) async fn follow(mut self) {
        let mut delays = RETRY_DELAYS;
        loop {
            let channel = self.channel.borrow_and_update().clone();
            let Some(channel) = channel else {
                if self.channel.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                continue;
            };

            let asked = tokio::time::timeout(BUNDLE_TIMEOUT, self.ask(channel)).await;
            let wait = match asked.unwrap_or(Err(SpireBundleError::TimedOut)) {
                Ok(hint) => {
                    delays.reset();
                    hint.clamp(MIN_POLL_INTERVAL, POLL_INTERVAL)
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "failed to read SPIRE's bundles; the last ones stay in use"
                    );
                    delays.next_delay()
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Asks for the bundles once. Returns the server's hint when to ask again.
    pub(super) async fn ask(&mut self, channel: Channel) -> Result<Duration, SpireBundleError> {
        let mut client = BundleClient::new(channel).max_decoding_message_size(MAX_RESPONSE);
        let mask = BundleMask {
            x509_authorities: true,
            refresh_hint: true,
            sequence_number: true,
            ..BundleMask::default()
        };
        let question = GetBundleRequest {
            output_mask: Some(mask),
        };
        let own = client.get_bundle(question).await.map_err(failed)?;
        let own = own.into_inner();
        if own.trust_domain != self.trust_domain {
            return Err(SpireBundleError::TrustDomain(own.trust_domain));
        }

        let roots: String = roots_of(&own)?.iter().map(|root| &**root).collect();
        send_if_changed(&self.tainted, tainted_of(&own));
        if let Some(sender) = &self.roots {
            send_if_changed(sender, roots.into());
        }

        if !self.federates_with.is_empty() {
            self.ask_federated(&mut client, &mask).await?;
        }

        let hint = u64::try_from(own.refresh_hint).unwrap_or_default();
        Ok(match hint {
            0 => POLL_INTERVAL,
            seconds => Duration::from_secs(seconds),
        })
    }

    /// Asks for the federated bundles that proxies trust, and publishes them. One that is unusable
    /// stays as it was: a partner must not affect the mesh or another partner.
    async fn ask_federated(
        &mut self,
        client: &mut BundleClient<Channel>,
        mask: &BundleMask,
    ) -> Result<(), SpireBundleError> {
        let mut listed = BTreeMap::new();
        let is_cut = self.list_federated(client, mask, &mut listed).await?;

        let last = self.federated.borrow().clone();
        let mut found = Fetched::new();
        let mut problems = FederationProblems {
            is_cut,
            ..FederationProblems::default()
        };
        for domain in &self.federates_with {
            let usable = listed.get(domain).map(roots_of);
            let name = format!("{FEDERATED}{domain}");
            let keeps_last = match &usable {
                Some(Ok(_)) => false,
                Some(Err(_)) => true,
                // It may be on a page that was not read.
                None => is_cut,
            };
            if keeps_last && let Some(roots) = last.get(&name) {
                found.insert(name.clone(), roots.clone());
            }

            match usable {
                Some(Ok(roots)) => {
                    found.insert(name, roots.into());
                }
                Some(Err(error)) => {
                    problems.unusable.insert(domain.clone(), chain(&error));
                }
                None => {
                    problems.missing.insert(domain.clone());
                }
            }
        }

        send_if_changed(&self.federated, found);
        if problems != self.problems {
            problems.log();
            self.problems = problems;
        }
        Ok(())
    }

    /// Reads the pages of federated bundles, and keeps those that proxies trust. Returns whether
    /// there are more pages.
    async fn list_federated(
        &self,
        client: &mut BundleClient<Channel>,
        mask: &BundleMask,
        listed: &mut BTreeMap<String, SpireBundle>,
    ) -> Result<bool, SpireBundleError> {
        let mut page_token = String::new();
        for _ in 0..MAX_PAGES {
            let question = ListFederatedBundlesRequest {
                output_mask: Some(*mask),
                page_size: PAGE_SIZE,
                page_token,
            };
            let answer = client.list_federated_bundles(question).await;
            let page = answer.map_err(failed)?.into_inner();
            for bundle in page.bundles {
                if self.federates_with.contains(&bundle.trust_domain) {
                    listed.insert(bundle.trust_domain.clone(), bundle);
                }
            }

            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(false);
            }
        }

        Ok(true)
    }
}

impl FederationProblems {
    /// Logs each problem with the names of the trust domains.
    fn log(&self) {
        for (trust_domain, problem) in &self.unusable {
            tracing::warn!(
                trust_domain,
                problem,
                "SPIRE's bundle of a partner cannot be used; its last one stays in use"
            );
        }
        if !self.missing.is_empty() {
            tracing::warn!(
                trust_domains = ?self.missing,
                "NAVARCH_SPIRE_FEDERATES_WITH names trust domains that SPIRE has no bundle of"
            );
        }
        if self.is_cut {
            tracing::warn!(
                read = MAX_PAGES,
                page_size = PAGE_SIZE,
                "SPIRE has more federated bundles than are read"
            );
        }
    }
}

/// The error of a call.
fn failed(status: Status) -> SpireBundleError {
    SpireBundleError::Call(Box::new(status))
}

/// The roots of a bundle, each in PEM. Tainted ones are among them: certificates that end in them
/// stay valid until SPIRE revokes the root, which removes it from the bundle.
fn roots_of(bundle: &SpireBundle) -> Result<Vec<Arc<str>>, SpireBundleError> {
    let authorities = bundle.x509_authorities.iter();
    let roots: String = authorities
        .map(|authority| pem::encode(&authority.asn1))
        .collect();
    if roots.is_empty() {
        return Err(SpireBundleError::NoRoot(bundle.trust_domain.clone()));
    }

    let place = format!("the bundle of {}", bundle.trust_domain);
    Ok(trust_bundle::split(&roots, &place)?)
}

/// The tainted roots of a bundle.
fn tainted_of(bundle: &SpireBundle) -> Arc<[CertificateDer<'static>]> {
    let authorities = bundle.x509_authorities.iter();
    authorities
        .filter(|authority| authority.tainted)
        .map(|authority| CertificateDer::from(authority.asn1.to_vec()))
        .collect()
}

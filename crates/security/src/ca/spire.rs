//! A SPIRE server signs (`EXTERNAL_CA=NAVARCH_RA_SPIRE`): `MintX509SVID` of its API, as an
//! administrator.
//!
//! Over the server's own Unix socket, which is for administrators, or over TCP with mutual TLS by
//! the control plane's SVID, which the agent of its node hands out and whose entry has `admin`.
//! The server's bundle is asked for regularly: SPIRE publishes a root long before it signs.

#[cfg(test)]
mod tests;
mod tls;
mod workload;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use navarch_proto::spire::api::server::bundle::v1::bundle_client::BundleClient;
use navarch_proto::spire::api::server::bundle::v1::{
    GetBundleRequest, ListFederatedBundlesRequest,
};
use navarch_proto::spire::api::server::svid::v1::MintX509svidRequest;
use navarch_proto::spire::api::server::svid::v1::svid_client::SvidClient;
use navarch_proto::spire::api::types::{Bundle as SpireBundle, BundleMask};
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tonic::Status;
use tonic::transport::Channel;

use super::signer::{CheckedRequest, RootsSource, SignedChain, Signer, SignerError, call_error};
use crate::Clock;
use crate::trust_bundle::{self, Fetched};
use navarch_net::backoff::Backoff;
use navarch_net::grpc_target::GrpcTarget;
use navarch_net::unix_channel::UnixTarget;
use navarch_net::watched::send_if_changed;
use navarch_pki::pem;

/// Maximum size of a response: a chain, or all bundles of a page.
const MAX_RESPONSE: usize = 4 << 20;
/// Interval of asking for bundles, unless the server hints at a shorter one.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The shortest interval of asking for bundles.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Delays between attempts to ask for bundles.
const RETRY_DELAYS: Backoff =
    Backoff::jittered(Duration::from_millis(500), Duration::from_secs(30));
/// Timeout of asking for bundles.
const BUNDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Federated bundles of a page, and the number of pages that are read.
const PAGE: (i32, usize) = (100, 20);
/// The beginning of the names of federated bundles among fetched ones.
const FEDERATED: &str = "spire:";

/// Where the SPIRE server is, and what is taken from it.
#[derive(Clone, Debug)]
pub struct SpireConfig {
    /// `NAVARCH_SPIRE_SERVER`.
    pub server: SpireServer,
    /// `NAVARCH_SPIRE_FEDERATES_WITH`: trust domains of federated bundles that proxies trust, too.
    pub federates_with: BTreeSet<String>,
}

/// The address of a SPIRE server.
#[derive(Clone, Debug)]
pub enum SpireServer {
    /// Its Unix socket.
    Socket(UnixTarget),
    /// Host and port, with the socket of the agent (`SPIFFE_ENDPOINT_SOCKET`).
    Address {
        /// Host and port.
        server: Box<GrpcTarget>,
        /// The Workload API.
        agent: UnixTarget,
        /// `NAVARCH_SPIRE_SERVER_ID`: `spiffe://<trust domain>/spire/server` if unset.
        server_id: Option<String>,
    },
}

/// The client of a SPIRE server.
#[derive(Clone)]
pub struct Spire {
    /// The current channel; another one after each renewal of the control plane's SVID. `None`
    /// until there is a first one.
    channel: watch::Receiver<Option<Channel>>,
    /// The roots in PEM.
    roots: watch::Receiver<Arc<str>>,
}

impl std::fmt::Debug for Spire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spire")
    }
}

impl Spire {
    /// The SPIRE server of a trust domain, a watch of the federated bundles, and the task that
    /// follows bundles and the control plane's SVID. With pinned roots, the server's own bundle is
    /// not used.
    pub fn connect(
        config: SpireConfig,
        trust_domain: &str,
        source: RootsSource,
        clock: Clock,
    ) -> (
        Self,
        watch::Receiver<Fetched>,
        impl Future<Output = ()> + Send + use<>,
    ) {
        let (channels, channel) = watch::channel(None);
        let pinned = match source {
            RootsSource::Pinned(roots) => Some(roots),
            RootsSource::Signer => None,
        };
        let (root_sender, fetched_roots) = watch::channel(Arc::default());
        let (federated_sender, federated) = watch::channel(Fetched::new());
        let bundles = Bundles {
            channel: channel.clone(),
            trust_domain: trust_domain.to_owned(),
            federates_with: config.federates_with,
            roots: root_sender,
            federated: federated_sender,
        };
        let spire = Self {
            channel,
            roots: pinned.unwrap_or(fetched_roots),
        };

        let trust_domain = trust_domain.to_owned();
        let follow = async move {
            let channels = async {
                match config.server {
                    SpireServer::Socket(socket) => {
                        channels.send_replace(Some(socket.channel()));
                        std::future::pending::<()>().await;
                    }
                    SpireServer::Address {
                        server,
                        agent,
                        server_id,
                    } => {
                        let server_id =
                            server_id.unwrap_or(format!("spiffe://{trust_domain}/spire/server"));
                        workload::follow(*server, agent, server_id, channels, clock).await;
                    }
                }
            };
            tokio::join!(channels, bundles.follow());
        };

        (spire, federated, follow)
    }
}

#[tonic::async_trait]
impl Signer for Spire {
    fn name(&self) -> &'static str {
        "spire"
    }

    async fn sign(&self, request: &CheckedRequest) -> Result<SignedChain, SignerError> {
        let channel = self.channel.borrow().clone();
        let channel =
            channel.ok_or_else(|| SignerError::Away("the agent has handed out no SVID".into()))?;
        let mut client = SvidClient::new(channel).max_decoding_message_size(MAX_RESPONSE);
        let message = MintX509svidRequest {
            csr: Bytes::copy_from_slice(request.der()),
            ttl: i32::try_from(request.lifetime().as_secs()).unwrap_or(i32::MAX),
        };

        let answer = client.mint_x509svid(message).await;
        let answer = answer.map_err(|status| call_error(&status))?.into_inner();
        let chain = answer.svid.unwrap_or_default().cert_chain;
        let roots = self.roots.borrow().clone();
        Ok(SignedChain {
            certificates: chain
                .into_iter()
                .map(|der| CertificateDer::from(der.to_vec()))
                .collect(),
            roots,
        })
    }

    fn roots(&self) -> Option<watch::Receiver<Arc<str>>> {
        Some(self.roots.clone())
    }
}

/// Follows bundles.
struct Bundles {
    channel: watch::Receiver<Option<Channel>>,
    trust_domain: String,
    federates_with: BTreeSet<String>,
    roots: watch::Sender<Arc<str>>,
    federated: watch::Sender<Fetched>,
}

/// Why a bundle is not used.
#[derive(Debug, thiserror::Error)]
enum SpireBundleError {
    /// The server did not answer.
    #[error("failed to ask for bundles")]
    Call(#[source] Box<Status>),
    /// The server did not answer in time.
    #[error("the server did not return its bundles within {BUNDLE_TIMEOUT:?}")]
    Silent,
    /// The server is another mesh's.
    #[error("the server's trust domain is {0}, not that of the mesh")]
    TrustDomain(String),
    /// The bundle has no usable root.
    #[error("the bundle of {0} has no root that is not tainted")]
    NoRoot(String),
    /// A root is invalid.
    #[error(transparent)]
    Invalid(#[from] trust_bundle::TrustError),
}

impl Bundles {
    /// Asks for the bundles regularly; does not return.
    async fn follow(mut self) {
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
            let wait = match asked.unwrap_or(Err(SpireBundleError::Silent)) {
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
    async fn ask(&self, channel: Channel) -> Result<Duration, SpireBundleError> {
        let mut client = BundleClient::new(channel).max_decoding_message_size(MAX_RESPONSE);
        let mask = BundleMask {
            x509_authorities: true,
            refresh_hint: true,
            sequence_number: true,
            ..BundleMask::default()
        };
        let failed = |status: Status| SpireBundleError::Call(Box::new(status));
        let question = GetBundleRequest {
            output_mask: Some(mask),
        };
        let own = client.get_bundle(question).await.map_err(failed)?;
        let own = own.into_inner();
        if own.trust_domain != self.trust_domain {
            return Err(SpireBundleError::TrustDomain(own.trust_domain));
        }

        let roots: String = roots_of(&own)?.iter().map(|root| &**root).collect();
        send_if_changed(&self.roots, roots.into());

        if !self.federates_with.is_empty() {
            let federated = self.ask_federated(&mut client, &mask).await?;
            send_if_changed(&self.federated, federated);
        }

        let hint = u64::try_from(own.refresh_hint).unwrap_or_default();
        Ok(match hint {
            0 => POLL_INTERVAL,
            seconds => Duration::from_secs(seconds),
        })
    }

    /// Asks for the federated bundles that proxies trust.
    async fn ask_federated(
        &self,
        client: &mut BundleClient<Channel>,
        mask: &BundleMask,
    ) -> Result<Fetched, SpireBundleError> {
        let mut found = Fetched::new();
        let mut page_token = String::new();

        for _ in 0..PAGE.1 {
            let question = ListFederatedBundlesRequest {
                output_mask: Some(*mask),
                page_size: PAGE.0,
                page_token,
            };
            let answer = client.list_federated_bundles(question).await;
            let page = answer
                .map_err(|status| SpireBundleError::Call(Box::new(status)))?
                .into_inner();

            for bundle in page.bundles {
                if self.federates_with.contains(&bundle.trust_domain) {
                    let name = format!("{FEDERATED}{}", bundle.trust_domain);
                    found.insert(name, roots_of(&bundle)?.into());
                }
            }

            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }

        Ok(found)
    }
}

/// The roots of a bundle, each in PEM. A tainted one is trusted no more.
fn roots_of(bundle: &SpireBundle) -> Result<Vec<Arc<str>>, SpireBundleError> {
    let authorities = bundle.x509_authorities.iter();
    let roots: String = authorities
        .filter(|authority| !authority.tainted)
        .map(|authority| pem::encode(&authority.asn1))
        .collect();
    if roots.is_empty() {
        return Err(SpireBundleError::NoRoot(bundle.trust_domain.clone()));
    }

    let place = format!("the bundle of {}", bundle.trust_domain);
    Ok(trust_bundle::split(&roots, &place)?)
}

//! A SPIRE server signs (`EXTERNAL_CA=NAVARCH_RA_SPIRE`): `MintX509SVID` of its API, as an
//! administrator.
//!
//! Over the server's own Unix socket, which is for administrators, or over TCP with mutual TLS by
//! the control plane's SVID, which the agent of its node hands out and whose entry has `admin`.
//! The server's bundle is asked for regularly: SPIRE publishes a root long before it signs.

mod bundles;
#[cfg(test)]
mod tests;
mod tls;
mod workload;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use navarch_proto::spire::api::server::svid::v1::MintX509svidRequest;
use navarch_proto::spire::api::server::svid::v1::svid_client::SvidClient;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tonic::transport::Channel;

use super::signer::{CheckedRequest, RootsSource, SignedChain, Signer, SignerError, call_error};
use crate::Clock;
use crate::trust_bundle::Fetched;
use bundles::{Bundles, FederationProblems};
use navarch_net::grpc_target::GrpcTarget;
use navarch_net::unix_channel::UnixTarget;

/// Maximum size of a response: a chain, or all bundles of a page.
const MAX_RESPONSE: usize = 4 << 20;

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
    /// On this machine, by the server's own socket: the caller is an administrator.
    Socket(UnixTarget),
    /// Host and port, with the socket of the agent (`SPIFFE_ENDPOINT_SOCKET`).
    Address {
        /// Host and port.
        server: Box<GrpcTarget>,
        /// The socket of the Workload API, which has the control plane's own SVID.
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
    /// In PEM, as the server or the file of pinned roots names them.
    roots: watch::Receiver<Arc<str>>,
    /// The roots in which no new certificate may end.
    tainted: watch::Receiver<Arc<[CertificateDer<'static>]>>,
}

impl std::fmt::Debug for Spire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spire")
    }
}

impl Spire {
    /// The SPIRE server of a trust domain, a watch of the federated bundles, and the task that
    /// follows bundles and the control plane's SVID. With pinned roots, the server's own bundle only
    /// says which of them are tainted.
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
        let (root_sender, roots) = source.channel();
        let (tainted_sender, tainted) = watch::channel(Arc::default());
        let (federated_sender, federated) = watch::channel(Fetched::new());
        let bundles = Bundles {
            channel: channel.clone(),
            trust_domain: trust_domain.to_owned(),
            federates_with: config.federates_with,
            roots: root_sender,
            tainted: tainted_sender,
            federated: federated_sender,
            problems: FederationProblems::default(),
        };
        let spire = Self {
            channel,
            roots,
            tainted,
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
        request.names_no_signer("SPIRE")?;
        let channel = self.channel.borrow().clone();
        let channel = channel
            .ok_or_else(|| SignerError::Unreachable("the agent has handed out no SVID".into()))?;
        let mut client = SvidClient::new(channel).max_decoding_message_size(MAX_RESPONSE);
        let message = MintX509svidRequest {
            csr: Bytes::copy_from_slice(request.der()),
            ttl: i32::try_from(request.lifetime().as_secs()).unwrap_or(i32::MAX),
        };

        let answer = client.mint_x509svid(message).await;
        let answer = answer.map_err(|status| call_error(&status))?.into_inner();
        let chain = answer.svid.unwrap_or_default().cert_chain;
        Ok(SignedChain {
            certificates: chain
                .into_iter()
                .map(|der| CertificateDer::from(der.to_vec()))
                .collect(),
            roots: self.roots.borrow().clone(),
            tainted: self.tainted.borrow().clone(),
        })
    }

    fn roots(&self) -> Option<watch::Receiver<Arc<str>>> {
        Some(self.roots.clone())
    }
}

//! A plugin signs (`EXTERNAL_CA=NAVARCH_RA_SOCKET`): a gRPC service over a Unix socket, such as the
//! front of a cloud's CA or of a hardware security module.
//!
//! The interface is `proto/navarch/signer/v1/signer.proto`.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use navarch_proto::navarch::signer::v1::signer_client::SignerClient;
use navarch_proto::navarch::signer::v1::{SignRequest, WatchRootsRequest};
use tokio::sync::watch;
use tonic::Status;
use tonic::transport::Channel;

use super::bundle::certificates;
use super::signer::{CheckedRequest, RootsSource, SignedChain, Signer, SignerError, call_error};
use navarch_net::backoff::Backoff;
use navarch_net::unix_channel::UnixTarget;
use navarch_net::watched::send_if_changed;

/// Maximum size of a response: a chain, or all roots.
const MAX_RESPONSE: usize = 512 << 10;
/// Delays between attempts to follow the roots.
const RETRY_DELAYS: Backoff =
    Backoff::jittered(Duration::from_millis(200), Duration::from_secs(15));

/// The client of a plugin.
#[derive(Clone, Debug)]
pub struct Plugin {
    client: SignerClient<Channel>,
    /// In PEM, as the plugin or the file of pinned roots names them.
    roots: watch::Receiver<Arc<str>>,
}

impl Plugin {
    /// The plugin behind a socket, and the task that follows its roots, unless they are pinned.
    pub fn connect(
        target: UnixTarget,
        source: RootsSource,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let client = SignerClient::new(target.channel()).max_decoding_message_size(MAX_RESPONSE);
        let (sender, roots) = source.channel();

        let follow = {
            let client = client.clone();
            async move {
                match sender {
                    Some(sender) => follow(client, sender).await,
                    None => std::future::pending().await,
                }
            }
        };
        (Self { client, roots }, follow)
    }
}

#[tonic::async_trait]
impl Signer for Plugin {
    fn name(&self) -> &'static str {
        "socket"
    }

    async fn sign(&self, request: &CheckedRequest) -> Result<SignedChain, SignerError> {
        let identity = request.identity();
        let message = SignRequest {
            csr_der: Bytes::copy_from_slice(request.der()),
            spiffe_id: identity.to_string(),
            seconds: u32::try_from(request.lifetime().as_secs()).unwrap_or(u32::MAX),
            namespace: identity.namespace.as_str().to_owned(),
            service_account: identity.service_account.as_str().to_owned(),
            signer: request.named_signer().to_owned(),
        };

        let answer = self.client.clone().sign(message).await;
        let answer = answer.map_err(|status| call_error(&status))?.into_inner();
        let certificates = certificates(&answer.chain_pem, "the plugin's chain")?;
        let roots = self.roots.borrow().clone();
        Ok(SignedChain {
            certificates,
            roots,
            tainted: Arc::default(),
        })
    }

    fn roots(&self) -> Option<watch::Receiver<Arc<str>>> {
        Some(self.roots.clone())
    }
}

/// Follows the roots of a plugin; does not return.
async fn follow(mut client: SignerClient<Channel>, sender: watch::Sender<Arc<str>>) {
    let mut delays = RETRY_DELAYS;
    loop {
        let ended = follow_stream(&mut client, &sender, &mut delays).await;
        let reason = ended.map_or_else(
            |status| call_error(&status).to_string(),
            |()| "the plugin ended the stream".to_owned(),
        );
        let delay = delays.next_delay();
        tracing::warn!(
            reason,
            ?delay,
            "the signer's roots are not followed; the last ones stay in use"
        );
        tokio::time::sleep(delay).await;
    }
}

/// Follows one stream of roots until it ends.
async fn follow_stream(
    client: &mut SignerClient<Channel>,
    sender: &watch::Sender<Arc<str>>,
    delays: &mut Backoff,
) -> Result<(), Status> {
    let mut stream = client.watch_roots(WatchRootsRequest {}).await?.into_inner();
    while let Some(roots) = stream.message().await? {
        delays.reset();
        send_if_changed(sender, roots.pem.into());
    }
    Ok(())
}

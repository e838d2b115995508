//! The secrets that a simulated Envoy has from its agent, over SDS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use navarch_proto::envoy::config::core::v3::DataSource;
use navarch_proto::envoy::config::core::v3::data_source::Specifier;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3 as tls;
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use parking_lot::Mutex;
use prost::Message as _;
use tls::secret::Type;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use crate::link::Link;
use crate::proxy::Protocol;
use crate::proxy::wire::{Call, SDS};
use crate::random::Random;
use crate::story::Story;
use crate::stream::{SimStream, connect};
use crate::tell;

/// The secrets that Envoy subscribes to.
const NAMES: [&str; 2] = ["default", "ROOTCA"];
const TYPE_URL: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// How long Envoy waits before it connects again.
const PAUSE: Duration = Duration::from_millis(500);

/// What Envoy holds. Clones are of one Envoy.
#[derive(Clone, Debug)]
pub(super) struct EnvoySecrets(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    held: Mutex<HeldSecrets>,
    restarts: Notify,
}

/// Secrets, in PEM.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldSecrets {
    /// The chain of the certificate.
    pub(super) chain: Option<Vec<u8>>,
    pub(super) roots: Option<Vec<u8>>,
}

/// The connections of Envoy to the SDS server of its agent.
pub(super) struct Connections {
    pub(super) name: String,
    pub(super) protocol: Protocol,
    pub(super) opened: mpsc::UnboundedSender<io::Result<SimStream>>,
    pub(super) random: Arc<Mutex<Random>>,
    pub(super) story: Story,
}

impl EnvoySecrets {
    /// An Envoy that holds nothing.
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            held: Mutex::default(),
            restarts: Notify::new(),
        }))
    }

    /// What it holds.
    pub(super) fn held(&self) -> HeldSecrets {
        self.0.held.lock().clone()
    }

    /// It forgets all, and connects again.
    pub(super) fn restart(&self) {
        *self.0.held.lock() = HeldSecrets::default();
        self.0.restarts.notify_one();
    }

    /// Keeps its subscriptions until the agent is gone.
    pub(super) async fn run(self, connections: Connections) {
        while !connections.opened.is_closed() {
            let ended = tokio::select! {
                biased;
                () = self.0.restarts.notified() => Ok(()),
                ended = self.converse(&connections) => ended,
            };
            let Connections { name, story, .. } = &connections;
            let reason = ended.map_or_else(|error| error.to_string(), |()| "closed".to_owned());
            tell!(story, name, "Envoy lost its stream of secrets: {reason}");
            sleep(PAUSE).await;
        }
    }

    /// Talks on one stream until it ends.
    async fn converse(&self, connections: &Connections) -> io::Result<()> {
        let link = Link::default();
        let (envoys, agents) = connect(&link, &connections.random);
        let closed = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        connections.opened.send(Ok(agents)).map_err(closed)?;

        let names = NAMES.map(str::to_owned).to_vec();
        match connections.protocol {
            Protocol::Delta => {
                let mut call = Call::open(envoys, SDS, "DeltaSecrets").await?;
                call.send(&DeltaDiscoveryRequest {
                    type_url: TYPE_URL.to_owned(),
                    resource_names_subscribe: names,
                    ..DeltaDiscoveryRequest::default()
                })?;
                while let Some(response) = call.next::<DeltaDiscoveryResponse>().await? {
                    let resources = response.resources.into_iter();
                    let secrets = resources.filter_map(|resource| resource.resource);
                    secrets.for_each(|secret| self.take(&secret.value, connections));
                    call.send(&DeltaDiscoveryRequest {
                        type_url: TYPE_URL.to_owned(),
                        response_nonce: response.nonce,
                        ..DeltaDiscoveryRequest::default()
                    })?;
                }
            }
            Protocol::State => {
                let mut call = Call::open(envoys, SDS, "StreamSecrets").await?;
                let mut request = DiscoveryRequest {
                    type_url: TYPE_URL.to_owned(),
                    resource_names: names,
                    ..DiscoveryRequest::default()
                };
                call.send(&request)?;
                while let Some(response) = call.next::<DiscoveryResponse>().await? {
                    for secret in &response.resources {
                        self.take(&secret.value, connections);
                    }
                    request.version_info = response.version_info;
                    request.response_nonce = response.nonce;
                    call.send(&request)?;
                }
            }
        }
        Ok(())
    }

    fn take(&self, secret: &[u8], connections: &Connections) {
        let Connections { name, story, .. } = connections;
        let inline = |source: Option<DataSource>| match source?.specifier? {
            Specifier::InlineBytes(bytes) => Some(bytes.to_vec()),
            Specifier::Filename(_)
            | Specifier::InlineString(_)
            | Specifier::EnvironmentVariable(_) => None,
        };
        let secret = tls::Secret::decode(secret).ok();
        let mut held = self.0.held.lock();
        match secret.and_then(|secret| secret.r#type) {
            Some(Type::TlsCertificate(certificate)) => {
                if inline(certificate.private_key).is_none() {
                    story.violated("a certificate comes with its key", name);
                }
                held.chain = inline(certificate.certificate_chain);
                tell!(story, name, "Envoy has a new certificate");
            }
            Some(Type::ValidationContext(context)) => {
                held.roots = inline(context.trusted_ca);
                tell!(story, name, "Envoy has other roots");
            }
            Some(Type::SessionTicketKeys(_) | Type::GenericSecret(_)) | None => {
                story.violated("secrets are certificates and roots", name);
            }
        }
    }
}

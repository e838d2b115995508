//! The ports that need a certificate, and therefore the first sync of the configuration.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use super::boot::Boot;
use super::http::OpenHttpPort;
use super::ports::OpenPort;
use super::publishing::Published;
use super::remotes::{HookRoots, WrittenRemotes};
use super::{Config, controllers};
use crate::admin::Certificates;
use navarch_push::worker::PushHandle;
use navarch_security::authenticate::Authenticator;
use navarch_security::ca::keeper::RotationCommands;
use navarch_security::ca::{self, CallMetrics};
use navarch_webhook::registration::Announcements;
use navarch_webhook::{self, Webhooks};
use navarch_xds::Ads;

pub(super) struct TlsPorts {
    /// xDS and certificates.
    pub(super) secure: Option<OpenPort>,
    /// Webhooks.
    pub(super) https: Option<OpenHttpPort>,
    pub(super) authenticator: Arc<Authenticator>,
    pub(super) ads: Ads,
    /// The client of the Kubernetes API, if it is used.
    pub(super) client: Option<kube::Client>,
    pub(super) webhooks: Arc<Webhooks>,
    pub(super) ca_metrics: ca::Metrics,
    /// Metrics of the CA's calls.
    pub(super) call_metrics: CallMetrics,
    /// Set to the commands of root rotation, once there is a CA.
    pub(super) commands: Arc<OnceLock<RotationCommands>>,
    /// Set to the certificates of the CA and of ports, once they are served.
    pub(super) certificates: Arc<OnceLock<Certificates>>,
    /// Receives the configuration for remote clusters, once it is known.
    pub(super) to_remotes: watch::Sender<Option<WrittenRemotes>>,
}

impl TlsPorts {
    /// Serves the ports until shutdown, and starts the controllers that write to the cluster.
    pub(super) async fn serve(
        self,
        config: &Config,
        push: &PushHandle,
        boot: &mut Boot,
    ) -> anyhow::Result<()> {
        let client = self.client.clone();
        let connections = self.ads.connections();
        let injector = self.webhooks.injector();
        let mut written = WrittenRemotes::default();
        let to_remotes = self.to_remotes.clone();

        if self.secure.is_some() || self.https.is_some() {
            // The mesh config contains the trust domain, on which every signed identity and the
            // name of a new root depend. Before it is known, no certificate may be issued; istiod
            // also serves its ports after the first sync.
            tokio::select! {
                synced = push.wait_synced() => synced?,
                error = boot.unexpected_end() => return Err(error),
            }
            written = self.open(config, push, boot).await?;
        }

        to_remotes.send_replace(Some(written.clone()));
        controllers::start(
            config,
            client,
            written.published,
            push,
            connections,
            injector,
            boot,
        );

        Ok(())
    }

    /// Starts the CA and serves the ports. Returns the CA's published roots.
    async fn open(
        self,
        config: &Config,
        push: &PushHandle,
        boot: &mut Boot,
    ) -> anyhow::Result<WrittenRemotes> {
        let namespace = &config.settings.system_namespace;
        let replica = &config.writing.identity;
        let roots = &config.writing.published.roots;
        let names = super::security::Names {
            namespace,
            replica,
            roots,
        };

        let client = self.client.as_ref();
        let security = super::security::start(
            &config.security,
            names,
            client,
            push,
            self.ads.connections(),
            self.ca_metrics,
            boot,
        )
        .await?;
        let ends = jiff::Timestamp::try_from(security.authority.get().not_after())?;
        if config.security.signs {
            tracing::info!(%ends, "CA ready");
        }

        let roots = security.tls.roots();
        let serving = security.tls.clone();
        let authority = config.security.signs.then(|| security.authority.clone());
        let announcements = Announcements::default();
        let webhooks = self.https.is_some().then(|| HookRoots {
            roots: roots.clone(),
            announcements: announcements.clone(),
            metrics: self.webhooks.metrics(),
        });

        if let Some(open) = self.https {
            let port = super::webhooks::WebhookPort {
                open,
                tls: security.tls.clone(),
                roots: roots.clone(),
                announcements,
                client: self.client.as_ref(),
                config: &config.webhooks,
                namespace: namespace.as_str(),
                routes: navarch_webhook::routes(self.webhooks.clone())
                    .merge(self.webhooks.readiness()),
                push,
                metrics: self.webhooks.metrics(),
            };
            port.start(boot);
        }

        if let Some((listener, port)) = self.secure {
            let port = super::secure::SecurePort {
                listener,
                port,
                tls: security.tls,
                authenticator: self.authenticator,
                policy: config.security.streams.policy(),
                ads: self.ads,
                certificates: security.certificates,
                call_metrics: self.call_metrics,
                signs: config.security.signs,
                stop: boot.stop.clone(),
            };
            boot.spawn("secure xds", port.serve());
        }

        // They are set only here.
        let _ = self.commands.set(security.commands);
        let _ = self.certificates.set(Certificates {
            authority,
            serving,
            signers: security.signers,
        });

        let revocations = config
            .security
            .publishes_revocations
            .then(|| security.authority.revocations());

        let published = config
            .security
            .signs
            .then_some(Published { roots, revocations });

        Ok(WrittenRemotes {
            published,
            webhooks,
        })
    }
}

//! The control plane as a part of another program, such as a simulation: with the caller's client of
//! the API server, without ports, signals and a push thread.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::boot::{Boot, until};
use super::parts::Parts;
use super::publishing::Published;
use super::remotes::WrittenRemotes;
use super::security::{self, Names};
use super::sources::Plan;
use super::{Config, controllers, derive_settings, until_terminated};
use navarch_push::worker::PushHandle;
use navarch_quarantine::QuarantineControl;
use navarch_rollout::RolloutControl;
use navarch_security::authenticate::Authenticator;
use navarch_security::ca::keeper::RotationCommands;
use navarch_security::ca::service::CertificateService;
use navarch_xds::Ads;

/// A control plane that reads one Kubernetes API and serves connections of the caller.
///
/// Everything between the two is that of [`super::run`]: sources, engine, xDS, rollouts,
/// quarantine, the CA and all controllers.
#[derive(Debug)]
pub struct Embedded {
    /// Settings from flags and environment. Addresses of ports and sources are not used.
    pub config: Config,
    /// The cancellation that stops it as SIGTERM does.
    pub stop: CancellationToken,
    /// Receives the parts as soon as xDS can be served; it is not ready before its first sync.
    pub started: oneshot::Sender<EmbeddedParts>,
    /// Receives the parts of the CA, which starts after the first sync.
    pub signing: oneshot::Sender<SigningParts>,
}

/// The parts of a control plane that its caller uses.
#[derive(Clone, Debug)]
pub struct EmbeddedParts {
    /// Computes resources, and pushes them to subscribers.
    pub push: PushHandle,
    /// The xDS service.
    pub ads: Ads,
    /// Authenticates clients.
    pub authenticator: Arc<Authenticator>,
    /// Commands about rollouts.
    pub rollouts: RolloutControl,
    /// Commands about quarantines.
    pub quarantine: QuarantineControl,
}

/// The parts of its CA.
#[derive(Debug)]
pub struct SigningParts {
    /// Commands that rotate the root.
    pub rotation: RotationCommands,
    /// The service that signs certificates of workloads.
    pub certificates: CertificateService,
}

impl Embedded {
    /// Runs until `stop` is cancelled.
    ///
    /// # Errors
    /// If the CA cannot start, or a task fails.
    pub async fn run(self, client: kube::Client) -> anyhow::Result<()> {
        let Self {
            mut config,
            stop,
            started,
            signing,
        } = self;
        let mut boot = Boot::new();
        boot.pushes_in_task = true;

        let plan = Plan::of_client(client);
        derive_settings(&mut config, &plan);
        let parts = Parts::start(&config, plan, &mut boot).await?;

        // The caller may only be interested in what is written to the API server.
        drop(started.send(EmbeddedParts {
            push: parts.engine.push.clone(),
            ads: parts.xds.ads.clone(),
            authenticator: parts.xds.authenticator.clone(),
            rollouts: parts.xds.rollouts.clone(),
            quarantine: parts.xds.quarantine.clone(),
        }));

        if let Some(open) = until(&stop, open(&config, &parts, &mut boot)).await {
            drop(signing.send(open?));
        }

        let ended = until_terminated(&stop, &mut boot).await;
        boot.shut_down(config.shutdown).await;
        ended
    }
}

/// Starts what [`super::tls_ports`] starts after the first sync, without the ports.
async fn open(config: &Config, parts: &Parts, boot: &mut Boot) -> anyhow::Result<SigningParts> {
    let push = &parts.engine.push;
    tokio::select! {
        synced = push.wait_synced() => synced?,
        error = boot.unexpected_end() => return Err(error),
    }

    let client = parts.client.clone().context("no Kubernetes client")?;
    let names = Names {
        namespace: &config.settings.system_namespace,
        replica: &config.writing.identity,
        roots: &config.writing.published.roots,
    };
    let connections = parts.xds.ads.connections();
    let security = security::start(
        &config.security,
        names,
        Some(&client),
        push,
        connections.clone(),
        parts.ca_metrics.clone(),
        boot,
    )
    .await?;

    let published = config.security.signs.then(|| Published {
        roots: security.tls.roots(),
        revocations: config
            .security
            .publishes_revocations
            .then(|| security.authority.revocations()),
    });
    let written = WrittenRemotes {
        published: published.clone(),
        ..WrittenRemotes::default()
    };
    parts.to_remotes.send_replace(Some(written));

    controllers::start(
        config,
        Some(client),
        published,
        push,
        connections,
        parts.webhooks.injector(),
        boot,
    );

    Ok(SigningParts {
        rotation: security.commands,
        certificates: security.certificates,
    })
}

//! The xDS server, and the controllers that decide which versions of objects it serves.

use std::sync::Arc;

use super::boot::Boot;
use super::engine::Engine;
use super::{
    Config, learned_scopes, quarantine, rollout, secret_access, security, traces, workloads,
};
use navarch_net::budget::Budget;
use navarch_quarantine::QuarantineControl;
use navarch_remotes::ManagedClusters;
use navarch_rollout::{RolloutControl, StoredRollouts};
use navarch_security::authenticate::Authenticator;
use navarch_security::remote_servers::RemoteServers;
use navarch_xds::metrics::Metrics;
use navarch_xds::{Ads, AdsParts, NackQueue, Served};

/// The xDS server, which no port serves yet.
pub(super) struct Xds {
    pub(super) ads: Ads,
    /// Authenticates the clients of all ports.
    pub(super) authenticator: Arc<Authenticator>,
    pub(super) rollouts: RolloutControl,
    pub(super) quarantine: QuarantineControl,
}

/// What is known of remote clusters.
#[derive(Clone, Copy)]
pub(super) struct RemoteParts<'a> {
    /// Their API servers, which review tokens.
    pub(super) servers: &'a RemoteServers,
    /// Says which of the remote clusters are synced.
    pub(super) clusters: &'a ManagedClusters,
}

impl Xds {
    /// Starts the server and the controllers. Must be called before objects are read: rollouts and
    /// quarantines decide about their first versions, too. Returns what is to be restored when objects
    /// are read.
    pub(super) async fn start(
        config: &Config,
        client: Option<&kube::Client>,
        remote: RemoteParts<'_>,
        engine: &Engine,
        boot: &mut Boot,
    ) -> anyhow::Result<(Self, StoredRollouts)> {
        let push = &engine.push;
        let nacks = NackQueue::default();
        let servers = remote.servers;
        let ads = ads(config, client, servers, engine, nacks.clone(), boot);

        // Each waits for an API server that does not respond.
        let (scopes, rollouts) = tokio::join!(
            learned_scopes::restore(client, config, push, remote.clusters),
            rollout::start(client, config, push, ads.connections(), boot),
        );
        learned_scopes::start(scopes?, boot);
        let (rollouts, stored) = rollouts?;
        let parts = quarantine::Parts {
            client,
            config,
            push,
            connections: ads.connections(),
            nacks,
        };
        let quarantine = quarantine::start(parts, boot).await?;
        let authenticator =
            security::authenticator(&config.security, client, servers.clone(), push)?;

        let xds = Self {
            ads,
            authenticator,
            rollouts,
            quarantine,
        };
        Ok((xds, stored))
    }
}

/// The aggregated discovery service, with its checks and listeners. It sends the NACKs of
/// clients to `nacks`.
fn ads(
    config: &Config,
    client: Option<&kube::Client>,
    servers: &RemoteServers,
    engine: &Engine,
    nacks: NackQueue,
    boot: &mut Boot,
) -> Ads {
    let push = &engine.push;
    let metrics = boot.register(Metrics::register);
    let access = client.map(|client| secret_access::start(client, servers.clone(), push, boot));
    let workloads = workloads::start(config, client, push, boot);

    let ads = Ads::new(AdsParts {
        limits: config.limits.clone(),
        encodings: config.encodings,
        memory: Budget::new(config.client_memory),
        rejections: boot.rejections.clone(),
        access,
        workloads: Some(workloads),
        nacks: config.quarantines.then_some(nacks),
        observer: engine.recording.observer(),
        served: Served::under(&config.settings),
        objects_for_all: config.objects_for_all,
        ..AdsParts::new(
            push.clone(),
            metrics,
            jiff::Timestamp::now(),
            boot.stop.clone(),
        )
    });

    traces::start(config, push, ads.connections(), boot);
    ads
}

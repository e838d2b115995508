//! The parts of the control plane that need no open port, in the order of their start.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::boot::Boot;
use super::engine::Engine;
use super::remotes::WrittenRemotes;
use super::sources::{Plan, SourceMetrics, Starter};
use super::xds::{RemoteParts, Xds};
use super::{Config, gateway_hosts, memory, pages, remotes, security, sources, webhooks};
use crate::admin::{ApiServerHealth, Plans};
use navarch_remotes::ManagedClusters;
use navarch_security::ca::{self, CallMetrics};
use navarch_security::remote_servers::RemoteServers;
use navarch_webhook::Webhooks;

/// The started parts, which ports serve, and pages show.
pub(super) struct Parts {
    /// The client of the Kubernetes API, if it is used.
    pub(super) client: Option<kube::Client>,
    /// The checks of its API server.
    pub(super) api_server: Option<ApiServerHealth>,
    pub(super) engine: Engine,
    pub(super) xds: Xds,
    /// Remote clusters that are read.
    pub(super) clusters: ManagedClusters,
    /// Receives the configuration for remote clusters, once it is known.
    pub(super) to_remotes: watch::Sender<Option<WrittenRemotes>>,
    /// Notified to read files again.
    pub(super) reload: Arc<Notify>,
    pub(super) webhooks: Arc<Webhooks>,
    /// Limits concurrent plans.
    pub(super) plans: Plans,
    pub(super) ca_metrics: ca::Metrics,
    /// Metrics of the CA's calls.
    pub(super) call_metrics: CallMetrics,
}

impl Parts {
    /// Starts the parts: first those that must see all objects, then the sources of objects.
    pub(super) async fn start(
        config: &Config,
        plan: Plan,
        boot: &mut Boot,
    ) -> anyhow::Result<Self> {
        let client = plan.client.clone();
        let api_server = pages::look(config, &plan);

        let engine = Engine::start(config, boot)?;
        let push = &engine.push;
        let metrics = PartMetrics::register(boot);
        let servers = RemoteServers::new(config.settings.clusters.aliases.clone());
        let clusters = ManagedClusters::default();
        let remote = RemoteParts {
            servers: &servers,
            clusters: &clusters,
        };
        let (xds, rollouts) = Xds::start(config, client.as_ref(), remote, &engine, boot).await?;

        let shown = clusters.clone();
        let remotes = remotes::follow(config, client.as_ref(), servers, shown, push, boot);
        let reload = Arc::new(Notify::new());
        let starter = Starter {
            config,
            metrics: metrics.sources,
            reload: &reload,
            boot: &mut *boot,
        };
        starter.start(plan, remotes.synced, push, rollouts)?;
        gateway_hosts::start(config.resolves_gateways, push, boot);
        memory::release_free_memory(boot);

        let plans = Plans::default();
        let webhooks = webhooks::start(
            config,
            client.as_ref(),
            push,
            xds.ads.connections(),
            &plans,
            metrics.webhooks,
            boot,
        );

        Ok(Self {
            client,
            api_server,
            engine,
            xds,
            clusters,
            to_remotes: remotes.written,
            reload,
            webhooks,
            plans,
            ca_metrics: metrics.ca,
            call_metrics: metrics.calls,
        })
    }
}

/// The metrics of all parts that start after the push thread. They are registered at once, as the
/// certificate authority starts when metrics are already served.
struct PartMetrics {
    sources: SourceMetrics,
    webhooks: navarch_webhook::Metrics,
    ca: ca::Metrics,
    calls: CallMetrics,
}

impl PartMetrics {
    fn register(boot: &mut Boot) -> Self {
        boot.register(|metrics| Self {
            sources: sources::metrics(metrics),
            webhooks: navarch_webhook::Metrics::register(metrics),
            ca: ca::Metrics::register(metrics, security::clock),
            calls: CallMetrics::register(metrics),
        })
    }
}

//! Starts the readers of remote clusters, and the controllers of those that are led.

mod leading;

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::Config;
use super::boot::Boot;
use super::controllers::{selected_namespaces, stays_local};
use leading::Leading;
pub(super) use leading::{HookRoots, WrittenRemotes};
use navarch_push::worker::PushHandle;
use navarch_remotes::{Lead, ManagedClusters, Metrics, Parts};
use navarch_security::remote_servers::RemoteServers;
use navarch_source::Batch;

/// The interfaces of the reader of remote clusters.
pub(super) struct Followed {
    /// Receives an event when the initial clusters were read, or have timed out.
    pub(super) synced: mpsc::Receiver<Batch>,
    /// Receives the configuration for remote clusters that are led.
    pub(super) written: watch::Sender<Option<WrittenRemotes>>,
}

/// Starts to read remote clusters. `client` is that of the cluster that configures the mesh, if
/// there is one. `clusters` receives the sync status of each.
pub(super) fn follow(
    config: &Config,
    client: Option<&kube::Client>,
    servers: RemoteServers,
    clusters: ManagedClusters,
    push: &PushHandle,
    boot: &mut Boot,
) -> Followed {
    let (sender, receiver) = watch::channel(None);
    let settings = &config.settings;
    let writing = &config.writing;
    let leading = Leading {
        external: config.remotes.external,
        cluster: settings.cluster_id.clone(),
        namespace: settings.system_namespace.to_string(),
        identity: writing.identity.clone(),
        revision: writing.revision.clone(),
        elects: writing.elects,
        objects: writing.published.clone(),
        webhooks: config.webhooks.clone(),
        written: receiver,
        scope: selected_namespaces(writing.only.clone(), push, boot),
        exports: writing.exports.then(|| stays_local(push)),
    };
    let lead: Lead =
        Arc::new(move |cluster, client, stop| Box::pin(leading.clone().run(cluster, client, stop)));

    let remotes = navarch_remotes::start(Parts {
        config: config.remotes.clone(),
        own: settings.cluster_id.clone(),
        namespace: settings.system_namespace.clone(),
        client: client.cloned(),
        push: push.clone(),
        problems: boot.problems.clone(),
        servers,
        metrics: boot.register(Metrics::register),
        clusters,
        lead,
        stop: boot.stop.clone(),
    });

    if let Some(kubeconfigs) = remotes.kubeconfigs {
        boot.spawn_until_stop("kubeconfigs", kubeconfigs);
    }
    boot.spawn("remote clusters", remotes.reading);

    Followed {
        synced: remotes.synced,
        written: sender,
    }
}

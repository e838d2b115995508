//! Starts the rollout controller.

use std::sync::Arc;

use super::Config;
use super::boot::Boot;
use navarch_push::worker::{Ended, PushHandle};
use navarch_rollout::{Parts, RolloutControl, StoredRollouts};
use navarch_status::{Cluster, RolloutStore};
use navarch_xds::connections::Connections;

/// Restores rollouts, and starts the controller; before objects are read. If objects come from the
/// Kubernetes API, the state is stored there; what is stored must be restored once more when they are
/// read.
pub(super) async fn start(
    client: Option<&kube::Client>,
    config: &Config,
    push: &PushHandle,
    connections: Arc<Connections>,
    boot: &mut Boot,
) -> Result<(RolloutControl, StoredRollouts), Ended> {
    let client = client.filter(|_| config.settings.discover_configuration);
    let store = client.map(|client| {
        let namespace = config.settings.system_namespace.as_str();
        RolloutStore::new(&Cluster(client.clone()), namespace)
    });

    let parts = Parts {
        push: push.clone(),
        connections,
        store,
        replica: config.writing.identity.clone(),
        prometheus: config.prometheus.clone(),
        query_namespaces: config.query_namespaces.clone(),
    };
    let started = navarch_rollout::start(parts, boot.stop.clone()).await?;

    boot.spawn("rollouts", started.controller);
    Ok((started.control, started.stored))
}

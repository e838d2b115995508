//! Starts the quarantine, unless it is disabled.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::Config;
use super::boot::Boot;
use navarch_push::worker::{Ended, PushHandle};
use navarch_quarantine::{QuarantineControl, Replicas};
use navarch_status::{Cluster, QuarantineStore};
use navarch_xds::NackQueue;
use navarch_xds::connections::Connections;

/// Capacity of the channel of operators' commands.
const MAX_PENDING_COMMANDS: usize = 16;

/// What the quarantine works with.
pub(super) struct Parts<'a> {
    pub(super) client: Option<&'a kube::Client>,
    pub(super) config: &'a Config,
    pub(super) push: &'a PushHandle,
    pub(super) connections: Arc<Connections>,
    /// The NACKs of clients.
    pub(super) nacks: NackQueue,
}

/// Restores stored quarantines, and starts to judge rejections, unless that is disabled; before
/// objects are read. If objects come from the Kubernetes API, the state is stored there.
pub(super) async fn start(parts: Parts<'_>, boot: &mut Boot) -> Result<QuarantineControl, Ended> {
    let (releases, received) = mpsc::channel(MAX_PENDING_COMMANDS);
    let control = QuarantineControl { releases };
    let Parts {
        client,
        config,
        push,
        connections,
        nacks,
    } = parts;
    if !config.quarantines {
        return Ok(control);
    }

    let namespace = config.settings.system_namespace.clone();
    let client = client.filter(|_| config.settings.discover_configuration);
    let store =
        client.map(|client| QuarantineStore::new(&Cluster(client.clone()), namespace.as_str()));
    let parts = navarch_quarantine::Parts {
        push: push.clone(),
        connections,
        nacks,
        releases: received,
        store,
        replicas: Replicas {
            own: config.writing.identity.clone(),
            namespace,
            is_single: !config.writing.elects,
        },
    };

    let work = navarch_quarantine::start(parts, boot.stop.clone()).await?;
    boot.spawn("quarantine", work);
    Ok(control)
}

//! Starts the quarantine from the stored state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use navarch_push::mesh_state::Change;
use navarch_push::quarantine::RestoredQuarantine;
use navarch_push::worker::{Ended, PushHandle};
use navarch_status::{Cluster, KeptQuarantine, QuarantineOutcome, QuarantineStore};
use navarch_xds::Refusal;
use navarch_xds::connections::Connections;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::QuarantineWork;
use super::shared::{Replicas, Shared};
use crate::admin::QuarantineControl;
use crate::server::Config;
use crate::server::boot::Boot;

/// Timeout of listing the stored quarantines.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Capacity of the channel of operators' commands.
const MAX_PENDING_COMMANDS: usize = 16;

/// What the quarantine works with.
pub(in crate::server) struct Parts<'a> {
    pub(in crate::server) client: Option<&'a kube::Client>,
    pub(in crate::server) config: &'a Config,
    pub(in crate::server) push: &'a PushHandle,
    pub(in crate::server) connections: Arc<Connections>,
    /// The rejections of clients.
    pub(in crate::server) refused: mpsc::Receiver<Refusal>,
}

/// Restores stored quarantines, and starts to judge rejections, unless that is disabled. Must be
/// called before objects are read: otherwise proxies would get the rejected versions first. If
/// objects come from the Kubernetes API, the state is stored there.
pub(in crate::server) async fn start(
    parts: Parts<'_>,
    boot: &mut Boot,
) -> Result<QuarantineControl, Ended> {
    let (releases, received) = mpsc::channel(MAX_PENDING_COMMANDS);
    let control = QuarantineControl { releases };
    let Parts {
        client,
        config,
        push,
        connections,
        refused,
    } = parts;
    if !config.quarantines {
        return Ok(control);
    }

    let shared = match client.filter(|_| config.settings.discover_configuration) {
        Some(client) => {
            let namespace = config.settings.system_namespace.clone();
            let store = QuarantineStore::new(&Cluster(client.clone()), namespace.as_str());
            restore(&store, push).await?;
            let replicas = Replicas {
                own: config.writing.identity.clone(),
                namespace,
                is_single: !config.writing.elects,
            };
            Some(Shared::new(store, replicas))
        }
        None => None,
    };

    let work = QuarantineWork {
        push: push.clone(),
        connections,
        cases: BTreeMap::new(),
        looked_into: BTreeMap::new(),
        trials: JoinSet::new(),
        tried: BTreeMap::new(),
        paused_until: BTreeMap::new(),
        deferred: BTreeMap::new(),
        shared,
        polls_at: Instant::now(),
        started: Instant::now(),
    };

    boot.spawn("quarantine", work.run(refused, received, boot.stop.clone()));
    Ok(control)
}

/// Restores stored quarantines once their objects are read.
async fn restore(store: &QuarantineStore, push: &PushHandle) -> Result<(), Ended> {
    let kept = match tokio::time::timeout(LIST_TIMEOUT, store.list()).await {
        Ok(Ok(kept)) => kept,
        Ok(Err(error)) => {
            tracing::warn!(%error, "failed to read the stored quarantines; rejected versions are served until they are read");
            return Ok(());
        }
        Err(_) => {
            tracing::warn!(after = ?LIST_TIMEOUT, "timed out reading the stored quarantines; rejected versions are served until they are read");
            return Ok(());
        }
    };

    push.change(kept.into_values().filter_map(restored).collect())
        .await
}

/// The change that restores a quarantine, unless it has ended or is not decided.
fn restored(kept: KeptQuarantine) -> Option<Change> {
    let QuarantineOutcome::Quarantined {
        message, before, ..
    } = kept.outcome?
    else {
        return None;
    };
    let restored = RestoredQuarantine {
        generation: kept.generation,
        uid: kept.uid,
        before,
        message: message.into(),
    };
    Some(Change::RestoreQuarantine(kept.object, Arc::new(restored)))
}

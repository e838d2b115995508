//! Starts the quarantine from the stored state.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_push::mesh_state::Change;
use navarch_push::quarantine::RestoredQuarantine;
use navarch_push::worker::{Ended, PushHandle};
use navarch_status::{KeptQuarantine, QuarantineOutcome, QuarantineStore, list_at_start};
use navarch_xds::NackQueue;
use navarch_xds::connections::Connections;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::places::Places;
use super::shared::Shared;
use super::trials::MAX_COMPUTING;
use super::{QuarantineRelease, QuarantineWork, Replicas};

/// What the quarantine works with.
#[derive(Debug)]
pub struct Parts {
    /// The push thread, which serves previous versions of quarantined objects.
    pub push: PushHandle,
    /// The streams of proxies, with their ACKs and NACKs.
    pub connections: Arc<Connections>,
    /// The NACKs of clients.
    pub nacks: NackQueue,
    /// The commands of operators.
    pub releases: mpsc::Receiver<QuarantineRelease>,
    /// Where replicas share answers and decisions; `None` for a single replica without an API
    /// server.
    pub store: Option<QuarantineStore>,
    /// Where the replicas that share the store are found.
    pub replicas: Replicas,
}

/// Restores quarantines from their stored state. Must be called before objects are read: otherwise
/// proxies would get the rejected versions first. Returns the future that judges rejections, which
/// ends once `stop` is cancelled.
///
/// # Errors
/// If the push thread has stopped.
pub async fn start(
    parts: Parts,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + Send, Ended> {
    let Parts {
        push,
        connections,
        nacks,
        releases,
        store,
        replicas,
    } = parts;

    let shared = match store {
        Some(store) => {
            restore(&store, &push).await?;
            Some(Shared::new(store, replicas))
        }
        None => None,
    };

    let work = QuarantineWork {
        push,
        connections,
        cases: BTreeMap::new(),
        case_count: 0,
        looked_into: BTreeMap::new(),
        trials: JoinSet::new(),
        places: Places::default(),
        computing: Arc::new(Semaphore::new(MAX_COMPUTING)),
        shared,
        no_room_logged_at: None,
        polls_at: Instant::now(),
        rests_until: Instant::now(),
        watches_at: Instant::now(),
        watched_last: None,
        started: Instant::now(),
    };
    Ok(work.run(nacks, releases, stop))
}

/// Restores stored quarantines once their objects are read.
async fn restore(store: &QuarantineStore, push: &PushHandle) -> Result<(), Ended> {
    let kept = match list_at_start(|| store.list()).await {
        // The first poll logs those that are unreadable.
        Ok(stored) => stored.readable,
        Err(error) => {
            tracing::warn!(%error, "failed to read the stored quarantines; rejected versions are served until they are read");
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

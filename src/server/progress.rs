//! Follows the distribution progress of objects, for their status.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::boot::{Boot, until};
use crate::admin::{configuration, progresses};
use navarch_push::worker::PushHandle;
use navarch_status::{ProgressRounds, Progresses};
use navarch_xds::connections::Connections;

/// Checks objects periodically, as [`ProgressRounds`] selects them.
pub(super) fn follow(
    push: PushHandle,
    connections: Arc<Connections>,
    interval: Duration,
    boot: &mut Boot,
) -> watch::Receiver<Progresses> {
    let (sender, receiver) = watch::channel(Progresses::default());
    let stop = boot.stop.clone();
    boot.spawn("distribution", async move {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rounds = ProgressRounds::default();

        while until(&stop, ticks.tick()).await.is_some() {
            if !push.is_synced() {
                continue;
            }

            let objects = rounds.begin(configuration(&push.context()));
            let checked = progresses(&push, &connections, objects).await?;
            if let Some(all) = rounds.end(checked) {
                sender.send_replace(all);
            }
        }

        anyhow::Ok(())
    });

    receiver
}

//! Gives memory that bursts of work leave free back to the system.

use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{Tasks, spawn, until};

/// How long the allocator keeps free memory at least, so that more frequent calls would find nothing.
const INTERVAL: Duration = Duration::from_secs(1);

/// Has the allocator give back until shutdown what stays free.
pub(super) fn give_back(stop: &CancellationToken, tasks: &mut Tasks) {
    let stop = stop.clone();
    spawn("memory", tasks, async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while until(&stop, ticks.tick()).await.is_some() {
            navarch_profile::give_back_free_memory();
        }
        Ok(())
    });
}

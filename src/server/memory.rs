//! Returns unused memory to the system after bursts of work.

use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::boot::{Boot, until};

/// Minimum time that the allocator keeps free memory: more frequent calls would have no effect.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);

/// Lets the allocator return free memory periodically, until shutdown.
pub(super) fn release_free_memory(boot: &mut Boot) {
    let stop = boot.stop.clone();
    boot.spawn("memory", async move {
        let mut ticks = tokio::time::interval(RELEASE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while until(&stop, ticks.tick()).await.is_some() {
            navarch_profile::give_back_free_memory();
        }
    });
}

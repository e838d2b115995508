//! Writes updates of endpoints at a rate.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::api::Api;
use super::board::Board;
use super::kubernetes::Served as _;
use super::mesh::{Mesh, SLICES};

/// How often due updates are written.
const TICK: Duration = Duration::from_millis(1);
/// Updates of one write at most, some 100 kB.
const BATCH: u32 = 128;

/// Writes a number of updates, each as soon as it is due and the control plane reads. Returns the
/// time from the first to the end of the last.
///
/// # Errors
/// If the control plane does not watch EndpointSlices, or closes the watch.
pub(super) async fn feed(api: &Api, mesh: Mesh, board: &Board, updates: u32) -> Result<Duration> {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let begun = Instant::now();
    board.begin(begun);
    let mut sent = 0;

    while sent < updates {
        ticks.tick().await;
        let due = board.due(Instant::now()).min(updates);
        while sent < due {
            let batch = sent..due.min(sent + BATCH);
            sent = batch.end;
            let mut events = Vec::new();
            for update in batch {
                let place = mesh.order.place(update);
                let slice = mesh.slice(place, Some(update), api.next_version());
                events.extend(slice.event("MODIFIED"));
            }
            api.send(SLICES, &events).await?;
        }
    }

    Ok(begun.elapsed())
}

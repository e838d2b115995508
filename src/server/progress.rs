//! Follows the distribution progress of objects, for their status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::boot::{Boot, until};
use crate::admin::{Share, configuration, shares};
use navarch_api::object::ObjectRef;
use navarch_push::worker::PushHandle;
use navarch_status::{Progress, Progresses};
use navarch_xds::connections::Connections;

/// Number of objects with a correct status that are checked per round, because proxies come and go.
const IN_TURN: usize = 100;

/// Checks objects periodically: changed and pending ones always, the others in turn.
pub(super) fn follow(
    push: PushHandle,
    connections: Arc<Connections>,
    interval: Duration,
    boot: &mut Boot,
) -> watch::Receiver<Progresses> {
    let (sender, progresses) = watch::channel(Progresses::default());
    let stop = boot.stop.clone();
    boot.spawn("distribution", async move {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known: BTreeMap<ObjectRef, Progress> = BTreeMap::new();
        let mut turn = 0;

        while until(&stop, ticks.tick()).await.is_some() {
            if !push.is_synced() {
                continue;
            }

            let mut objects = configuration(&push.context());
            let all = objects.len();
            let before = known.len();
            let names: std::collections::BTreeSet<_> =
                objects.iter().map(|object| object.object_ref()).collect();
            known.retain(|object, _| names.contains(object));
            let mut places = 0..all;
            objects.retain(|object| {
                let place = places.next().unwrap_or_default();
                let is_done = known.get(&object.object_ref()).is_some_and(|progress| {
                    progress.generation == object.meta().generation
                        && progress.current == progress.reached
                });
                !is_done || is_in_turn(place, turn, all)
            });

            turn = (turn + IN_TURN) % all.max(1);
            let found = shares(&push, &connections, objects).await?;
            let mut changed = known.len() != before;

            for (
                object,
                Share {
                    generation,
                    reached,
                    current,
                },
            ) in found
            {
                let progress = Progress {
                    generation,
                    reached,
                    current,
                };
                changed |= known.insert(object, progress) != Some(progress);
            }

            // The writer retries failed objects when it receives them again.
            if changed
                || known
                    .values()
                    .any(|progress| progress.current != progress.reached)
            {
                sender.send_replace(Arc::new(known.clone()));
            }
        }

        anyhow::Ok(())
    });

    progresses
}

/// Whether the object at a place, of so many, is one of those from `turn` on whose turn it is. There
/// may have been more objects when the turn began.
fn is_in_turn(place: usize, turn: usize, all: usize) -> bool {
    let first = turn % all.max(1);
    let distance = if place >= first {
        place - first
    } else {
        place + all - first
    };
    distance < IN_TURN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(turn: usize, all: usize) -> Vec<usize> {
        let in_turn = |place: &usize| is_in_turn(*place, turn, all);
        (0..all).filter(in_turn).collect()
    }

    #[test]
    fn each_object_has_its_turn_also_when_others_have_gone() {
        assert_eq!(places(100, 250), (100..200).collect::<Vec<_>>());
        let around: Vec<usize> = (0..50).chain(200..250).collect();
        assert_eq!(places(200, 250), around);
        // All of fewer, and those that are left of more.
        assert_eq!(places(30, 20), (0..20).collect::<Vec<_>>());
        assert_eq!(places(340, 120).len(), IN_TURN);
        assert!(places(7, 0).is_empty());
    }
}

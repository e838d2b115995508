//! When the engine frees results that only ended streams used.

use std::time::Duration;

use tokio::time::Instant;

use super::engine::Engine;

/// Delay of freeing after streams end: a client that reconnects soon finds its results.
const MIN_RETENTION: Duration = Duration::from_secs(10);
/// Minimum delay, as a multiple of the duration of the last sweep: regardless of the number of
/// results, sweeps take a small part of the thread's time.
const SWEEP_PAUSE_FACTOR: u32 = 50;

/// When the next sweep is due.
#[derive(Debug, Default)]
pub(super) struct SweepSchedule {
    /// The time of the next sweep, if results may be unused.
    at: Option<Instant>,
}

impl SweepSchedule {
    /// The time of the next sweep, if results may be unused.
    pub(super) fn next(&self) -> Option<Instant> {
        self.at
    }

    /// Begins a sweep if it is due, unless the engine `is_busy`.
    pub(super) fn begin_sweep_if_due(&mut self, engine: &mut Engine, is_busy: bool, now: Instant) {
        match self.at {
            _ if !engine.has_orphans() => self.at = None,
            None => {
                self.at = Some(now + MIN_RETENTION.max(engine.last_sweep() * SWEEP_PAUSE_FACTOR))
            }
            Some(at) if at <= now && !is_busy && !engine.is_sweeping() => {
                engine.begin_sweep();
                self.at = None;
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::engine::Interest;
    use crate::mesh_state::MeshState;
    use crate::proxy::{Locality, Proxy};
    use crate::resource::ResourceType;
    use crate::testing::{NoResources, NoSink};
    use navarch_api::names::ResourceName;
    use navarch_api::settings::Settings;

    #[test]
    fn memory_is_released_once_after_a_stream_ends() {
        let mut engine = Engine::new(
            MeshState::new(Settings::default()).context(),
            Arc::new(NoResources),
        );
        let node = "sidecar~10.0.0.1~a.shop~shop.svc.cluster.local";
        let proxy = Proxy::parse(node, serde_json::json!({}), Locality::default()).unwrap();
        let id = engine.connect(Arc::new(proxy), Arc::new(NoSink));
        let names: BTreeSet<ResourceName> = (0..100)
            .map(|n| ResourceName::new(format!("n{n}")))
            .collect();

        engine.subscribe(
            id,
            ResourceType::Endpoint,
            Interest {
                wildcard: false,
                names: Arc::new(names),
            },
        );

        let mut schedule = SweepSchedule::default();
        let start = Instant::now();
        schedule.begin_sweep_if_due(&mut engine, false, start);
        assert_eq!(schedule.next(), None);
        engine.disconnect(id);
        schedule.begin_sweep_if_due(&mut engine, false, start);
        assert_eq!(schedule.next(), Some(start + MIN_RETENTION));
        schedule.begin_sweep_if_due(&mut engine, false, start + MIN_RETENTION / 2);

        assert!(engine.sizes().results > 0);
        schedule.begin_sweep_if_due(&mut engine, true, start + MIN_RETENTION);
        assert!(engine.sizes().results > 0, "not while it is busy");
        schedule.begin_sweep_if_due(&mut engine, false, start + MIN_RETENTION);
        assert!(engine.is_sweeping() && engine.continue_sweep(|| true));
        assert_eq!((engine.sizes().results, schedule.next()), (0, None));
    }
}

//! Freeing of unused results.

use std::time::Duration;

use super::Engine;
use crate::inputs::Inputs;

/// Number of time checks after which [`Engine::sweep_if_due`] interrupts a sweep: about half a
/// millisecond.
const SWEEP_TIME_CHECKS: u32 = 8;

impl<I: Inputs> Engine<I> {
    /// Whether subscriptions have ended or changed since the last sweep, or values were read once,
    /// so that results may be unused.
    #[must_use]
    pub fn has_orphans(&self) -> bool {
        self.core.borrow().sweeps.has_orphans()
    }

    /// Begins a sweep of unused results, unless one is in progress. The cost is proportional to the
    /// results; [`Engine::continue_sweep`] does the work.
    pub fn begin_sweep(&mut self) {
        self.core.get_mut().begin_sweep();
    }

    /// Whether a sweep is in progress.
    #[must_use]
    pub fn is_sweeping(&self) -> bool {
        self.core.borrow().sweeps.is_sweeping()
    }

    /// Continues the sweep while `may_go_on` returns true, checked about every tenth of a
    /// millisecond; returns true when it is complete.
    pub fn continue_sweep(&mut self, may_go_on: impl FnMut() -> bool) -> bool {
        self.core.get_mut().continue_sweep(may_go_on)
    }

    /// Zero before the first sweep. The pause before the next sweep depends on it.
    #[must_use]
    pub fn last_sweep(&self) -> Duration {
        self.core.borrow().sweeps.last_duration()
    }

    /// Frees unused results periodically, in small slices: for a call after each operation.
    pub fn sweep_if_due(&mut self) {
        let core = self.core.get_mut();
        if core.needs_sweep() {
            core.begin_sweep();
        }
        let mut looks = SWEEP_TIME_CHECKS;
        core.continue_sweep(|| {
            looks -= 1;
            looks > 0
        });
    }
}

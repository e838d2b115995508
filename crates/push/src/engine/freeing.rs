//! Freeing of unused results.

use std::time::Duration;

use super::Engine;

/// After how many looks at the time a sweep is interrupted after each thing that the engine does: about half a millisecond.
const SWEEP_LOOKS: u32 = 8;

impl Engine {
    /// Whether somebody was the last to subscribe to something, and has gone or subscribes to something else.
    #[must_use]
    pub fn has_orphans(&self) -> bool {
        self.core.borrow().has_orphans
    }

    /// Begins to free unused results, unless that is in progress. Costs what is kept; [`Engine::sweep_on`] does the work.
    pub fn begin_sweep(&mut self) {
        self.core.get_mut().begin_sweep();
    }

    /// Whether a sweep is in progress.
    #[must_use]
    pub fn is_sweeping(&self) -> bool {
        self.core.borrow().is_sweeping()
    }

    /// Goes on with freeing as long as `may_go_on` says, asked about each tenth of a millisecond; true when all is done.
    pub fn sweep_on(&mut self, may_go_on: impl FnMut() -> bool) -> bool {
        self.core.get_mut().sweep_on(may_go_on)
    }

    /// How long it took to free what nothing rested on when that was last done.
    #[must_use]
    pub fn last_sweep(&self) -> Duration {
        self.core.borrow().last_sweep()
    }

    /// Frees unused results from time to time, in small slices.
    pub(super) fn sweep_if_due(&mut self) {
        let core = self.core.get_mut();
        if core.wants_sweep() {
            core.begin_sweep();
        }
        let mut looks = SWEEP_LOOKS;
        core.sweep_on(|| {
            looks -= 1;
            looks > 0
        });
    }
}

//! Everything once more: for operators who do not trust what was computed.

use super::{Engine, Settled};

impl Engine {
    /// Computes all results anew, as if every fact had changed, and publishes what comes out different.
    pub fn recompute(&mut self) -> Settled {
        let facts = self.core.get_mut().all_facts();
        self.apply(self.context.clone(), facts)
    }
}

//! Recomputation of all results, for operators who suspect a missed dependency.

use super::{Engine, PushStats};

impl Engine {
    /// Recomputes all results, as if every fact had changed, and publishes those that differ.
    pub fn recompute(&mut self) -> PushStats {
        let facts = self.core.get_mut().facts.keys().cloned().collect();
        self.apply(self.context.clone(), facts)
    }
}

//! Engine sizes, which tests with little data reduce.

/// Thresholds of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Minimum number of dependents of a gate: results that read it, or items that one of those
    /// iterates over.
    pub gate_min_dependents: usize,
    /// Steps of a sweep between two checks of the time slice, at about a microsecond each.
    pub steps_per_time_check: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            gate_min_dependents: 16,
            steps_per_time_check: 64,
        }
    }
}

#[cfg(test)]
impl EngineConfig {
    /// For tests, which have little data: two dependents make a gate, and a sweep can stop after
    /// each step.
    pub(crate) const SMALL: Self = Self {
        gate_min_dependents: 2,
        steps_per_time_check: 1,
    };
}

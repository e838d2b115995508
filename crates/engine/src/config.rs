//! What an engine is configured with, and what it reports about itself.

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

/// Sizes of the engine's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineSizes {
    /// Kept results.
    pub results: usize,
    /// Facts that something has read.
    pub facts: usize,
    /// Distinct attributes of subscribers that were read.
    pub attributes: usize,
    /// Distinct values of attributes.
    pub attribute_values: usize,
    /// Connected subscribers.
    pub subscribers: usize,
}

/// Statistics of one change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushStats {
    /// Groups of subscriptions that the change may affect.
    pub groups: usize,
    /// Published values.
    pub published: usize,
    /// Recomputed results.
    pub computed: u64,
    /// Results marked and dependencies checked: the cost of finding out what changed.
    pub visited: u64,
}

/// Lookups of results since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Lookups that found a valid result.
    pub held: u64,
    /// Results that were computed.
    pub computed: u64,
}

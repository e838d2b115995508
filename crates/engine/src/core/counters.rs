//! Counters of the engine's work since the start.

/// The engine's work since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    visited: u64,
    computed: u64,
    reused: u64,
}

impl Counters {
    /// Counts results marked, or dependencies checked.
    #[inline]
    pub(crate) fn visit(&mut self, count: usize) {
        self.visited += count as u64;
    }

    /// Counts a computed result.
    #[inline]
    pub(crate) fn compute(&mut self) {
        self.computed += 1;
    }

    /// Counts a lookup that found a valid result.
    #[inline]
    pub(crate) fn reuse(&mut self) {
        self.reused += 1;
    }

    /// Number of results marked and dependencies checked.
    pub(crate) fn visited(&self) -> u64 {
        self.visited
    }

    /// Number of results computed.
    pub(crate) fn computed(&self) -> u64 {
        self.computed
    }

    /// Number of lookups that found a valid result.
    pub(crate) fn reused(&self) -> u64 {
        self.reused
    }
}

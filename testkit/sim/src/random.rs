//! The random numbers of a simulation: all come from its seed.

use std::time::Duration;

/// One step of SplitMix64, which also turns equal seeds into unrelated numbers.
pub fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed and a purpose: generators of other purposes are independent.
    #[must_use]
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut state = seed;
        for byte in purpose.bytes() {
            state = splitmix(&mut state) ^ u64::from(byte);
        }
        Self(state)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        splitmix(&mut self.0)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// An index of a slice of `length` items.
    pub fn index(&mut self, length: usize) -> usize {
        let bound = u64::try_from(length).unwrap_or(u64::MAX);
        usize::try_from(self.below(bound)).unwrap_or_default()
    }

    /// True in `per_mille` of a thousand cases.
    pub fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of the items.
    ///
    /// # Panics
    /// If there are none.
    pub fn of<T: Copy>(&mut self, items: &[T]) -> T {
        let index = self.index(items.len());
        *items.get(index).expect("there are items to choose from")
    }

    /// A duration between two, in milliseconds.
    pub fn millis(&mut self, min: u64, max: u64) -> Duration {
        Duration::from_millis(min + self.below(max.saturating_sub(min) + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_have_equal_numbers_and_purposes_differ() {
        let numbers = |seed, purpose| {
            let mut random = Random::new(seed, purpose);
            [random.number(), random.number(), random.number()]
        };
        assert_eq!(numbers(1, "a"), numbers(1, "a"));
        assert_ne!(numbers(1, "a"), numbers(1, "b"));
        assert_ne!(numbers(1, "a"), numbers(2, "a"));
    }
}

//! Which traces are sent.

use crate::ids::TraceId;

/// Which of the traces that begin here are sent, from `OTEL_TRACES_SAMPLER`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampler {
    /// All.
    All,
    /// This share of them, between 0 and 1.
    Share(f64),
}

impl Sampler {
    /// Whether a trace is sent.
    #[must_use]
    pub fn is_sampled(self, trace: TraceId) -> bool {
        match self {
            Self::All => true,
            // The upper 53 bits of a random number, as a number below 1.
            Self::Share(share) => ((trace.lower() >> 11) as f64) * 2_f64.powi(-53) < share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ids;

    #[test]
    fn a_share_is_about_that_share() {
        let ids = Ids::default();
        let taken = |sampler: Sampler| {
            (0..10_000)
                .filter(|_| sampler.is_sampled(ids.trace()))
                .count()
        };
        assert_eq!(
            (
                taken(Sampler::All),
                taken(Sampler::Share(1.0)),
                taken(Sampler::Share(0.0))
            ),
            (10_000, 10_000, 0)
        );
        let quarter = taken(Sampler::Share(0.25));
        assert!((2_000..3_000).contains(&quarter), "{quarter}");
    }
}

//! The durations of the stages of a long test.

use tokio::time::Instant;

/// Prints the duration of each stage.
#[derive(Debug)]
pub struct Stages(Instant);

impl Default for Stages {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Stages {
    /// Ends a stage.
    #[expect(clippy::print_stderr, reason = "a test prints its progress")]
    pub fn over(&mut self, what: &str) {
        eprintln!("{what}: {:.1} s", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}

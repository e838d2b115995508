//! How long the stages of a long test take.

use tokio::time::Instant;

/// Says when a stage is over.
#[derive(Debug)]
pub struct Stages(Instant);

impl Default for Stages {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Stages {
    /// The stage that ends now.
    #[expect(clippy::print_stderr, reason = "a test says how far it is")]
    pub fn over(&mut self, what: &str) {
        eprintln!("{what}: {:.1} s", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}

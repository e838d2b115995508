//! The story of a simulation: what happened to which object, in order, and a hash of all of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Collects what happens. Clones tell one story.
#[derive(Clone)]
pub struct Story(Arc<Inner>);

struct Inner {
    begin: Instant,
    told: Mutex<Told>,
    /// Whether lines are printed at once.
    is_printed: bool,
}

#[derive(Default)]
struct Told {
    /// The hash of all lines so far.
    hash: u64,
    /// The violated invariants.
    violations: Vec<String>,
}

/// Adds a line to a [`Story`]: `tell!(story, "replica-1", "acquired {lock}")`.
#[macro_export]
macro_rules! tell {
    ($story:expr, $who:expr, $($text:tt)+) => {
        $story.add(&$who, &format!($($text)+))
    };
}

impl Story {
    /// An empty story that begins now.
    #[must_use]
    pub fn begin(is_printed: bool) -> Self {
        Self(Arc::new(Inner {
            begin: Instant::now(),
            told: Mutex::default(),
            is_printed,
        }))
    }

    /// The simulated time since the beginning.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.begin.elapsed()
    }

    /// Adds a line about `who`.
    pub fn add(&self, who: &dyn fmt::Display, text: &str) {
        let line = format!("t={:10.3}s {who}: {text}", self.elapsed().as_secs_f64());
        if self.0.is_printed {
            println!("{line}");
        }

        self.0.told.lock().mix(&line);
    }

    /// Adds what matters for the hash, and would be too much to read.
    pub fn detail(&self, text: &str) {
        let line = format!("{} {text}", self.elapsed().as_nanos());
        self.0.told.lock().mix(&line);
    }

    /// Adds the violation of an invariant, which is listed once. The simulation goes on: what
    /// follows is part of the story.
    pub fn violated(&self, invariant: &str, text: &str) {
        let violation = format!("{invariant}: {text}");
        tell!(self, "VIOLATION", "{violation}");
        let violations = &mut self.0.told.lock().violations;
        if !violations.contains(&violation) {
            violations.push(violation);
        }
    }

    /// The violated invariants, in order.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.0.told.lock().violations.clone()
    }

    /// The hash of all lines.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.0.told.lock().hash
    }
}

impl Told {
    /// Mixes a line into the hash.
    fn mix(&mut self, line: &str) {
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.hash ^= self.hash >> 29;
    }
}

impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Story")
            .field("hash", &self.hash())
            .finish_non_exhaustive()
    }
}

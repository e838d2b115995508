//! What came in and what proxies were shown for it, kept in files, and played again.
//!
//! ```text
//! push thread ─┐                         ┌─▶ segment 7 ─┐
//! streams     ─┴▶ Recorder ─▶ Journal ─▶ Ring ─▶ segment 8 ├─▶ read ─▶ Player (a mesh state and an engine) ─▶ the same pushes?
//! ```
//!
//! A record is a directory of segments: files of JSON lines ([`mod@format`]), each of which begins
//! with all that was known when it was begun, so that old ones can go. Private keys and all else
//! that is in Secrets is no part of it.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "builders of test values read better if they take values"
    )
)]

mod digest;
pub mod format;
mod inputs;
mod journal;
mod metrics;
mod name_sets;
mod play;
mod push_groups;
mod read;
mod recorder;
mod redact;
mod report;
mod restore;
mod ring;
mod rollout;

pub use metrics::Metrics;
pub use play::{PlayError, Player};
pub use read::{Broken, RecordLine, Segment, is_segment, segments};
pub use recorder::{Recorder, RecorderConfig};
pub use report::{Difference, Played, PlayedPush, PlayedStep};

/// The stack of whoever plays a record, as the push thread has: translation nests deeply.
pub const STACK: usize = 16 << 20;

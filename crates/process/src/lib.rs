//! What a program finds out and sets about its own process: its resource usage, metrics of it under the
//! names of Go's clients, and whether it gets huge pages.

mod go_metrics;
pub mod huge_pages;
mod process_metrics;
pub mod usage;

pub use go_metrics::GoMetrics;
pub use process_metrics::ProcessMetrics;

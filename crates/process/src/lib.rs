//! What a program finds out and sets about its own process.
//!
//! | module | what it has |
//! | --- | --- |
//! | [`usage`] | resource usage and memory as the kernel reports them; both programs expose them |
//! | [`ProcessMetrics`] | metrics of the control plane: its version, its uptime, its resource usage |
//! | [`GoMetrics`] | metrics under the names of Go's runtime, which Istio's dashboards query |
//! | [`huge_pages`] | transparent huge pages, which both programs disable at the start |

mod gauge;
mod go_metrics;
pub mod huge_pages;
mod process_metrics;
pub mod usage;

pub use go_metrics::GoMetrics;
pub use process_metrics::ProcessMetrics;

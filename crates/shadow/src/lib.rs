//! Compares what istiod sends to proxies with what Navarch would send to them.
//!
//! ```text
//! istiod's debug pages ─▶ Twin ─┬─▶ Stream (xDS to istiod) ──┐
//!                               └─▶ Own (an engine in memory) ┴─▶ comparison ─▶ Report ─▶ Watched
//! ```
//!
//! The tests of parity with istiod use the same subscriptions and the same comparison. Nothing here
//! writes: a twin only reads, and Navarch's own resources come from a snapshot.

pub mod canonical;
pub mod comparison;
pub mod difference;
pub mod documented;
mod objects;
pub mod own;
pub mod report;
mod secrets;
pub mod stream;
pub mod subscriptions;
pub mod twin;
pub mod watch;

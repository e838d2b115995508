//! Compares what istiod sends to proxies with what Navarch would send to them.
//!
//! The tests of parity with istiod use the same subscriptions and the same comparison.

pub mod canonical;
pub mod difference;
mod objects;
pub mod subscriptions;

//! The node side: what stands beside an Envoy and speaks for it.

pub mod backoff;
pub mod random;
pub mod sds;
pub mod secrets;
pub mod socket;
pub mod upstream;

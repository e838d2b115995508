//! The cases of `tests/parity`, which `tests/envoy` shows to a real Envoy as well.

pub mod case;
pub mod deliberate;
pub mod input;

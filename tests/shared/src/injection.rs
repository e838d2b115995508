//! Pods and configurations for tests of injection.

pub mod default;
pub mod difference;
pub mod installations;
pub mod pods;
pub mod stock;

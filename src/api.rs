//! What users write: Kubernetes and Istio objects as types, their defaults and their validation.
//!
//! Knows nothing of stores, proxies or Envoy.

pub mod duration;
pub mod istio;
pub mod names;
pub mod object;

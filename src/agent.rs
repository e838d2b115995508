//! The node side: what stands beside an Envoy and speaks for it.

//! Names of labels, annotations and containers.

/// Asks for a proxy, or for none; a label, or of old an annotation.
pub(super) const INJECT: &str = "sidecar.istio.io/inject";

//! Envoy, xDS and Istio wire types.

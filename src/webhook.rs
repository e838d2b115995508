//! Admission: what the API server asks about pods and Istio's objects.

pub mod inject;

//! What is written back to the cluster, and which of several control planes writes it.
//!
//! ```text
//! Election ──leads──▶ RootCertificates   (a ConfigMap with the mesh's roots in every namespace)
//!    │  ▲             AddressAllocation  (status.addresses of ServiceEntries)
//!    │  │             Analysis           (status.validationMessages of Istio's objects)
//!  Lease └── DefaultRevision
//! ```
//!
//! Each controller is a loop over its own watches that ends with its token; the server spawns and awaits it. What is
//! decided is decided by plain functions of what was seen. Knows nothing of proxies.

mod address_pool;
mod allocation;
mod allocator;
mod analysis;
mod cluster;
mod default_revision;
mod election;
mod findings;
mod lease;
mod lock;
mod namespaces;
mod root_certificates;

pub use address_pool::Range;
pub use allocator::AddressAllocation;
pub use analysis::Analysis;
pub use cluster::Cluster;
pub use default_revision::DefaultRevision;
pub use election::{Election, Timing};
pub use lease::{Candidate, Location, Scope};
pub use lock::Lock;
pub use namespaces::NamespaceScope;
pub use root_certificates::RootCertificates;

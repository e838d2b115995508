//! What is written back to the cluster, and which of several control planes writes it.
//!
//! ```text
//! Election ──leads──▶ RootCertificates   (a ConfigMap with the mesh's roots in every namespace)
//!    │  ▲             AddressAllocation  (status.addresses of ServiceEntries)
//!    │  │             Analysis           (status.validationMessages of Istio's objects)
//!    │  │             Distribution       (the condition Reconciled of Istio's objects)
//!    │  │             IngressStatus      (status.loadBalancer of Ingresses)
//!  Lease └── DefaultRevision
//!
//! Reporter  (a ConfigMap by which the leader's Distribution knows of this replica's proxies)
//! Registrar (a WorkloadEntry for each connected workload that is no pod; whoever has the connection writes)
//! ```
//!
//! Each controller is a loop over its own watches that ends with its token; the server spawns and awaits it. What is
//! decided is decided by plain functions of what was seen. What it must know of
//! proxies the server tells it.

mod address_pool;
mod allocation;
mod allocator;
mod analysis;
mod cluster;
mod cluster_trust_bundle;
mod default_revision;
mod distribution;
mod election;
mod findings;
mod ingress;
mod lease;
mod lock;
mod namespaces;
mod reconciled;
mod registration;
mod report;
mod reporter;
mod reports;
mod root_certificates;

pub use address_pool::Range;
pub use allocator::AddressAllocation;
pub use analysis::Analysis;
pub use cluster::Cluster;
pub use cluster_trust_bundle::TrustBundleObject;
pub use default_revision::DefaultRevision;
pub use distribution::{Distribution, Progresses};
pub use election::{Election, Timing};
pub use ingress::{IngressAddress, IngressAddresses, IngressStatus};
pub use lease::{Candidate, Location, Scope};
pub use lock::Lock;
pub use namespaces::NamespaceScope;
pub use reconciled::Progress;
pub use registration::{
    Claim, KnownObjects, Registered, Registrar, RegistrationConfig, RegistrationError, RegistrationMetrics, Workload,
    WorkloadHealth,
};
pub use reporter::Reporter;
pub use root_certificates::{REVOCATIONS, REVOCATIONS_KEY, ROOTS_KEY, RootCertificates};

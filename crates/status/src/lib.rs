//! Controllers that write to the cluster, and the election of the replica that runs them.
//!
//! ```text
//! Election ──leads──▶ RootCertificates   (a ConfigMap with the mesh's roots in every namespace)
//!    │  ▲             AddressAllocation  (status.addresses of ServiceEntries)
//!    │  │             Analysis           (status.validationMessages of Istio's objects)
//!    │  │             Distribution       (the condition Reconciled of Istio's objects)
//!    │  │             IngressStatus      (status.loadBalancer of Ingresses)
//!    │  │             ServiceExports     (a ServiceExport for every Service)
//!    │  │             NodeUntaint        (spec.taints of Nodes)
//!    │  │             ObjectStatuses     (status of the Gateway API's objects; conditions about ambient mode)
//!    │  │             InferencePoolServices (a Service for every InferencePool)
//!    │  │             GatewayClasses     (the classes of Gateways)
//!    │  │             GatewayDeployments (Deployments, Services and more for Gateways)
//!   Lock └── DefaultRevision   RevisionObjects (whose statuses are written)
//!
//! Reporter          (a ConfigMap with the state of this replica's proxies, for the leader's Distribution)
//! ObjectReports     (the conditions Quarantined and RolledOut, and Events, on the replica with the report)
//! LearnedScopeStore (a ConfigMap with the hosts that a workload has used, for the server's task)
//! UnreadyEvents     (an Event of the own pod, on each replica)
//! Registrar         (a WorkloadEntry for each workload that is not a pod, on the replica with the connection)
//! ```
//!
//! Each controller is a loop over its own watches that ends with its token; the server spawns and
//! awaits it. Decisions are pure functions of the observed state. The server provides the state of
//! proxies.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "builders of test values read better if they take values"
    )
)]

mod address_pool;
mod allocation;
mod allocator;
mod analysis;
mod candidate;
mod cluster;
mod cluster_trust_bundle;
mod conditions;
mod default_revision;
mod denials;
mod distribution;
mod election;
mod events;
pub mod gateways;
mod inference_pools;
mod ingress;
mod learned_store;
mod lock;
mod lock_object;
mod mirror;
mod namespaces;
mod object_reports;
mod object_status;
mod progress_rounds;
mod quarantine_store;
mod reconciled;
mod registration;
mod report;
mod reporter;
mod reports;
mod revisions;
mod rollout_store;
mod root_certificates;
mod service_exports;
mod stored_map;
mod unready;
mod untaint;

pub use address_pool::Range;
pub use allocator::AddressAllocation;
pub use analysis::Analysis;
pub use candidate::{Candidate, Location, Scope};
pub use cluster::Cluster;
pub use cluster_trust_bundle::TrustBundleObject;
pub use default_revision::DefaultRevision;
pub use distribution::{Distribution, Progresses};
pub use election::{Election, Timing};
pub use gateways::{GatewayClasses, GatewayControllerSettings, GatewayDeployments};
pub use inference_pools::{InferencePoolServices, service_of_pool};
pub use ingress::{IngressAddress, IngressAddresses, IngressStatus};
pub use learned_store::{
    KeptScope, LearnedScopeStore, StoredScopes, forgotten, to_delete, to_store,
};
pub use lock::Lock;
pub use namespaces::NamespaceScope;
pub use object_reports::{ObjectReport, ObjectReports, ReportedCondition, ReportedObjects};
pub use object_status::{
    DesiredStatus, DesiredStatuses, ObjectStatuses, StatusScope, status_correction,
};
pub use progress_rounds::ProgressRounds;
pub use quarantine_store::{KeptQuarantine, QuarantineOutcome, QuarantineStore, ReplicaVotes};
pub use reconciled::Progress;
pub use registration::{
    Claim, KnownObjects, Registered, Registrar, RegistrationConfig, RegistrationError,
    RegistrationMetrics, Workload, WorkloadHealth,
};
pub use reporter::Reporter;
pub use revisions::{OwnObjects, Responsibility, RevisionObjects};
pub use rollout_store::{KeptRollout, RolloutStore, SharedState};
pub use root_certificates::{REVOCATIONS, REVOCATIONS_KEY, ROOTS_KEY, RootCertificates};
pub use service_exports::{ServiceExports, StaysLocal};
pub use stored_map::{NotListed, StoreError, Stored, UnreadableMap, UnreadableMaps, list_at_start};
pub use unready::{Missing, UnreadyEvents};
pub use untaint::NodeUntaint;

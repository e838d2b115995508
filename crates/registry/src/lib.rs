//! Services, endpoints and workloads: one model for all kinds of objects that declare them.
//!
//! Depends on configuration objects (`api`) and their storage (`store`), never on Envoy.
//!
//! ```text
//! Objects + names of what changed ─▶ Registry of each cluster (indexes, conversions) ─▶ Aggregate ─▶ Directory + DirectoryChange
//! ```
//!
//! A `Registry` owns the state of one cluster between changes, [`Aggregate`] those of all clusters;
//! conversions are pure functions, one file per kind; the [`Directory`] is an immutable value that
//! snapshots share.

pub mod address_index;
pub mod address_name;
mod aggregate;
mod aliases;
mod auto_allocation;
pub mod canonical_service;
pub mod directory;
mod entry_index;
mod entry_services;
mod export_to;
pub mod identity;
mod instance;
mod kubernetes_service;
mod live;
mod locality;
mod location;
mod mesh_inputs;
pub mod model;
mod network_gateways;
mod networks;
mod object_index;
mod pod_index;
mod pod_workload;
mod port_protocol;
pub mod protocol;
pub mod remote_gateway;
pub mod remote_network_names;
mod selector_index;
mod service_entry;
mod service_entry_endpoints;
mod slice_endpoints;
mod slice_index;
mod targets;
mod traffic_distribution;
mod workload_entry;
mod workload_labels;
mod workload_name;

pub use aggregate::{Aggregate, ClusterChanges, ClusterObjects};
pub use directory::{Directory, DirectoryChange};
pub use export_to::visibility_in;
pub use locality::{REGION_LABEL, SUBZONE_LABEL, ZONE_LABEL, locality_of_proxy, split_locality};
pub use location::Location;
pub use networks::NETWORK_LABEL;
pub use port_protocol::protocol_of_port;
pub use selector_index::selects;
pub use targets::{target_order, targets_by_ports};
pub use traffic_distribution::traffic_distribution;
pub use workload_labels::{NODE_LABEL, WorkloadLabels, WorkloadLocation};
pub use workload_name::{workload_name_of_entry, workload_name_of_pod};

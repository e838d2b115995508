//! Translation of a view to Envoy's resources: pure functions, one file per Envoy concept.
//!
//! All inputs are read through [`View`], which records the reads. There are no tasks, locks,
//! sockets or clocks. Queries shared by several resources are in the module of the concept that
//! they compute.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "builders of test values read better if they take values"
    )
)]

pub mod authentication;
pub mod authorization;
pub mod build;
pub mod cidr;
mod clusters;
pub mod config_info;
mod config_objects;
mod connection_manager;
pub mod constraints;
mod credentials;
pub mod destination_rule;
mod endpoints;
mod export_to;
mod extensions;
pub mod filters;
mod gateway;
pub mod gateway_api;
pub mod generated_objects;
mod grpc;
mod hbone;
mod ingress;
mod learned_scope;
mod listeners;
pub mod mtls;
mod name_table;
mod named_clusters;
pub mod names;
mod node_annotations;
mod objects;
pub mod patches;
mod percent;
pub mod policy;
mod proxy_bootstrap;
mod proxy_locality;
mod proxy_settings;
mod quote_meta;
mod root_and_own;
pub mod routes;
pub mod sds;
mod secrets;
pub mod service_address;
mod service_port;
pub mod sidecar_scope;
mod sidecar_waypoint;
pub mod stat_prefix;
mod substitution;
pub mod traffic_extension;
mod trust_bundle;
mod tunnel_sockets;
pub mod virtual_service;
mod waypoint;

#[cfg(test)]
mod test_mesh;

use std::collections::BTreeSet;

pub use credentials::READ_SECRET_KEYS;
pub use endpoints::ClusterLocalHosts;
pub use node_annotations::READ_ANNOTATIONS;

use bytes::Bytes;

use navarch_api::learned_scope::{LearnedHosts, LearnedWorkload};
use navarch_api::names::ResourceName;
use navarch_push::learned::ScopedClusters;
use navarch_push::name_list::NameList;
use navarch_push::resource::ResourceType;
use navarch_push::view::{Translator, View};

/// Translates for Envoy, its agents, and gRPC applications.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvoyTranslator;

impl Translator for EnvoyTranslator {
    fn names(&self, resource_type: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        if grpc::is_client(resource_type, view) {
            return grpc::names(resource_type, view);
        }

        match resource_type {
            ResourceType::Cluster => learned_scope::cluster_names(view),
            ResourceType::Listener => listeners::names(view),
            ResourceType::NameTable => name_table::names(view),
            ResourceType::ProxyConfig => trust_bundle::names(view),
            ResourceType::Bootstrap => proxy_bootstrap::names(view),
            ResourceType::Locality => proxy_locality::names(view),
            ResourceType::Object(kind) => objects::names(kind, view),
            // The names of these types are maintained incrementally.
            ResourceType::ObjectStatus
            | ResourceType::Endpoint
            | ResourceType::Route
            | ResourceType::VirtualHost
            | ResourceType::Secret
            | ResourceType::ExtensionConfig
            | ResourceType::Address
            | ResourceType::Workload
            | ResourceType::Authorization => Vec::new(),
        }
    }

    fn further_names(&self, resource_type: ResourceType, view: &View<'_>) -> Option<NameList> {
        (resource_type == ResourceType::ObjectStatus).then(|| gateway_api::status_names(view))
    }

    fn referenced_names(
        &self,
        resource_type: ResourceType,
        requested: &BTreeSet<ResourceName>,
        view: &View<'_>,
    ) -> Option<Vec<ResourceName>> {
        let is_listener = resource_type == ResourceType::Listener;
        (is_listener && grpc::is_client(resource_type, view))
            .then(|| grpc::referenced_listeners(requested, view))
    }

    fn members(
        &self,
        resource_type: ResourceType,
        of: &ResourceName,
        view: &View<'_>,
    ) -> Vec<ResourceName> {
        if resource_type == ResourceType::VirtualHost {
            routes::host_names(of, view)
        } else {
            Vec::new()
        }
    }

    fn learned(
        &self,
        clusters: &BTreeSet<ResourceName>,
        view: &View<'_>,
    ) -> Option<(LearnedWorkload, LearnedHosts)> {
        learned_scope::learned(clusters, view)
    }

    fn scoped_clusters(
        &self,
        requested: &BTreeSet<ResourceName>,
        view: &View<'_>,
    ) -> Option<ScopedClusters> {
        learned_scope::scoped_clusters(requested, view)
    }

    fn has_large_routes(&self, view: &View<'_>) -> bool {
        routes::are_large(view)
    }

    fn resource(
        &self,
        resource_type: ResourceType,
        name: &ResourceName,
        view: &View<'_>,
    ) -> Option<Bytes> {
        if grpc::is_client(resource_type, view) {
            return grpc::resource(resource_type, name, view);
        }

        match resource_type {
            ResourceType::Cluster => clusters::resource(name, view),
            ResourceType::Endpoint => endpoints::resource(name, view),
            ResourceType::Listener => listeners::resource(name, view),
            ResourceType::Route => routes::resource(name, view),
            ResourceType::VirtualHost => routes::host(name, view),
            ResourceType::NameTable => name_table::resource(name, view),
            ResourceType::ProxyConfig => trust_bundle::resource(name, view),
            ResourceType::Bootstrap => proxy_bootstrap::resource(name, view),
            ResourceType::Locality => proxy_locality::resource(name, view),
            ResourceType::Secret => secrets::resource(name, view),
            ResourceType::ExtensionConfig => extensions::resource(name, view),
            ResourceType::ObjectStatus => gateway_api::status_resource(name, view),
            ResourceType::Object(kind) => objects::resource(kind, name, view),
            // These types are for ztunnel, from another translator.
            ResourceType::Address | ResourceType::Workload | ResourceType::Authorization => None,
        }
    }
}

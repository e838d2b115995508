//! How a view becomes Envoy's resources: pure functions, one file per Envoy concept.
//!
//! Everything is read through [`View`], which records it. Knows no tasks, locks, sockets or clocks.
//! Queries shared by several resources live beside the concept that they compute.

pub mod authentication;
pub mod authorization;
pub mod build;
pub mod cidr;
mod clusters;
pub mod config_info;
mod config_objects;
pub mod constraints;
pub mod destination_rule;
mod endpoints;
mod extensions;
pub mod filters;
mod gateway;
mod ingress;
mod listeners;
pub mod mtls;
mod name_table;
pub mod names;
pub mod patches;
pub mod policy;
mod quote_meta;
pub mod routes;
pub mod scope;
pub mod sds;
mod secrets;
pub mod service_address;
pub mod stat_prefix;
mod substitution;
pub mod traffic_extension;
mod trust_bundle;
pub mod virtual_service;

#[cfg(test)]
mod test_mesh;

use bytes::Bytes;

use crate::api::names::ResourceName;
use crate::push::resource::ResourceType;
use crate::push::view::{Translator, View};

/// Translates for Envoy, and for the agents beside it.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvoyTranslator;

impl Translator for EnvoyTranslator {
    fn names(&self, kind: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        match kind {
            ResourceType::Cluster => clusters::names(view),
            ResourceType::Listener => listeners::names(view),
            ResourceType::NameTable => name_table::names(view),
            ResourceType::ProxyConfig => trust_bundle::names(view),
            ResourceType::Endpoint
            | ResourceType::Route
            | ResourceType::VirtualHost
            | ResourceType::Secret
            | ResourceType::ExtensionConfig => Vec::new(),
        }
    }

    fn members(&self, kind: ResourceType, of: &ResourceName, view: &View<'_>) -> Vec<ResourceName> {
        if kind == ResourceType::VirtualHost { routes::host_names(of, view) } else { Vec::new() }
    }

    fn resource(&self, kind: ResourceType, name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
        match kind {
            ResourceType::Cluster => clusters::resource(name, view),
            ResourceType::Endpoint => endpoints::resource(name, view),
            ResourceType::Listener => listeners::resource(name, view),
            ResourceType::Route => routes::resource(name, view),
            ResourceType::VirtualHost => routes::host(name, view),
            ResourceType::NameTable => name_table::resource(name, view),
            ResourceType::ProxyConfig => trust_bundle::resource(name, view),
            ResourceType::Secret => secrets::resource(name, view),
            ResourceType::ExtensionConfig => extensions::resource(name, view),
        }
    }
}

//! The analyzers, one file per family.

mod annotation_table;
mod annotation_values;
mod annotations;
mod authentication;
mod authorization;
mod clusters;
mod conditions;
mod deployments;
mod deprecation;
mod destination_rules;
mod envoy_filters;
mod external_control_plane;
mod gateway_api;
mod gateway_conflicts;
mod gateways;
mod injection;
mod injection_image;
mod networks;
mod schema;
mod service_entries;
mod services;
mod sidecars;
mod telemetry;
mod unreachable;
mod virtual_service_hosts;
mod virtual_services;
mod webhooks;

use crate::analyzer::Analyzer;

/// All analyzers, family by family, as istioctl lists them.
pub(crate) static FAMILIES: &[&[Analyzer]] = &[
    annotations::ANALYZERS,
    authentication::ANALYZERS,
    authorization::ANALYZERS,
    conditions::ANALYZERS,
    deployments::ANALYZERS,
    destination_rules::ANALYZERS,
    deprecation::ANALYZERS,
    envoy_filters::ANALYZERS,
    external_control_plane::ANALYZERS,
    gateways::ANALYZERS,
    gateway_conflicts::ANALYZERS,
    injection::ANALYZERS,
    injection_image::ANALYZERS,
    gateway_api::ANALYZERS,
    networks::ANALYZERS,
    clusters::ANALYZERS,
    services::ANALYZERS,
    sidecars::ANALYZERS,
    virtual_service_hosts::ANALYZERS,
    virtual_services::ANALYZERS,
    service_entries::ANALYZERS,
    webhooks::ANALYZERS,
    telemetry::ANALYZERS,
    schema::ANALYZERS,
];

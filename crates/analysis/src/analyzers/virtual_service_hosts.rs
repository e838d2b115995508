//! VirtualServices of the mesh that claim the same host.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_api::hostname;
use navarch_api::istio::VirtualService;

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::hosts::{ALL_NAMESPACES, fully_qualified, scopes};
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Resource;

/// Checks that only one VirtualService of the mesh claims a host.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "virtualservice.ConflictingMeshGatewayHostsAnalyzer",
    description: "Checks if multiple virtual services associated with the mesh gateway have conflicting hosts",
    inputs: &[Kind::VirtualService],
    run,
}];

/// The VirtualServices that claim something, by name.
type HostClaims<'a> = BTreeMap<String, &'a Arc<Resource>>;

/// Finds hosts with several VirtualServices.
fn run(context: &Context, report: &mut Report) {
    let mut claimed: BTreeMap<(String, String), HostClaims<'_>> = BTreeMap::new();

    for (resource, service) in context.specs::<VirtualService>() {
        if !service.gateways.is_empty() && !service.gateways.iter().any(|gateway| gateway == "mesh")
        {
            continue;
        }
        for scope in scopes(&service.export_to, &resource.namespace) {
            for host in &service.hosts {
                let key = (scope.clone(), fully_qualified(host, &resource.namespace));
                claimed
                    .entry(key)
                    .or_default()
                    .insert(resource.full_name(), resource);
            }
        }
    }

    let exported: Vec<_> = claimed
        .iter()
        .filter(|((scope, _), _)| scope == ALL_NAMESPACES)
        .collect();
    let mut reported = BTreeSet::new();

    for ((scope, host), own) in &claimed {
        let mut all = own.clone();

        if scope != ALL_NAMESPACES {
            let same = exported
                .iter()
                .filter(|((_, other), _)| hostname::matches(host, other));
            all.extend(same.flat_map(|(_, claims)| {
                claims
                    .iter()
                    .map(|(name, resource)| (name.clone(), *resource))
            }));
        }

        if all.len() < 2 {
            continue;
        }

        let names = all.keys().map(String::as_str).collect::<Vec<_>>().join(",");
        for (_, resource) in all
            .iter()
            .filter(|(name, _)| reported.insert((*name).clone()))
        {
            let parameters = parameters![&names, format!("{scope}/{host}")];
            let kind = &messages::CONFLICTING_MESH_GATEWAY_VIRTUAL_SERVICE_HOSTS;
            report.add(Message::new(kind, resource, parameters).at("metadata.name"));
        }
    }
}

//! ServiceEntries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_api::istio::ServiceEntry;
use serde_json::Value;

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::hosts::{ALL_NAMESPACES, scopes};
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Resource;

/// Checks that TCP ports have addresses, and that ServiceEntries agree about the protocol of a
/// port.
pub(super) static ANALYZERS: &[Analyzer] = &[
    Analyzer {
        name: "serviceentry.Analyzer",
        description: "Checks the validity of ServiceEntry",
        inputs: &[Kind::ServiceEntry],
        run: addresses,
    },
    Analyzer {
        name: "serviceentry.ConflictingServiceEntryProtocolAnalyzer",
        description: "Checks if multiple ServiceEntries define the same host and port with different protocols",
        inputs: &[Kind::ServiceEntry],
        run: protocols,
    },
];

/// Warns of TCP ports without an address, by which their traffic would be identified.
fn addresses(context: &Context, report: &mut Report) {
    let metadata = &context.mesh.config.default_config.proxy_metadata;
    let is_on = |name: &str| metadata.get(name).is_some_and(|value| value == "true");
    let is_allocated = is_on("ISTIO_META_DNS_CAPTURE")
        && (is_on("ISTIO_META_DNS_AUTO_ALLOCATE") || is_on("PILOT_ENABLE_IP_AUTOALLOCATE"));
    if is_allocated {
        return;
    }

    for (resource, entry) in context.specs::<ServiceEntry>() {
        let has_addresses = resource
            .status
            .get("addresses")
            .and_then(Value::as_array)
            .is_some_and(|addresses| !addresses.is_empty());
        if !entry.addresses.is_empty() || has_addresses {
            continue;
        }

        for (index, port) in entry.ports.iter().enumerate() {
            if port.protocol.is_empty() || port.protocol.eq_ignore_ascii_case("TCP") {
                let message = Message::new(
                    &messages::SERVICE_ENTRY_ADDRESSES_REQUIRED,
                    resource,
                    parameters![],
                );
                report.add(message.at(&format!("spec.ports[{index}].name")));
            }
        }
    }
}

/// A port of a host as a namespace sees it.
type VisiblePort<'a> = (String, &'a str, u32);

/// Warns of ServiceEntries that disagree about the protocol of a port.
fn protocols(context: &Context, report: &mut Report) {
    let mut index: BTreeMap<VisiblePort<'_>, Vec<(&Arc<Resource>, String)>> = BTreeMap::new();

    for (resource, entry) in context.specs::<ServiceEntry>() {
        for scope in scopes(&entry.export_to, &resource.namespace) {
            for host in &entry.hosts {
                for port in &entry.ports {
                    let seen = index.entry((scope.clone(), host, port.number)).or_default();
                    seen.push((resource, port.protocol.to_ascii_uppercase()));
                }
            }
        }
    }

    let mut reported = BTreeSet::new();

    for ((scope, host, port), own) in &index {
        let everywhere = (scope != ALL_NAMESPACES)
            .then(|| index.get(&(ALL_NAMESPACES.to_owned(), *host, *port)))
            .flatten();
        let entries = || own.iter().chain(everywhere.into_iter().flatten());
        let protocols: BTreeSet<_> = entries().map(|(_, protocol)| protocol.as_str()).collect();
        if protocols.len() < 2 {
            continue;
        }

        let names: BTreeSet<_> = entries()
            .map(|(resource, _)| resource.full_name())
            .collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let protocols = protocols.into_iter().collect::<Vec<_>>().join(", ");
        for (resource, _) in entries().filter(|(resource, _)| reported.insert(resource.full_name()))
        {
            let parameters = parameters![&names, *host, *port, &protocols];
            let message = Message::new(
                &messages::CONFLICTING_SERVICE_ENTRY_PROTOCOL,
                resource,
                parameters,
            );
            report.add(message.at("metadata.name"));
        }
    }
}

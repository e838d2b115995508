//! Gateways of the same pods that listen for the same hosts.

use std::collections::{BTreeMap, BTreeSet};

use navarch_api::istio::Gateway;

use super::gateways::nothing_selected;
use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::kind::Kind;
use crate::labels::{is_subset, text};
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Texts;

/// Checks that no two Gateways of the same pods listen on one port for one host.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "gateway.ConflictingGatewayAnalyzer",
    description: "Checks a gateway's selector, port number and hosts",
    inputs: &[Kind::Gateway, Kind::Pod],
    run,
}];

/// The key of a server: port, host and bind address.
type Listening<'a> = (u32, &'a str, &'a str);

/// Finds servers that listen on one port for one host.
fn run(context: &Context, report: &mut Report) {
    let mut selectors: BTreeMap<String, &Texts> = BTreeMap::new();
    let mut listeners: BTreeMap<String, BTreeMap<Listening<'_>, BTreeSet<String>>> =
        BTreeMap::new();
    for (resource, gateway) in context
        .specs::<Gateway>()
        .filter(|(_, gateway)| !gateway.servers.is_empty())
    {
        let selector = text(&gateway.selector);
        let table = listeners.entry(selector.clone()).or_default();
        selectors.insert(selector, &gateway.selector);
        for server in &gateway.servers {
            let port = server.port.as_ref().map_or(0, |port| port.number);
            for host in &server.hosts {
                table
                    .entry((port, host, &server.bind))
                    .or_default()
                    .insert(resource.full_name());
            }
        }
    }

    let mut known: BTreeMap<String, Vec<&String>> = BTreeMap::new();

    for (resource, gateway) in context.specs::<Gateway>() {
        let selector = text(&gateway.selector);
        let same = known.entry(selector.clone()).or_insert_with(|| {
            let others = selectors.iter().filter(|(other, labels)| {
                **other == selector
                    || (other.contains(&selector) || selector.contains(other.as_str()))
                        && context
                            .pods_with(&gateway.selector)
                            .any(|pod| is_subset(labels, &pod.labels))
            });
            others.map(|(other, _)| other).collect()
        });

        if same.is_empty() && !selector.is_empty() {
            report.add(nothing_selected(resource, gateway));
            continue;
        }

        let own = resource.full_name();

        for server in &gateway.servers {
            let port = server.port.as_ref().map_or(0, |port| port.number);
            let tables = same.iter().filter_map(|other| listeners.get(*other));
            let met = tables.flat_map(|table| {
                server
                    .hosts
                    .iter()
                    .filter_map(move |host| table.get(&(port, host.as_str(), server.bind.as_str())))
            });

            let others: BTreeSet<_> = met
                .flatten()
                .filter(|name| **name != own)
                .map(String::as_str)
                .collect();

            if !others.is_empty() {
                let names: Vec<_> = others.into_iter().collect();
                let parameters =
                    parameters![names.join(","), &selector, port, server.hosts.join(",")];
                report.add(Message::new(
                    &messages::CONFLICTING_GATEWAYS,
                    resource,
                    parameters,
                ));
            }
        }
    }
}

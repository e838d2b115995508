//! Services of one name in several clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Resource;

/// Checks that Services of one name have the same type and ports in all clusters.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "services.MultiClusterServiceAnalyzer",
    description: "Check the validity of services in the multi-cluster environment",
    inputs: &[Kind::Service],
    run,
}];

/// Tells of Services that are not the same in all clusters that have them.
fn run(context: &Context, report: &mut Report) {
    let mut named: BTreeMap<_, Vec<(&Arc<Resource>, &ServiceSpec)>> = BTreeMap::new();

    for (resource, service) in context.specs::<Service>() {
        let Some(spec) = &service.spec else { continue };
        named
            .entry((&resource.namespace, &resource.name))
            .or_default()
            .push((resource, spec));
    }

    for ((namespace, name), services) in named {
        let Some((resource, _)) = services.first() else {
            continue;
        };
        let Some((clusters, reasons)) = differences(&services) else {
            continue;
        };
        let parameters = parameters![name, namespace, clusters, reasons];
        report.add(Message::new(
            &messages::MULTI_CLUSTER_INCONSISTENT_SERVICE,
            resource,
            parameters,
        ));
    }
}

/// The clusters in which a Service is not as in the first, that one included, and in what.
fn differences(services: &[(&Arc<Resource>, &ServiceSpec)]) -> Option<(Vec<String>, String)> {
    let ((first, expected), others) = services.split_first()?;
    let mut clusters = BTreeSet::new();
    let mut reasons = BTreeSet::new();

    for (resource, spec) in others {
        let mut differ = |reason| {
            clusters.insert(resource.cluster_name().to_owned());
            reasons.insert(reason);
        };
        if is_headless(expected) != is_headless(spec) {
            differ("service has mixed mode like headless and clusterIP");
        }
        if expected.type_ != spec.type_ {
            differ("service type is inconsistent");
        }
        if ports(expected) != ports(spec) {
            differ("service ports are inconsistent");
        }
    }

    if clusters.is_empty() {
        return None;
    }

    if reasons.contains("service has mixed mode like headless and clusterIP") {
        clusters.extend(
            others
                .iter()
                .map(|(resource, _)| resource.cluster_name().to_owned()),
        );
    }

    clusters.insert(first.cluster_name().to_owned());
    Some((
        clusters.into_iter().collect(),
        reasons.into_iter().collect::<Vec<_>>().join("; "),
    ))
}

fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ip.as_deref() == Some("None")
}

/// The ports by name.
fn ports(spec: &ServiceSpec) -> Vec<&ServicePort> {
    let mut ports: Vec<_> = spec.ports.iter().flatten().collect();
    ports.sort_by_key(|port| port.name.as_deref().unwrap_or_default());
    ports
}

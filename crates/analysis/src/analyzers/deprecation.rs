//! Deprecated kinds and fields.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use navarch_api::istio::{Sidecar, VirtualService};

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;

/// Checks for deprecated fields, and for definitions of kinds that Istio no longer has.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "deprecation.DeprecationAnalyzer",
    description: "Checks for deprecated Istio types and fields",
    inputs: &[
        Kind::VirtualService,
        Kind::Sidecar,
        Kind::CustomResourceDefinition,
    ],
    run,
}];

/// The group of kinds that Istio no longer has.
const REMOVED_GROUP: &str = "rbac.istio.io";
const REMOVED_KINDS: [&str; 4] = [
    "ClusterRbacConfig",
    "RbacConfig",
    "ServiceRole",
    "ServiceRoleBinding",
];

/// Tells of what is deprecated.
fn run(context: &Context, report: &mut Report) {
    for (resource, service) in context.specs::<VirtualService>() {
        let delays = service
            .http
            .iter()
            .filter_map(|route| route.fault.as_ref()?.delay.as_ref());
        if delays.into_iter().any(|delay| delay.percent > 0) {
            let detail =
                "HTTPRoute.fault.delay.percent is deprecated; use HTTPRoute.fault.delay.percentage";
            report.add(Message::new(
                &messages::DEPRECATED,
                resource,
                parameters![detail],
            ));
        }
    }

    for (resource, sidecar) in context.specs::<Sidecar>() {
        if sidecar
            .outbound_traffic_policy
            .as_ref()
            .is_some_and(|policy| policy.egress_proxy.is_some())
        {
            let detail = "OutboundTrafficPolicy.EgressProxy ignored";
            report.add(Message::new(
                &messages::DEPRECATED,
                resource,
                parameters![detail],
            ));
        }
    }

    for (resource, definition) in context.specs::<CustomResourceDefinition>() {
        let group = definition.spec.group.as_str();
        let kind = definition.spec.names.kind.as_str();
        if group == REMOVED_GROUP && REMOVED_KINDS.contains(&kind) {
            let detail = format!("Custom resource type {group} {kind} is removed");
            report.add(Message::new(
                &messages::DEPRECATED,
                resource,
                parameters![detail],
            ));
        }
    }
}

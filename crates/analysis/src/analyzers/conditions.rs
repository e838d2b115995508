//! Conditions that controllers wrote into statuses.

use serde_json::Value;

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;

/// Checks for conditions that are false in statuses.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "conditions.ConditionAnalyzer",
    description: "Checks for negative status conditions on resources",
    inputs: &[
        Kind::Service,
        Kind::ServiceEntry,
        Kind::WorkloadEntry,
        Kind::AuthorizationPolicy,
        Kind::KubernetesGateway,
        Kind::HttpRoute,
        Kind::GrpcRoute,
    ],
    run,
}];

/// The conditions that report a fault if they are false, by kind.
const JUDGED: [(Kind, &[&str]); 7] = [
    (Kind::Service, BOUND),
    (Kind::ServiceEntry, BOUND),
    (Kind::WorkloadEntry, BOUND),
    (
        Kind::AuthorizationPolicy,
        &["ZtunnelAccepted", "WaypointAccepted"],
    ),
    (Kind::KubernetesGateway, ROUTING),
    (Kind::HttpRoute, ROUTING),
    (Kind::GrpcRoute, ROUTING),
];

/// The condition of objects that reference a waypoint.
const BOUND: &[&str] = &["istio.io/WaypointBound"];

/// The conditions of the Gateway API.
const ROUTING: &[&str] = &["Accepted", "Programmed", "ResolvedRefs"];

/// Tells of conditions that are false.
fn run(context: &Context, report: &mut Report) {
    for (kind, judged) in JUDGED {
        for resource in context.each(kind) {
            let list = |value: &Value, name: &str| {
                value
                    .get(name)
                    .and_then(Value::as_array)
                    .cloned()
                    .unwrap_or_default()
            };

            let own = list(&resource.status, "conditions");
            let of_parents = list(&resource.status, "parents")
                .into_iter()
                .flat_map(|parent| list(&parent, "conditions"));
            for condition in own.into_iter().chain(of_parents) {
                let text = |name: &str| {
                    condition
                        .get(name)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                };

                let name = text("type");
                let reason = text("reason");

                // A waypoint that enforces a policy in part reports that in a condition that is
                // true.
                let is_partial = kind == Kind::AuthorizationPolicy
                    && name == "WaypointAccepted"
                    && reason == "PartiallyInvalid";
                if judged.contains(&name) && text("status") == "False" || is_partial {
                    let parameters = parameters![name, reason, text("message")];
                    report.add(Message::new(
                        &messages::NEGATIVE_CONDITION_STATUS,
                        resource,
                        parameters,
                    ));
                }
            }
        }
    }
}
